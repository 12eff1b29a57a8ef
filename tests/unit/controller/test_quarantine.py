"""An object that cannot be handled is set aside until it changes: it keeps what it holds, and all else goes on."""

import asyncio
import json
import random
from contextlib import asynccontextmanager

import msgspec
import pytest
from world import World, why

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES
from instaslice.controller.controller import Controller, Settings
from instaslice.controller.deadlines import Deadlines
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.errors import Deposed
from instaslice.controller.ledger import Ledger
from instaslice.controller.pod_queue import PodQueue
from instaslice.controller.pod_reconciler import PodReconciler
from instaslice.controller.quarantine import ObjectKind, Quarantine
from instaslice.controller.scheduling.filters import Filters
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import NODES, PODS, Condition, Namespace, Node, NodeStatus, Pod, PodSpec
from instaslice.kube.errors import Invalid, Unreachable, Unreadable
from instaslice.kube.meta import ObjectMeta
from instaslice.kube.storage import PersistentVolumeClaim
from instaslice.placement import policies
from instaslice.placement.longest_waiting import LongestWaiting


@pytest.fixture
def world(monkeypatch):
    """In which things fail on purpose."""
    monkeypatch.setattr(World, "check", lambda _: None)
    made = World()
    made.add_node("a")
    return made


def fails_for(monkeypatch, owner, method, uid):
    """A defect that one pod alone brings out."""
    real = getattr(owner, method)

    def defective(self, *args, **more):
        if any(each == uid or getattr(getattr(each, "metadata", None), "uid", None) == uid for each in args):
            raise RuntimeError("a defect")
        return real(self, *args, **more)

    monkeypatch.setattr(owner, method, defective)


@pytest.mark.parametrize(
    "owner, method",
    [(Dispatcher, "_place"), (Dispatcher, "_handle_pod"), (PodReconciler, "_reconcile"), (PodQueue, "add")],
)
def test_a_pod_costs_only_itself(world, monkeypatch, owner, method):
    number = len(world.pods)
    fails_for(monkeypatch, owner, method, f"uid-{1 + number}")
    bad = world.add_pod("1g.5gb")
    others = [world.add_pod("1g.5gb") for _ in range(3)]
    world.settle()
    assert world.running() == others
    assert bad not in world.dispatcher.state.queue
    assert why(world, bad).reason == "SetAside"
    assert "RuntimeError: a defect" in why(world, bad).message
    assert bad in world.told
    assert world.dispatcher.state.quarantine.failures >= 1
    monkeypatch.undo()
    monkeypatch.setattr(World, "check", lambda _: None)
    world.change_pod(bad, priority=1)
    world.settle()
    assert bad in world.running(), "it has changed"


def test_a_pod_for_which_room_cannot_be_kept_costs_only_itself(world, monkeypatch):
    small = world.add_pod("1g.5gb")
    world.settle()
    bad = world.add_pod("7g.40gb")
    fails_for(monkeypatch, LongestWaiting, "reserve", bad)
    world.wait(301)
    assert why(world, bad).reason == "SetAside"
    world.end_pod(small)
    other = world.add_pod("7g.40gb")
    world.settle()
    assert world.running() == [other]


def test_a_pod_that_is_set_aside_keeps_its_slice(world, monkeypatch):
    uid = world.add_pod("7g.40gb")
    world.settle()
    fails_for(monkeypatch, PodReconciler, "_reconcile", uid)
    world.end_pod(uid)
    other = world.add_pod("7g.40gb")
    world.settle()
    assert [each.pod.uid for each in world.spec("a").allocations] == [uid]
    assert other not in world.running()
    monkeypatch.undo()
    monkeypatch.setattr(World, "check", lambda _: None)
    world.delete_pod(uid)
    world.settle()
    assert world.running() == [other]


def test_a_pod_that_is_gone_is_not_remembered_though_its_end_could_not_be_handled(world, monkeypatch):
    uid = world.add_pod("1g.5gb")
    world.settle()
    fails_for(monkeypatch, PodReconciler, "_reconcile", uid)
    world.delete_pod(uid)
    assert not world.dispatcher.state.quarantine.why(ObjectKind.POD, uid)


