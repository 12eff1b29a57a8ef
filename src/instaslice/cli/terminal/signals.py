"""Processes that run until they are told to stop: by SIGTERM from Kubernetes, by SIGINT from a terminal."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


async def run_until_signalled(
    work: Coroutine[Any, Any, None], *, drain: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run `work` until a signal arrives, or until it ends by itself; then `drain`, and cancel it. Raises what it
    raises."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running = asyncio.create_task(work)
    running.add_done_callback(lambda _: stop.set())
    try:
        await stop.wait()
        if drain is not None and not running.done():
            await drain()
    finally:
        running.cancel()
        await asyncio.wait([running])
    if not running.cancelled():
        running.result()
