"""Files that are whole or not there, whenever the process or the machine is cut off. Imports nothing of ours."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666, sync: bool = False) -> None:
    """Replace a file, or make it and its folders: written beside it first, then renamed. With `sync` it also survives a
    loss of power. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A dot in front and no suffix that anybody looks for: containerd reads every *.json of its folder.
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    # O_EXCL follows no symlink, which somebody else may have put into a folder that we share.
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    scratch.replace(path)
