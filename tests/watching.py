"""A driver of this machine at work in the background of a test: over the fake of NVML, or over the real one."""

import asyncio
from contextlib import asynccontextmanager


@asynccontextmanager
async def running(driver):
    """Gives an event that is set when the driver has news."""
    news = asyncio.Event()
    driver.changed = news.set
    task = asyncio.create_task(driver.run())
    try:
        async with asyncio.timeout(60):
            yield news
    finally:
        task.cancel()
        await asyncio.wait([task])
