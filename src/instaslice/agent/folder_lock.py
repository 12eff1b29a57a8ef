"""One agent at a time for the files of a node."""

import fcntl
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from instaslice.kube.clock import Clock

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
"""The kernel tells nobody that a lock is free but who blocks on it, and who blocks hears no signal."""


@asynccontextmanager
async def locked(folder: Path, clock: Clock, *, waits: Callable[[], None]) -> AsyncIterator[None]:
    """Hold a folder for this process. While another holds it, wait, and call `waits` once; the lock ends with its
    process, however it ends."""
    with _opened(folder) as lock:
        if not _taken(lock):
            log.info("%s is held by another agent; waiting until it ends", folder)
            waits()
            while not _taken(lock):
                await clock.sleep(RETRY_SECONDS)
        yield


def _opened(folder: Path) -> IO[str]:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "lock").open("w")


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
