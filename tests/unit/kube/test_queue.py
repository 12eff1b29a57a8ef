"""The work queue: each key once, one worker a key, longer waits after failures."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instaslice.errors import InstasliceError
from instaslice.kube.queue import Queue


@pytest.fixture
def queue(clock):
    return Queue(clock=clock)


async def drained(queue):
    """Every key that is ready now, taken and given back."""
    keys = []
    while len(queue):
        key = await queue.get()
        keys.append(key)
        queue.done(key)
    return keys


async def test_a_key_added_often_is_handed_out_once(queue):
    for key in ["a", "b", "a", "a", "b"]:
        queue.add(key)
    assert await drained(queue) == ["a", "b"]


async def test_a_key_added_while_a_worker_is_on_it_waits_until_the_worker_is_done(queue):
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    other_worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not other_worker.done()
    queue.done("a")
    assert await other_worker == "a"


async def test_a_key_not_touched_meanwhile_does_not_come_back(queue):
    queue.add("a")
    queue.done(await queue.get())
    assert len(queue) == 0


async def test_a_key_added_for_later_comes_when_its_time_has_come(queue, clock):
    queue.add_after("a", 10)
    clock.advance(9.9)
    assert len(queue) == 0
    clock.advance(0.2)
    assert await drained(queue) == ["a"]


@pytest.mark.parametrize(
    "waits", [pytest.param([10, 3], id="shorter second"), pytest.param([3, 10], id="shorter first")]
)
async def test_of_several_waits_the_shortest_counts_and_the_key_comes_once(queue, clock, waits):
    for wait in waits:
        queue.add_after("a", wait)
    clock.advance(3)
    assert await drained(queue) == ["a"]
    clock.advance(100)
    assert len(queue) == 0


async def test_each_failure_in_a_row_doubles_the_wait_up_to_the_longest(queue):
    waits = [queue.retry("a") for _ in range(30)]
    assert waits[:4] == [0.005, 0.01, 0.02, 0.04]
    assert waits[-1] == 1000.0


async def test_a_success_starts_the_waits_over(queue):
    for _ in range(5):
        queue.retry("a")
    queue.forget("a")
    assert queue.retry("a") == 0.005


async def test_many_keys_failing_together_share_one_rate(clock):
    queue = Queue(clock=clock, rate=10, burst=100)
    waits = [queue.retry(number) for number in range(200)]
    assert waits[0] == 0.005
    assert waits[-1] == pytest.approx(10.0)


async def test_a_failed_key_is_tried_again_and_a_defect_ends_the_workers(queue, clock):
    seen, begun = [], asyncio.Event()

    async def reconcile(key):
        seen.append(key)
        begun.set()
        if len(seen) == 1:
            raise InstasliceError("not now")
        raise ZeroDivisionError

    queue.add("a")
    work = asyncio.create_task(queue.work(reconcile))
    await begun.wait()
    clock.advance(1)
    with pytest.raises(ExceptionGroup) as raised:
        await work
    assert seen == ["a", "a"]
    assert raised.group_contains(ZeroDivisionError)


async def test_a_key_that_went_well_is_tried_again_as_soon_as_one_that_never_failed(queue, clock):
    """Waits of its failures in a row: 5 ms, 10 ms; then it goes well, and it is 5 ms again."""
    outcomes = iter([InstasliceError("no"), InstasliceError("no"), None, InstasliceError("no"), None])
    at = []

    async def reconcile(key):
        at.append(round((clock.monotonic() - began) * 1000))
        if (outcome := next(outcomes)) is not None:
            raise outcome
        queue.add(key) if len(at) == 3 else queue.shut_down()

    began = clock.monotonic()
    queue.add("a")
    work = asyncio.create_task(queue.work(reconcile))
    for _ in range(300):
        for _ in range(5):
            await asyncio.sleep(0)
        clock.advance(0.0001)
    await work
    assert at == [0, 5, 15, 15, 20]


async def test_a_key_that_fails_and_is_added_meanwhile_is_looked_at_at_once_and_its_retry_comes_too(queue, clock):
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.retry("a")
    queue.done(key)
    assert await drained(queue) == ["a"]
    clock.advance(1)
    assert await drained(queue) == ["a"]


async def test_a_worker_that_asks_to_look_again_does(queue, clock):
    seen, begun = [], asyncio.Event()

    async def reconcile(key):
        seen.append(key)
        begun.set()
        return 30.0 if len(seen) == 1 else None

    queue.add("a")
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work(reconcile))
        await begun.wait()
        clock.advance(30)
        queue.shut_down()
    assert seen == ["a", "a"]


async def test_shutting_down_finishes_what_is_ready_and_drops_what_is_later(queue, clock):
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("b")
    queue.add_after("c", 1)
    queue.shut_down()
    queue.add("d")
    clock.advance(10)
    queue.done("a")
    assert [await queue.get(), await queue.get(), await queue.get()] == ["b", "a", None]


@given(adds=st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=15), workers=st.integers(1, 4))
def test_no_key_is_lost_and_none_is_worked_on_twice_at_once(adds, workers):
    """Whatever is added while workers run: a key is looked at after its last add, and by one worker at a time."""

    async def story():
        from fake_clock import FakeClock

        queue = Queue(clock=FakeClock())
        on_it, started, step = set(), {}, 0

        async def reconcile(key):
            assert key not in on_it
            on_it.add(key)
            started[key] = step
            await asyncio.sleep(0)
            on_it.discard(key)

        last_add = {}
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.work(reconcile, workers=workers))
            for step, keys in enumerate(adds):
                for key in keys:
                    queue.add(key)
                    last_add[key] = step
                await asyncio.sleep(0)
            queue.shut_down()
        assert all(started[key] >= step for key, step in last_add.items())
        assert len(queue) == 0

    asyncio.run(story())
