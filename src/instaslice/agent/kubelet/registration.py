"""Keep the device plugins of a node registered with its kubelet, which forgets them whenever it starts."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

import grpc.aio

from instaslice.agent.kubelet.device_plugin import KUBELET, DevicePlugin

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5
"""Between two checks of the kubelet's socket. A kubelet that starts removes our sockets without notice."""
RETRY_SECONDS = 1.0


async def keep(folder: Path, plugins: Iterable[DevicePlugin]) -> None:
    """Until cancelled: serve and register, and again with every new kubelet. Waits for one that is away."""
    every = tuple(plugins)
    registered: tuple[int, int] | None = None
    missing = False
    try:
        while True:
            kubelet = _identity(folder / KUBELET)
            if kubelet is None and not missing:
                log.warning("no kubelet at %s; device plugins register when it starts", folder / KUBELET)
            missing = kubelet is None
            if kubelet is not None and (kubelet != registered or any(each.socket_removed for each in every)):
                registered = kubelet if await _register(every) else None
            await asyncio.sleep(CHECK_SECONDS if registered else RETRY_SECONDS)
    finally:
        for each in every:
            await each.stop()


async def _register(plugins: tuple[DevicePlugin, ...]) -> bool:
    for each in plugins:
        await each.stop()
        try:
            await each.start()
        except (grpc.aio.AioRpcError, OSError, RuntimeError) as error:
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            log.warning(
                "%s cannot be registered with the kubelet: %s; trying again in %.0f s",
                each.resource,
                reason,
                RETRY_SECONDS,
            )
            return False
    log.info("registered with the kubelet: %s", ", ".join(each.resource for each in plugins))
    return True


def _identity(socket: Path) -> tuple[int, int] | None:
    """Different for each start of a kubelet; None where none runs."""
    try:
        found = socket.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns
