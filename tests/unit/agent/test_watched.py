"""A driver whose health comes from a thread: the event loop hears of it and never waits."""

import asyncio

from agent_bench import A100

from instaslice.agent.watched import SILENT_SECONDS, WatchedDriver
from instaslice.drivers.emulated import EmulatedDriver


async def test_a_gpu_that_falls_ill_wakes_the_loop():
    driver = EmulatedDriver("node", [A100])
    (gpu,) = driver.discover()
    watched, woken = WatchedDriver(driver), asyncio.Event()
    watched.watch(woken.set)
    assert watched.watch_health({}, 0) == {}
    driver.faults.become(ills={gpu.uuid: "Xid 79"})
    async with asyncio.timeout(10):
        await woken.wait()
    assert watched.watch_health({}, 0) == {gpu.uuid: "Xid 79"}


async def test_a_driver_that_says_nothing_has_no_gpu_that_is_well():
    now = [0.0]
    driver = EmulatedDriver("node", [A100])
    watched = WatchedDriver(driver, clock=lambda: now[0])
    now[0] = SILENT_SECONDS + 1
    (gpu,) = watched.discover()
    assert "does not answer" in watched.watch_health({}, 0)[gpu.uuid]
