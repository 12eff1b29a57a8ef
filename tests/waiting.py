"""Waiting in tests of what runs on an event loop: for what others do, and for nothing but the loop itself."""

import asyncio

TURNS = 60
"""More than any chain of callbacks between two waits of ours is long."""


async def until(check, seconds=10.0):
    """Wait for something that threads, sockets or processes do; TimeoutError where it never comes true."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


async def settled():
    """Everything has happened that waits for no clock and nobody else."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def passes(clock, seconds):
    """So much time goes by on a FakeClock, and at each moment of it all that is due happens."""
    end = clock.monotonic() + seconds
    await settled()
    while (due := clock.next) is not None and due <= end:
        clock.advance(due - clock.monotonic())
        await settled()
    clock.advance(end - clock.monotonic())
    await settled()
