"""A process runs until a signal arrives, until its work ends, or until that fails."""

import asyncio
import os
import signal

import pytest

from instaslice.cli.terminal.signals import run_until_signalled


@pytest.fixture(autouse=True)
async def handlers():
    yield
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_then_cancels_the_work(number):
    said = []

    async def work():
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            said.append("cancelled")

    async def drain():
        said.append("drained")

    await asyncio.wait_for(run_until_signalled(work(), drain=drain), 10)
    assert said == ["drained", "cancelled"]


async def test_work_that_ends_by_itself_needs_no_signal_and_no_drain():
    async def work():
        return

    async def drain():
        raise AssertionError("nothing is left to drain")

    await asyncio.wait_for(run_until_signalled(work(), drain=drain), 10)


async def test_a_failure_of_the_work_is_raised():
    async def work():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await asyncio.wait_for(run_until_signalled(work()), 10)
