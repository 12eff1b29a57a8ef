"""One agent at a time for the files of a node."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process. Blocks while another holds it; the lock ends with its process, however it
    ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("%s is held by another agent; waiting until it ends", folder)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
