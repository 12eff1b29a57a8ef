"""Waiting in tests of what runs on an event loop: for what others do, and for nothing but the loop itself."""

import asyncio
import inspect

TURNS = 60
"""More than any chain of callbacks between two waits of ours is long."""


async def until(check, seconds=10.0, what=""):
    """What `check` returns once that is something: wait for what threads, sockets or processes do.

    The check may be a coroutine function. Where nothing comes of it, a TimeoutError says `what` was waited for: a text,
    or a function that returns it, called when the time is over and so able to tell what was seen last.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            while True:
                found, pause = check(), 0.01
                if inspect.iscoroutine(found):
                    found, pause = await found, 0.05  # it asks somebody, who has other things to do
                if found:
                    return found
                await asyncio.sleep(pause)
    except TimeoutError:
        if not limit.expired():
            raise  # the check's own
        raise TimeoutError(f"not within {seconds} s: {what() if callable(what) else what}") from None


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