def test_an_instaslice_that_cannot_be_handled_loses_nothing_and_gets_nothing(world, monkeypatch):
    running = world.add_pod("1g.5gb")
    world.settle()
    monkeypatch.setattr(Ledger, "_update_slices", _defect)
    world.report("a", observed_generation=2)
    world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == [running]
    assert [each.pod.uid for each in world.spec("a").allocations] == [running]
    monkeypatch.undo()
    monkeypatch.setattr(World, "check", lambda _: None)
    world.report("a", observed_generation=3)
    world.settle()
    assert len(world.running()) == 2


def test_of_an_instaslice_that_cannot_be_read_nothing_is_given_away(world):
    """As the watch tells it: the object itself stays as it was."""
    running = world.add_pod("1g.5gb")
    world.settle()
    world.dispatcher.quarantine(ObjectKind.INSTASLICE, "a", Unreadable("Instaslice a cannot be read"))
    waiting = world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == [running]
    assert "Instaslice a cannot be read" in why(world, waiting).message
    world.report("a", observed_generation=2)
    world.settle()
    assert waiting in world.running()


@pytest.mark.parametrize(
    "allocatable",
    [pytest.param({"cpu": "many"}, id="an odd quantity"), pytest.param({"x/y": "1.1.1"}, id="of anything")],
)
def test_nobody_is_sent_to_a_node_that_cannot_be_handled_and_who_runs_there_stays(world, allocatable):
    running = world.add_pod("1g.5gb")
    world.settle()
    good = world.nodes["a"]
    world.change_node(msgspec.structs.replace(good, status=NodeStatus(allocatable=allocatable, conditions=_READY)))
    waiting = world.add_pod("1g.5gb")
    world.wait(1000)
    assert world.running() == [running]
    assert world.on(running) == "a"
    assert "(a: is set aside: '" in why(world, waiting).message
    world.change_node(good)
    world.settle()
    assert waiting in world.running()


_READY = [Condition(type="Ready", status="True")]


