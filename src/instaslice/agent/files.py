"""Files that are whole or not there, whenever the process or the machine is cut off."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)


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


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; blocks while another has it, and ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("%s is held by another agent; waiting until it ends", folder)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
