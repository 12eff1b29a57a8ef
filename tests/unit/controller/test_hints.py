"""Placeholders follow what waits: when they come, when they go, and what is never there."""

import asyncio
import random
from contextlib import asynccontextmanager

import msgspec
import pytest
from fake_clock import FakeClock
from fitting import container, pod
from memory_server import Call, MemoryServer
from waiting import passes, settled

from instaslice.api import names
from instaslice.controller.autoscaling import PATIENCE, PAUSE, PRIORITY_CLASSES, AutoscalingHints
from instaslice.kube.core import PODS, Pod, PodStatus
from instaslice.kube.meta import ObjectMeta

CREATE, DELETE = Call("POST", "pods"), Call("DELETE", "pods")


def waiting(*cpus):
    """Waiting pods by uid, of as many shapes as there are amounts of CPU."""
    made = {}
    for number, cpu in enumerate(cpus):
        one = pod(container(cpu=cpu, **{"gpu.das.com/mig-1g.5gb": "1"}))
        meta = msgspec.structs.replace(one.metadata, name=f"p{number}", uid=f"u{number}", resource_version="1")
        made[meta.uid] = msgspec.structs.replace(one, metadata=meta)
    return made


class Desk:
    def __init__(self, limit):
        self.server, self.clock = MemoryServer(), FakeClock()
        self.hints = AutoscalingHints(self.server.client(), self.clock, "ours", limit, rng=random.Random(0))

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.hints.run())
        await settled()
        yield self
        assert not task.done(), task
        task.cancel()
        await asyncio.wait([task])

    @property
    def there(self):
        """CPU of each placeholder."""
        return sorted(each.spec.containers[0].resources.requests["cpu"] for each in self.placeholders)

    @property
    def placeholders(self):
        return [each for each in self.server.all(PODS) if names.PLACEHOLDER in each.metadata.labels]

    async def passes(self, seconds):
        await passes(self.clock, seconds)


@pytest.fixture
async def desk():
    async with Desk(2).running() as made:
        yield made


async def test_a_placeholder_comes_when_its_shape_was_wanted_for_long_enough(desk):
    desk.hints.set(waiting("1"))
    await desk.passes(PATIENCE - 0.1)
    assert desk.there == []
    await desk.passes(0.2)
    assert desk.there == ["1000m"]
    (made,) = desk.placeholders
    assert made.metadata.namespace == "ours"
    assert names.MEMORY not in made.spec.containers[0].resources.requests, "nobody said how much a node has"


async def test_what_is_said_again_and_again_does_not_begin_its_time_anew(desk):
    for _ in range(11):
        desk.hints.set(waiting("1"))
        await desk.passes(1)
    assert desk.there == ["1000m"]
    assert desk.server.calls.count(CREATE) == 1


async def test_a_shape_that_was_not_wanted_for_a_moment_begins_anew(desk):
    desk.hints.set(waiting("1"))
    await desk.passes(PATIENCE - 1)
    desk.hints.set({})
    await desk.passes(1)
    desk.hints.set(waiting("1"))
    await desk.passes(PATIENCE - 1)
    assert desk.there == []
    await desk.passes(1)
    assert desk.there == ["1000m"]


async def test_pods_of_one_shape_share_one_and_the_first_shapes_go_first(desk):
    desk.hints.set(waiting("3", "3", "1", "2"))
    await desk.passes(PATIENCE)
    assert desk.there == ["1000m", "3000m"]


async def test_all_gpu_memory_of_a_node_is_asked_for(desk):
    desk.hints.set(waiting("1"), {"u0": 80})
    await desk.passes(PATIENCE)
    (made,) = desk.placeholders
    assert made.spec.containers[0].resources.requests[names.MEMORY] == "80"


async def test_it_goes_when_nobody_waits_any_more(desk):
    desk.hints.set(waiting("1", "2"))
    await desk.passes(PATIENCE)
    desk.hints.set(waiting("1"))
    await desk.passes(0)
    assert desk.there == ["1000m"]
    desk.hints.set({})
    await desk.passes(0)
    assert desk.there == []
    assert desk.server.calls.count(DELETE) == 2


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"node_name": "new"}}, id="bound: its node is there"),
        pytest.param({"status": PodStatus(phase="Failed")}, id="ended: somebody evicted it"),
    ],
)
async def test_one_that_is_used_up_goes_and_comes_again_only_after_a_pause(desk, change):
    desk.hints.set(waiting("1"))
    await desk.passes(PATIENCE)
    (there,) = desk.placeholders
    if "spec" in change:
        changed = msgspec.structs.replace(there, spec=msgspec.structs.replace(there.spec, **change["spec"]))
    else:
        changed = msgspec.structs.replace(there, **change)
    desk.server.put(PODS, changed)
    await desk.passes(PAUSE - 1)
    assert desk.there == []
    desk.hints.set(waiting("1"))
    await desk.passes(2)
    assert desk.there == ["1000m"]


async def test_one_that_is_taken_away_by_another_hand_comes_back(desk):
    desk.hints.set(waiting("1"))
    await desk.passes(PATIENCE)
    desk.server.drop(PODS, desk.placeholders[0])
    await desk.passes(1)
    assert desk.there == ["1000m"]


