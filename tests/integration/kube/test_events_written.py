"""Events on the real API server: said once, counted when repeated, never in the caller's way."""

import asyncio
from contextlib import asynccontextmanager

import pods
import pytest
from fake_clock import FastClock
from waiting import until

from instaslice.kube.client import Selector
from instaslice.kube.core import EVENTS, PODS
from instaslice.kube.events import MAX_RECORDS, EventKey, Recorder, reference
from instaslice.kube.meta import key_of


@pytest.fixture
async def train(client, namespace):
    return reference(PODS, await client.create(PODS, pods.pod(namespace, "train")))


@asynccontextmanager
async def recording(client):
    recorder = Recorder(client, controller="instaslice.io/test", instance="test-0", clock=FastClock())
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run())
        yield recorder
        recorder.close()


async def events(client, namespace):
    return await client.list(EVENTS, Selector(namespace=namespace))


async def until_count(client, namespace, count):
    async def counted():
        found = await events(client, namespace)
        return found if found and found[0].series and found[0].series.count == count else None

    return await until(counted, 30, f"an event counted {count} times")


async def test_an_event_says_what_happened_to_which_object(client, namespace, train):
    async with recording(client) as recorder:
        recorder.record(EventKey(train, True, "NoRoom", "Place", "profile 3g.40gb does not fit"))
    [event] = await events(client, namespace)
    assert (event.type, event.reason, event.note) == ("Warning", "NoRoom", "profile 3g.40gb does not fit")
    assert event.regarding == train
    assert event.series is None


async def test_a_wait_said_a_hundred_times_is_one_event_with_a_count(client, namespace, train):
    async with recording(client) as recorder:
        said = EventKey(train, False, "Waiting", "Place", "no slice is free")
        for _ in range(50):
            recorder.record(said)
            await asyncio.sleep(0)
        await until_count(client, namespace, 50)
        for _ in range(50):
            recorder.record(said)
        assert len(await until_count(client, namespace, 100)) == 1
    assert recorder.lost == 0


async def test_an_event_that_expired_is_written_anew(client, namespace, train):
    async with recording(client) as recorder:
        said = EventKey(train, False, "Waiting", "Place", "no slice is free")
        recorder.record(said)
        recorder.record(said)
        [first] = await until_count(client, namespace, 2)
        await client.delete(EVENTS, key_of(first))
        recorder.record(said)
        [second] = await until_count(client, namespace, 3)
    assert second.metadata.name != first.metadata.name


async def test_events_for_a_namespace_that_is_not_there_are_lost_and_counted(client, train):
    elsewhere = type(train)(kind="Pod", namespace="no-such-namespace", name="x", uid="1")
    async with recording(client) as recorder:
        recorder.record(EventKey(elsewhere, False, "Waiting", "Place", "no slice is free"))
    assert recorder.lost == 1


async def test_memory_is_bounded_and_what_did_not_fit_is_counted(client, train):
    recorder = Recorder(client, controller="instaslice.io/test", instance="test-0", clock=FastClock())
    for number in range(MAX_RECORDS + 10):
        recorder.record(EventKey(train, False, "Waiting", "Place", f"reason {number}"))
    assert recorder.lost == 10
