"""The status of a node was lost, or never written, while slices exist: no pod gets a slice of another, none loses its
own."""

import asyncio

import pytest
from agent_bench import Bench

from instaslice.api.instaslice import EMPTY_STATUS
from instaslice.drivers import DriverError


def health(bench):
    return [(gpu.health.value, gpu.reason) for gpu in bench.written.gpus]


def with_a_running_pod(**options):
    """A bench whose object has lost its status, and then its agent."""
    bench = Bench(**options)
    bench.write(bench.wants("a"))
    bench.work()
    bench.write(bench.wants("a", state="ungated"))
    bench.work()
    bench.written = EMPTY_STATUS
    return bench


async def test_nothing_is_placed_on_a_gpu_before_its_slices_were_listed():
    bench = with_a_running_pod()
    bench.write()  # the object was created again, without allocations
    bench.driver.immediate = lambda gpu: False
    bench.restart()
    bench.work()
    assert health(bench) == [("unhealthy", "its slices have not been listed yet")]
    assert bench.states() == {}
    await bench.agent._workers[bench.gpus[0]]._task
    bench.work()
    assert health(bench) == [("healthy", "")]
    assert list(bench.states().values()) == ["foreign"]


async def test_a_gpu_that_was_reported_as_healthy_stays_so_over_a_restart():
    bench = Bench()
    bench.work()
    bench.driver.immediate = lambda gpu: False
    bench.restart()
    bench.work()
    assert health(bench) == [("healthy", "")]


def fail_once(bench, monkeypatch):
    listed, failures = bench.driver.slices, iter([DriverError("NVML says try again")])

    def slices(gpu):
        for error in failures:
            raise error
        return listed(gpu)

    monkeypatch.setattr(bench.driver, "slices", slices)


def hush(bench, monkeypatch):
    bench.driver.hushed = (0,)


@pytest.mark.parametrize("fault", [fail_once, hush], ids=["its slices cannot be listed", "it does not answer"])
def test_a_pod_keeps_its_slice_on_a_gpu_that_fails_at_that_moment(monkeypatch, fault):
    bench = with_a_running_pod()
    fault(bench, monkeypatch)
    bench.restart()
    assert bench.work() == {"a": "creating"}
    assert not bench.failures
    bench.driver.hushed = ()
    bench.clock.advance(5)
    assert bench.work() == {"a": "created"}
    assert bench.there() == [("1g.5gb", 0)]


async def test_a_slice_in_the_slot_of_a_failed_allocation_stays_while_a_pod_uses_it():
    bench = Bench(grace=60.0)
    bench.write(bench.wants("a"))
    bench.driver.faults.replace(refusals={bench.gpus[0]: 1})
    assert bench.work() == {"a": "failed"}
    late = bench.driver.create(bench.gpus[0], "1g.5gb", 0)  # by a call that had been given up
    bench.users[late.gpu, "1g.5gb", 0] = "pod b/c"
    bench.agent.reread()
    for _ in range(5):
        bench.work()
        await asyncio.sleep(0)
        bench.clock.advance(30)
    assert bench.there() == [("1g.5gb", 0)]
    bench.users.clear()
    for _ in range(5):
        bench.work()
        await asyncio.sleep(0)
        bench.clock.advance(30)
    assert bench.there() == []
    assert bench.work() == {"a": "failed"}
