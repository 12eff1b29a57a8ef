"""Pods whose slices are made where no pod can start now: they keep their gate until that node serves, or move."""

from datetime import UTC, datetime

import msgspec
import pytest
from small_worlds import allocation, instaslice, pod
from small_worlds import world as objects
from world import World, why

from instaslice.api.instaslice import READY, AllocationState, ConditionStatus, InstasliceCondition, SliceState
from instaslice.api.names import GATE, REQUESTED
from instaslice.api.pods import gated
from instaslice.controller.explain import Explainer, Stage
from instaslice.placement import policies

SILENT = "no kubelet listens"


def says(thing, truth):
    """What its agent says of pods that would start there."""
    ready = InstasliceCondition(
        READY, truth, "Any", datetime.now(UTC), SILENT if truth is ConditionStatus.FALSE else ""
    )
    return msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, conditions=(ready,)))


def serves(world, truth):
    world.change_instaslice(says(world.instaslices["a"], truth))


def reported(world, name="a"):
    return [each.state for each in world.instaslices[name].status.slices]


@pytest.fixture
def held(world):
    """The uid of a pod that was promised a slice on node a, which then fell silent and made the slice all the same."""
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    serves(world, ConditionStatus.FALSE)
    world.mute = set()
    world.settle()
    return uid


def test_a_pod_keeps_its_gate_while_no_pod_could_start_there_though_its_slice_is_made(world, held):
    assert reported(world) == [SliceState.CREATED], "the status says what is"
    (start,) = [each.start for each in world.spec("a").allocations]
    assert gated(world.pods[held]) and world.on(held) == "a"
    told = why(world, held)
    assert (told.ready, told.reason) == (False, "NodeNotServing")
    assert told.message == f"1g.5gb at {start} of GPU 0 on node a: created, but no pod can start there now: {SILENT}"
    assert held in world.told


def test_a_pod_that_was_about_to_be_let_go_when_its_node_fell_silent_is_not(world):
    uid = world.add_pod("1g.5gb")
    world.settle(but="ungate")
    assert world.deeds() == [("ungate", uid)]
    serves(world, ConditionStatus.FALSE)
    world.settle()
    assert gated(world.pods[uid])
    serves(world, ConditionStatus.TRUE)
    world.settle()
    assert world.running() == [uid]


def test_it_is_let_go_when_the_node_serves_again(world, held):
    serves(world, ConditionStatus.TRUE)
    world.settle()
    assert world.running() == [held]


def test_a_controller_that_is_started_meanwhile_does_the_same(world, held):
    world.begin()
    world.settle()
    assert gated(world.pods[held])
    serves(world, ConditionStatus.TRUE)
    world.settle()
    assert world.running() == [held]


def test_it_goes_elsewhere_when_that_takes_too_long(world, held):
    world.add_node("b")
    world.wait(100)
    assert world.on(held) == "a"
    world.wait(21)
    assert (world.running(), world.on(held)) == ([held], "b")
    assert not world.spec("a").allocations


def test_where_there_is_no_other_it_waits_and_is_told_why(world, held):
    world.wait(121)
    assert not world.spec("a").allocations
    told = why(world, held)
    assert told.reason == "Waiting" and SILENT in told.message
    serves(world, ConditionStatus.TRUE)
    world.settle()
    assert world.running() == [held]


def test_a_node_that_falls_silent_long_after_the_slice_was_made_holds_nobody_for_good(world, monkeypatch):
    # The API server does not take the patch that removes the gate.
    monkeypatch.setattr(World, "_do_ungate", lambda world, uid: world.ungates.discard(uid))
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.wait(121)
    assert world.on(uid) == "a"
    serves(world, ConditionStatus.FALSE)
    world.wait(121)
    assert not world.spec("a").allocations


def test_pods_that_run_there_are_left_alone(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    serves(world, ConditionStatus.FALSE)
    world.wait(1000)
    assert world.running() == [uid]
    assert why(world, uid).ready


def test_explain_says_that_the_slices_are_ready_and_what_the_pod_waits_for():
    mine = msgspec.structs.replace(allocation("w", "1g.5gb", 3), state=AllocationState.CREATED)
    waits = pod("w", "1g.5gb", gates=[GATE])
    meta = msgspec.structs.replace(waits.metadata, annotations={REQUESTED: "{}"})
    here = objects([msgspec.structs.replace(waits, metadata=meta)], [says(instaslice(mine), ConditionStatus.FALSE)])
    told = Explainer(here, policies.named("adaptive")).explain(here.pods[0])
    assert told.stage is Stage.STARTING
    assert told.message.endswith(f"created, but no pod can start there now: {SILENT}")
