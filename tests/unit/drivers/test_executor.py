"""GpuExecutor: blocking calls from an event loop, in order on one GPU, in parallel on several, never for ever."""

import asyncio
import threading

import pytest
from fake_clock import ThreadsClock
from injected_faults import InjectedFaults

from instaslice.drivers import Hung, SlotTaken
from instaslice.drivers import executor as executor_module
from instaslice.drivers.emulated import EmulatedDriver
from instaslice.drivers.executor import GpuExecutor
from instaslice.geometry import models

A100 = models.named("A100-40GB")


async def test_results_and_errors_come_back():
    executor, driver = GpuExecutor(), EmulatedDriver("gpu-0", [A100])
    gpu = driver.discover()[0].uuid
    made = await executor.call(gpu, "create", lambda: driver.create(gpu, "1g.5gb", 0))
    assert made.whole
    with pytest.raises(SlotTaken):
        await executor.call(gpu, "create", lambda: driver.create(gpu, "1g.5gb", 0))


async def test_calls_for_one_gpu_run_one_after_another_in_order():
    executor, log = GpuExecutor(), []

    def note(number):
        log.append(("in", number))
        log.append(("out", number))

    await asyncio.gather(*(executor.call("a", "note", lambda n=n: note(n)) for n in range(50)))
    assert log == [(way, n) for n in range(50) for way in ("in", "out")]


async def test_a_lane_keeps_its_thread_for_the_next_call():
    executor = GpuExecutor()
    threads = {await executor.call("a", "who", threading.current_thread) for _ in range(5)}
    assert len(threads) == 1


async def test_only_so_many_lanes_keep_their_thread(monkeypatch):
    monkeypatch.setattr(executor_module, "KEPT_THREADS", 3)
    executor = GpuExecutor()
    threads = [await executor.call(f"{number}", "who", threading.current_thread) for number in range(20)]
    async with asyncio.timeout(30):
        while sum(each.is_alive() for each in threads) > 3:
            await asyncio.sleep(0.01)
    assert sum(each.is_alive() for each in threads) == 3


async def test_a_thread_that_has_nothing_to_do_ends_and_the_next_call_has_another(monkeypatch):
    monkeypatch.setattr(executor_module, "KEPT_SECONDS", 0.01)
    executor = GpuExecutor()
    first = await executor.call("a", "who", threading.current_thread)
    await asyncio.to_thread(first.join, 30)
    assert not first.is_alive()
    assert await executor.call("a", "who", threading.current_thread) is not first


async def test_calls_for_two_gpus_run_side_by_side():
    executor, both = GpuExecutor(), threading.Barrier(2, timeout=30)
    await asyncio.gather(executor.call("a", "meet", both.wait), executor.call("b", "meet", both.wait))


async def test_a_hung_gpu_is_told_and_holds_up_itself_alone_and_what_never_began_never_does():
    driver = EmulatedDriver("gpu-0", [A100, A100], faults=InjectedFaults())
    sick, well = (gpu.uuid for gpu in driver.discover())
    clock = ThreadsClock()
    executor, begun = GpuExecutor(1, clock.call_later), threading.Event()

    def hang():
        begun.set()
        return driver.create(sick, "1g.5gb", 0)

    driver.faults.hang(sick)
    first = asyncio.create_task(executor.call(sick, "create 1g at 0", hang))
    await asyncio.to_thread(begun.wait)
    second = asyncio.create_task(executor.call(sick, "create 1g at 1", lambda: driver.create(sick, "1g.5gb", 1)))
    assert await executor.call(well, "list", lambda: driver.slices(well)) == ()
    assert not (first.done() or second.done())
    await clock.expire(2)
    with pytest.raises(Hung, match=r"create 1g at 0 has not returned after 1 s; look for Xid in dmesg"):
        await first
    with pytest.raises(Hung, match="behind another call that hangs"):
        await second

    driver.faults.heal(sick)
    (late,) = await executor.call(sick, "list", lambda: driver.slices(sick))
    assert late.placement.start == 0, "the call that had begun took effect, the one behind it did not"
