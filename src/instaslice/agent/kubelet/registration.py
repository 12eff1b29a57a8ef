"""Keeps the device plugins of a node known to its kubelet, which forgets them whenever it starts."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

import grpc.aio

from instaslice.agent.kubelet.device_plugin import KUBELET, DevicePlugin

log = logging.getLogger(__name__)

GLANCE_SECONDS = 0.5
"""Between two looks at the kubelet's socket. A kubelet that starts removes our sockets and tells nobody."""
RETRY_SECONDS = 1.0


async def keep(folder: Path, plugins: Iterable[DevicePlugin]) -> None:
    """Until cancelled: serve, register, and do so again with every new kubelet. One that is away is waited for."""
    every = tuple(plugins)
    known: tuple[int, int] | None = None
    missed = False
    try:
        while True:
            there = _identity(folder / KUBELET)
            if there is None and not missed:
                log.warning("no kubelet at %s; it is told of slices when it comes", folder / KUBELET)
            missed = there is None
            if there is not None and (there != known or any(each.lost for each in every)):
                known = there if await _introduce(every) else None
            await asyncio.sleep(GLANCE_SECONDS if known else RETRY_SECONDS)
    finally:
        for each in every:
            await each.stop()


async def _introduce(plugins: tuple[DevicePlugin, ...]) -> bool:
    for each in plugins:
        await each.stop()
        try:
            await each.start()
        except (grpc.aio.AioRpcError, OSError, RuntimeError) as error:
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            log.warning("the kubelet was not told of %s: %s; again in %.0f s", each.resource, reason, RETRY_SECONDS)
            return False
    log.info("the kubelet knows of %s", ", ".join(each.resource for each in plugins))
    return True


def _identity(socket: Path) -> tuple[int, int] | None:
    """Another for each kubelet; None where none is."""
    try:
        told = socket.stat()
    except FileNotFoundError:
        return None
    return told.st_ino, told.st_ctime_ns
