"""Run until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any


async def run_until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Return once the work has ended or was cancelled by SIGTERM or SIGINT. What it raises is raised."""
    task = asyncio.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
