"""A process ends on SIGTERM and Ctrl-C in good order."""

import asyncio
import os
import signal

import pytest

from instaslice.cli.terminal.signals import run_until_signalled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_work_after_its_own_cleanup(number):
    left = []

    async def work():
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            left.append("in good order")

    async with asyncio.timeout(10):
        await run_until_signalled(work())
    assert left == ["in good order"]


async def test_what_the_work_raises_is_raised():
    async def work():
        raise OSError("a defect")

    with pytest.raises(OSError, match="a defect"):
        await run_until_signalled(work())