def test_a_node_that_is_not_ready_when_it_can_be_read_again_is_given_up_in_time(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    bad = NodeStatus(allocatable={"cpu": "many"}, conditions=[Condition(type="Ready", status="False")])
    world.change_node(msgspec.structs.replace(world.nodes["a"], status=bad))
    world.change_node(msgspec.structs.replace(world.nodes["a"], status=NodeStatus(conditions=bad.conditions)))
    world.add_node("b")
    world.wait(301)
    assert world.on(uid) == "b"


def test_a_pod_that_counts_oddly_and_runs_somewhere_harms_nobody(world):
    meta = ObjectMeta(name="odd", namespace="kube-system", uid="odd", annotations={names.REQUESTED: "{}"})
    world.dispatcher.pod_changed(None, Pod(metadata=meta, spec=PodSpec(node_name="a", overhead={"cpu": "some"})))
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == [uid]
    world.dispatcher.pod_changed(Pod(metadata=meta), None)
    assert not world.dispatcher.state.quarantine.why(ObjectKind.POD, "odd")


def test_a_deadline_that_fails_keeps_no_other_from_being_met():
    met, failed = [], []
    agenda = Deadlines(failed.append, lambda: None)
    agenda.at(1.0, lambda _: 1 / 0)
    agenda.at(1.0, met.append)
    agenda.run(2.0)
    assert (met, len(failed)) == ([2.0], 1)


@pytest.mark.parametrize("error", [Deposed("another wrote"), MemoryError()])
def test_what_is_not_about_one_object_ends_the_process(error):
    quarantine = Quarantine()
    with pytest.raises(type(error)):
        quarantine.add(ObjectKind.POD, "uid", error)
    assert not len(quarantine)


# In the controller ---------------------------------------------------------------------------------------------------


@pytest.fixture
def controller():
    return Controller(None, policies.named("adaptive"), clock=SystemClock(), rng=random.Random(0), settings=Settings())


async def _raises(error, _):
    raise error


async def test_a_turn_that_fails_costs_the_object_that_it_was_about(controller):
    defect = RuntimeError("a defect")
    assert await controller._contained(ObjectKind.POD, lambda key: _raises(defect, key), "uid") is None
    assert controller.dispatcher.state.quarantine.why(ObjectKind.POD, "uid") == "RuntimeError: a defect"


@pytest.mark.parametrize("error", [Unreachable("away"), Deposed("another wrote"), asyncio.CancelledError()])
async def test_what_is_tried_again_and_what_ends_the_process_passes(controller, error):
    with pytest.raises(type(error)):
        await controller._contained(ObjectKind.POD, lambda key: _raises(error, key), "uid")
    assert not controller.dispatcher.state.quarantine.failures


async def test_a_pass_that_fails_ends_the_process(controller, monkeypatch):
    monkeypatch.setattr(Dispatcher, "decide", _defect)
    controller.orders.wake()
    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(controller._decide_when_woken(), 5)


async def test_of_a_node_that_is_set_aside_no_shape_is_learnt(controller):
    bad = Node(metadata=ObjectMeta(name="a"), status=NodeStatus(allocatable={"gpu.das.com/mem": "many"}))
    controller.nodes.on_change(controller.dispatcher.node_changed)
    controller.nodes.on_change(controller._node_shape)
    controller.nodes.upsert(bad)
    assert controller.dispatcher.state.quarantine.why(ObjectKind.NODE, "a")


async def test_words_that_fail_are_not_told_for_ever(controller, monkeypatch):
    monkeypatch.setattr("instaslice.controller.condition_writer.condition_of", _defect)
    await controller._conditions._paced(0.0, "uid")
    assert controller.dispatcher.state.quarantine.failures == 1
    assert not len(controller.orders.waiting_conditions)


def _defect(*_, **__):
    raise RuntimeError("a defect")


class Streams:
    """A server whose lists are empty but for one object of a kind, which cannot be read."""

    def __init__(self, resource, document):
        self._resource, self._document = resource, document

    async def pages(self, resource, _selector):
        items = [self._document] if resource is self._resource else []
        body = {"metadata": {"resourceVersion": "1"}, "items": items}
        yield resource.read_page("list", json.dumps(body).encode())

    @asynccontextmanager
    async def watch(self, resource, _selector, params, *, silent_after):
        if "sendInitialEvents" in params:
            raise Invalid("a server without watch lists")
        await asyncio.Event().wait()
        yield


@pytest.mark.parametrize(
    "resource, cache, kind, key",
    [
        pytest.param(PODS, "pods", ObjectKind.POD, "uid-x", id="a pod"),
        pytest.param(NODES, "nodes", ObjectKind.NODE, "x", id="a node"),
        pytest.param(INSTASLICES, "instaslices", ObjectKind.INSTASLICE, "x", id="an Instaslice"),
    ],
)
async def test_what_the_watch_cannot_read_is_set_aside(resource, cache, kind, key):
    bad = {"metadata": {"name": "x", "uid": "uid-x", "resourceVersion": "1"}, "spec": 7, "status": 7}
    made = Controller(
        Streams(resource, bad),
        policies.named("adaptive"),
        clock=SystemClock(),
        rng=random.Random(0),
        settings=Settings(),
    )
    watching = asyncio.create_task(made._watch(resource, getattr(made, cache)))
    await asyncio.wait_for(getattr(made, cache).synced(), 5)
    watching.cancel()
    assert "cannot be read" in made.dispatcher.state.quarantine.why(kind, key)


@pytest.mark.parametrize(
    "method, thing",
    [
        pytest.param("storage_changed", PersistentVolumeClaim(metadata=ObjectMeta(name="c")), id="a claim"),
        pytest.param("namespace_changed", Namespace(metadata=ObjectMeta(name="n")), id="a namespace"),
    ],
)
def test_what_pods_are_judged_by_and_nobody_can_handle_is_left_as_it_was(world, monkeypatch, method, thing):
    monkeypatch.setattr(Filters, method, _defect)
    getattr(world.dispatcher, method)(None, thing)
    assert world.dispatcher.state.quarantine.failures == 1


def test_a_pod_whose_slices_may_stand_in_an_object_that_cannot_be_read_does_not_fail(world, monkeypatch):
    """A controller that is started anew meanwhile has never seen what was promised."""
    dispatcher = world.dispatcher
    meta = ObjectMeta(namespace="team", name="sent", uid="sent", annotations={names.MIG_UUIDS: "M", names.NODE: "b"})
    failed = []
    monkeypatch.setattr(world.controller.orders, "fail", lambda uid, _: failed.append(uid))
    dispatcher.state.pods["sent"] = Pod(metadata=meta)
    dispatcher.quarantine(ObjectKind.INSTASLICE, "b", Unreadable("Instaslice b cannot be read"))
    dispatcher._pods.lost.add("sent")
    dispatcher._pods._lost_overdue("sent", 300.0)
    assert not failed
    dispatcher.state.quarantine.release(ObjectKind.INSTASLICE, "b")
    dispatcher._pods._lost_overdue("sent", 600.0)
    assert failed == ["sent"]