async def test_before_the_controller_has_looked_nothing_of_an_earlier_process_goes():
    desk = Desk(2)
    left(desk)
    async with desk.running():
        await desk.passes(100)
        assert len(desk.placeholders) == 1
        desk.hints.set({})
        await desk.passes(0)
        assert desk.placeholders == []


async def test_what_an_earlier_process_made_stays_where_it_is_wanted_still():
    first = Desk(2)
    async with first.running():
        first.hints.set(waiting("1"))
        await first.passes(PATIENCE)
    second = Desk(2)
    second.server = first.server
    second.hints = AutoscalingHints(second.server.client(), second.clock, "ours", 2, rng=random.Random(0))
    async with second.running():
        second.hints.set(waiting("1"))
        await second.passes(100)
    assert second.server.calls.count(CREATE) == 1
    assert DELETE not in second.server.calls


async def test_turned_off_it_makes_none_and_takes_away_what_is_there():
    desk = Desk(0)
    left(desk)
    async with desk.running():
        desk.hints.set(waiting("1"))
        await desk.passes(100)
    assert desk.placeholders == []
    assert desk.server.calls.count(CREATE) == 0
    assert desk.server.all(PRIORITY_CLASSES) == [], "nor their priority class"


async def test_turned_on_it_has_its_priority_class(desk):
    (made,) = desk.server.all(PRIORITY_CLASSES)
    document = desk.server.document(PRIORITY_CLASSES, made)
    assert (made.metadata.name, document["value"], document["preemptionPolicy"]) == (
        names.PLACEHOLDER_PRIORITY,
        -1,
        "Never",
    )


async def test_pods_of_others_are_left_alone(desk):
    desk.server.put(PODS, Pod(metadata=ObjectMeta(name="theirs", namespace="ours")))
    left(desk, namespace="team")
    desk.hints.set({})
    await desk.passes(1)
    assert len(desk.server.all(PODS)) == 2


@pytest.mark.parametrize("status", [403, 500])
async def test_a_create_that_is_refused_is_tried_again(desk, status):
    desk.server.refuse("POST", "pods", status, times=3)
    desk.hints.set(waiting("1"))
    await desk.passes(PATIENCE + 1)
    assert desk.there == ["1000m"]
    assert desk.server.calls.count(CREATE) == 4


async def test_one_that_is_there_though_the_watch_has_not_said_so_is_no_trouble(desk):
    desk.server.lose_answer(*CREATE)
    with desk.server.silent():
        desk.hints.set(waiting("1"))
        await desk.passes(PATIENCE + 1)
    assert desk.there == ["1000m"]
    assert desk.server.calls.count(CREATE) == 2


async def test_of_one_that_another_made_anew_under_its_name_only_ours_is_removed(desk):
    desk.hints.set(waiting("1"))
    await desk.passes(PATIENCE)
    (there,) = desk.placeholders
    with desk.server.silent():
        desk.server.drop(PODS, there)
        meta = ObjectMeta(name=there.metadata.name, namespace="ours", labels=there.metadata.labels)
        desk.server.put(PODS, Pod(metadata=meta))
    desk.hints.set({})
    await desk.passes(1)
    assert [each.metadata.name for each in desk.server.all(PODS)] == [there.metadata.name]
    assert desk.server.calls.count(DELETE) == 1


def left(desk, namespace="ours"):
    """A placeholder of an earlier process."""
    meta = ObjectMeta(name="waiting-0", namespace=namespace, labels={names.PLACEHOLDER: "true"})
    desk.server.put(PODS, Pod(metadata=meta))


async def test_what_an_earlier_version_left_in_our_own_namespace_goes():
    desk = Desk(2)
    left(desk, names.NAMESPACE)
    left(desk, "team-a")
    async with desk.running():
        await desk.passes(1)
        assert [each.metadata.namespace for each in desk.placeholders] == ["team-a"]


async def test_without_the_flag_one_that_may_not_be_removed_is_named_once(caplog):
    desk = Desk(0)
    left(desk)
    desk.server.refuse("DELETE", "pods", 403, times=9)
    async with desk.running():
        desk.hints.set({})
        await desk.passes(600)
    assert "kubectl delete pod -n ours waiting-0" in caplog.text
    assert desk.server.calls.count(DELETE) <= 2


async def test_a_waiting_pod_that_is_narrowed_is_shown_as_it_is_now(desk):
    """Kueue does that while it is gated."""
    pods = waiting("1")
    desk.hints.set(pods)
    await desk.passes(PATIENCE)
    meta = msgspec.structs.replace(pods["u0"].metadata, resource_version="2")
    narrowed = msgspec.structs.replace(pods["u0"].spec, node_selector={"zone": "a"})
    desk.hints.set({"u0": msgspec.structs.replace(pods["u0"], metadata=meta, spec=narrowed)})
    await desk.passes(PATIENCE)
    assert [each.spec.node_selector for each in desk.placeholders] == [{"zone": "a"}]
