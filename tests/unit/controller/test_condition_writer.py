"""What a pod is told: its condition and an Event for every turn, once, and later where others wait for a gate."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from memory_server import Call
from waiting import passes, settled
from world import World

from instaslice.api import names
from instaslice.controller.condition_writer import ConditionWriter
from instaslice.controller.pod_condition import PodCondition
from instaslice.controller.work_queues import WorkQueues
from instaslice.kube.core import EVENTS, PODS, Condition, Container, ResourceRequirements

PATCH, EVENT = Call("PATCH", "pods", "status"), Call("POST", "events")


class Desk:
    """A writer beside a dispatcher in a world."""

    def __init__(self, world=None):
        self.world = world or World()
        if world is None:
            self.world.add_node("a")
        self.server, self.clock = self.world.server, self.world.clock
        controller = self.world.controller
        self.orders = WorkQueues(controller.state, controller._specs, self.clock)
        self.orders.busy = lambda: self.busy
        self.busy = False
        self.writer = ConditionWriter(
            self.server.client(),
            controller.state,
            controller.dispatcher.placer,
            self.orders,
            clock=self.clock,
            instance="controller-0",
        )

    @classmethod
    def beside(cls, world):
        """After a restart: a writer that remembers nothing, in a world that goes on."""
        world.begin()
        return cls(world)

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.writer.run())
        yield self
        assert not task.done(), task
        task.cancel()
        await asyncio.wait([task])

    async def told(self, *uids, seconds=0):
        for uid in uids:
            self.orders.update_condition(uid)
        await passes(self.clock, seconds)

    def condition(self, uid):
        found = self.world.pods[uid].condition(names.SLICE_READY)
        return found and (found.status, found.reason, found.message)

    @property
    def events(self):
        return [(each.reason, each.type) for each in sorted(self.server.all(EVENTS), key=lambda e: e.event_time)]


@pytest.fixture
async def desk():
    async with Desk().running() as made:
        yield made


async def test_a_pod_is_told_of_every_turn_by_condition_and_event(desk):
    world = desk.world
    filler = world.add_pod("7g.40gb")
    world.settle()
    uid = world.add_pod("1g.5gb")
    world.settle()
    await desk.told(uid)
    assert desk.condition(uid)[:2] == ("False", "Waiting")
    world.end_pod(filler)
    world.settle(but="bind")
    await desk.told(uid)
    assert desk.condition(uid)[:2] == ("True", "SliceReady")
    assert desk.events == [("Waiting", "Normal"), ("SliceReady", "Normal")]
    event = desk.server.all(EVENTS)[0]
    assert (event.regarding.name, event.regarding.uid) == (world.pods[uid].metadata.name, uid)
    assert (event.action, event.reporting_controller, event.reporting_instance) == (
        "Slice",
        "gpu.das.com/controller",
        "controller-0",
    )


async def test_the_condition_carries_its_time_and_leaves_others_alone(desk):
    world = desk.world
    uid = world.add_pod("1g.5gb")
    pod = world.pods[uid]
    other = Condition(type="PodScheduled", status="False")
    world._set(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=[other])))
    world.settle(but="bind")
    await desk.told(uid)
    after = world.server.document(PODS, world.pods[uid])["status"]["conditions"]
    assert [each["type"] for each in after] == ["PodScheduled", names.SLICE_READY]
    assert after[1]["lastTransitionTime"] == desk.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_condition_is_not_written_again_while_its_reason_is_the_same(desk):
    """Its message may be another at every turn: how many wait, what is free."""
    world = desk.world
    world.add_pod("7g.40gb")
    world.settle()
    uid = world.add_pod("1g.5gb")
    world.settle()
    for _ in range(3):
        await desk.told(uid)
        world.add_node(f"cordoned-{world.now}")
        world.cordon(f"cordoned-{world.now}")
        world.now += 1
    assert desk.server.calls.count(PATCH) == 1
    assert desk.server.calls.count(EVENT) == 1


@pytest.mark.parametrize(
    "resource, quantity, told",
    [
        pytest.param("gpu.das.com/mig-foo", "1", "'gpu.das.com/mig-foo' is not a profile name", id="no profile"),
        pytest.param("gpu.das.com/mig-1g.5gb", "lots", "lots is not a number of slices", id="no number"),
    ],
)
async def test_a_pod_that_makes_no_sense_is_told_so(desk, resource, quantity, told):
    uid = desk.world.add_pod(
        containers=[Container(name="c", resources=ResourceRequirements(limits={resource: quantity}))]
    )
    desk.world.settle()
    assert uid in desk.world.told
    await desk.told(uid)
    status, reason, message = desk.condition(uid)
    assert (status, reason) == ("False", "BadRequest")
    assert told in message
    assert message.endswith("; delete the pod and ask for slices that exist")
    assert desk.events == [("BadRequest", "Warning")]


async def test_whom_there_is_nothing_to_say_to_is_told_nothing(desk):
    world = desk.world
    ended, fits = world.add_pod("1g.5gb"), world.add_pod("1g.5gb")
    world.end_pod(ended)
    await desk.told(ended, fits, "nobody")
    assert PATCH not in desk.server.calls
    assert EVENT not in desk.server.calls


@pytest.mark.parametrize("error", [404, 409])
async def test_a_pod_that_is_gone_meanwhile_or_is_another_is_not_told(desk, error):
    uid = desk.world.add_pod("1g.5gb")
    desk.world.settle(but="bind")
    desk.server.refuse(*PATCH[:2], error, "status")
    await desk.told(uid, seconds=5)
    assert desk.server.calls.count(PATCH) == 1


async def test_another_pod_of_that_name_is_not_written(desk):
    world = desk.world
    uid = world.add_pod("1g.5gb")
    world.settle(but="bind")
    old = world.pods[uid]
    with desk.server.silent():
        desk.server.drop(PODS, old)
        desk.server.put(PODS, msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, uid="new")))
    await desk.told(uid, seconds=5)
    assert "conditions" not in desk.server.document(PODS, old)["status"]
    assert desk.server.calls.count(PATCH) == 1


async def test_what_the_server_does_not_take_now_is_said_later(desk):
    uid = desk.world.add_pod("1g.5gb")
    desk.world.settle(but="bind")
    desk.server.refuse(*PATCH[:2], 500, "status", times=2)
    await desk.told(uid, seconds=5)
    assert desk.condition(uid)[1] == "SliceReady"


@pytest.mark.parametrize(
    "well, seconds",
    [pytest.param(False, 0.05, id="those that wait"), pytest.param(True, 0.5, id="those that are well")],
)
async def test_while_others_wait_for_a_gate_some_are_told_each_second(desk, well, seconds):
    world = desk.world
    if not well:
        world.add_pod("7g.40gb")
        world.settle()
    uids = [world.add_pod("1g.5gb") for _ in range(5)]
    world.settle(but="bind")
    desk.busy = True
    await desk.told(*uids)
    assert not any(map(desk.condition, uids))
    for number in range(1, 4):
        await passes(desk.clock, seconds)
        assert sum(desk.condition(uid) is not None for uid in uids) == number
    desk.busy = False
    await passes(desk.clock, seconds)
    await settled()
    assert all(map(desk.condition, uids))


async def test_what_was_overtaken_is_never_said(desk):
    world = desk.world
    filler = world.add_pod("7g.40gb")
    world.settle()
    uid = world.add_pod("1g.5gb")
    world.settle()
    desk.busy = True
    await desk.told(uid)
    world.end_pod(filler)
    world.settle(but="bind")
    await passes(desk.clock, 5)
    assert desk.condition(uid)[1] == "SliceReady"
    assert desk.events == [("SliceReady", "Normal")]


async def test_what_names_an_object_and_a_remedy_follows_it(desk, monkeypatch):
    uid = desk.world.add_pod("1g.5gb")
    said = iter(
        [
            PodCondition(False, "WaitingForVolume", text, message_matters=True)
            for text in ("no claim", "no claim", "no class")
        ]
    )
    monkeypatch.setattr("instaslice.controller.condition_writer.condition_of", lambda *_: next(said))
    for _ in range(3):
        await desk.told(uid)
    assert desk.world.pods[uid].condition(names.SLICE_READY).message == "no class"
    assert desk.server.calls.count(PATCH) == 2
