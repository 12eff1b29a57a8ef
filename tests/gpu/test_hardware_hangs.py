"""A GPU that hangs, under an event loop: the real one, behind a binding whose calls can be held back.

A driver that really hangs cannot be had; what is shown is that everything else works on while a call is out, and after.
"""

import asyncio
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pynvml
import pytest
from watching import running

from instaslice.agent import health_watch
from instaslice.agent.health_watch import WatchedDriver
from instaslice.drivers import UnhealthyReason
from instaslice.drivers.nvml import NvmlDriver
from instaslice.kube.clock import SystemClock


class Hanging:
    """NVML, but for the call of which the name is in `hangs`: it waits for the event there."""

    def __init__(self):
        self.hangs = {}

    def __getattr__(self, name):
        found = getattr(pynvml, name)
        if name not in self.hangs:
            return found

        def late(*arguments, **named):
            self.hangs[name].wait()
            return found(*arguments, **named)

        return late


@pytest.fixture
def nvml():
    made = Hanging()
    yield made
    for each in made.hangs.values():
        each.set()


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(health_watch, "WATCH_SECONDS", 0.5)
    monkeypatch.setattr(health_watch, "PROBE_SECONDS", 0.5)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetGpuInstancePossiblePlacements"])
async def test_a_gpu_that_hangs_at_the_start_is_named_and_joins_when_it_answers(nvml, index, gpu, soon, call):
    nvml.hangs[call] = threading.Event()
    driver = await WatchedDriver.open(partial(NvmlDriver, [index], nvml=nvml), 3.0, SystemClock())
    (silent,) = driver.unresponsive()
    print("while it hangs:", silent.unhealthy.message)
    assert driver.discover() == () and silent.unhealthy.reason is UnhealthyReason.HUNG
    async with running(driver) as news:
        nvml.hangs.pop(call).set()
        await news.wait()
        assert [each.uuid for each in driver.discover()] == [gpu.uuid]
        made = await asyncio.to_thread(driver.create, gpu.uuid, gpu.model.profiles[0].name, 0)
        await asyncio.to_thread(driver.destroy, made)
    driver.driver.close()


@pytest.mark.timeout(90)
async def test_a_gpu_that_hangs_later_is_ill_until_it_answers_and_slices_are_made_meanwhile(nvml, index, gpu, soon):
    driver = await WatchedDriver.open(partial(NvmlDriver, [index], nvml=nvml), 3.0, SystemClock())
    assert driver.watch_health(gpu.uuid, None, 0) is None
    async with running(driver) as news:
        nvml.hangs["nvmlDeviceGetFieldValues"] = threading.Event()
        await news.wait()
        print("while it hangs:", driver.watch_health(gpu.uuid, None, 0).message)
        assert driver.watch_health(gpu.uuid, None, 0).reason is UnhealthyReason.HUNG
        made = await asyncio.to_thread(driver.create, gpu.uuid, gpu.model.profiles[0].name, 0)
        assert await asyncio.to_thread(driver.slices, gpu.uuid) == (made,)
        await asyncio.to_thread(driver.destroy, made)
        news.clear()
        nvml.hangs.pop("nvmlDeviceGetFieldValues").set()
        await news.wait()
        assert driver.watch_health(gpu.uuid, None, 0) is None
    await asyncio.sleep(1)  # the last question ends
    driver.driver.close()


@pytest.mark.timeout(90)
def test_slices_are_found_again_in_new_sessions_while_health_is_watched(index, gpu):
    program = [sys.executable, Path(__file__).parent / "renewing_agent.py", index]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
