"""Files that are whole or not there, whenever the process or the machine is cut off."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Put a file in place of whatever is there: beside it first, on the disk, then renamed. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Begins with a dot: who reads the folder (containerd reads every *.json in it) passes over what is half written.
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
