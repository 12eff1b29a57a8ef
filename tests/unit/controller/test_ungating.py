"""The two writes to a pod, its gate's end and its failure: what the server has then, whatever happens on the way."""

import msgspec
import pytest
from memory_server import Call
from world import World

from instaslice.api import names
from instaslice.kube.core import PODS, PodStatus

PATCH, FAIL = Call("PATCH", "pods"), Call("PATCH", "pods", "status")


def ready(world, **spec):
    """A pod whose slices are made, and that is about to be let go."""
    uid = world.add_pod("1g.5gb", **spec)
    world.settle(but="ungate")
    assert world.deeds() == [("ungate", uid)]
    return uid


def document(world, uid):
    return world.server.document(PODS, world.pods[uid])


def test_a_pod_that_is_let_go_has_its_slices_and_its_node_and_no_gate(world):
    uid = ready(world)
    world.settle(but="bind")
    pod = document(world, uid)
    assert "schedulingGates" not in pod["spec"]
    (made,) = world.instaslices["a"].status.slices
    assert pod["metadata"]["annotations"] == {names.REQUESTED: "{}", names.MIG_UUIDS: made.mig_uuid, names.NODE: "a"}
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}


@pytest.mark.parametrize(
    "number", [pytest.param(1, id="one that the server answers to"), pytest.param(0, id="one whose answer is lost")]
)
def test_a_gate_is_taken_away_by_one_write(world, number):
    uid = ready(world)
    if not number:
        world.server.lose_answer(*PATCH)
    world.settle()
    assert world.running() == [uid]
    assert world.server.calls.count(PATCH) == 1


@pytest.mark.parametrize("status", [403, 409, 422, 429, 500])
def test_a_write_that_is_refused_for_a_moment_is_tried_again(world, status):
    uid = ready(world)
    world.server.refuse(*PATCH[:2], status, times=3)
    world.settle()
    assert world.running() == [uid]
    assert world.server.calls.count(PATCH) == 4


@pytest.mark.parametrize("status", [403, 422])
def test_a_pod_that_the_server_never_lets_go_fails_in_time_and_gives_back(world, status):
    uid = ready(world)
    world.server.refuse(*PATCH[:2], status, times=100)
    world.now += 299
    world.do(("ungate", uid))
    assert ("ungate", uid) in world.deeds(), "its time is not over"
    world.now += 2
    world.do(("ungate", uid))
    world.settle()
    said = document(world, uid)["status"]
    assert (said["phase"], said["reason"]) == ("Failed", "SliceReleased")
    assert f"refuses to remove its gate (patch pods team/pod-1: {status} " in said["message"]
    assert said["message"].endswith("; its slices were released. Create it again")
    assert not world.spec("a").allocations


def test_a_pod_of_the_same_name_that_came_since_is_left_alone(world):
    uid = ready(world)
    old = world.pods[uid]

    def replaced():
        world.server.drop(PODS, old)
        meta = msgspec.structs.replace(old.metadata, uid="another")
        world.server.put(PODS, msgspec.structs.replace(old, metadata=meta))

    world.server.meanwhile(*PATCH[:2], replaced)
    with world.deaf():
        world.do(("ungate", uid))
        assert document(world, "another")["spec"]["schedulingGates"] == [{"name": names.GATE}]
        assert ("fail", uid) not in world.deeds()


def test_a_pod_that_is_gone_is_not_looked_for_again(world):
    uid = ready(world)
    world.server.meanwhile(*PATCH[:2], lambda: world.delete_pod(uid))
    world.settle()
    assert world.server.calls.count(PATCH) == 1
    assert not world.spec("a").allocations


def test_who_may_not_be_the_leader_any_more_writes_nothing(world):
    uid = ready(world)
    world.add_pod("1g.5gb")
    world.do(("decide", ""))
    world.server.calls.clear()
    world.leading = False
    for deed in [("ungate", uid), ("write", "a"), ("ungate", uid), ("write", "a")]:
        assert deed in world.deeds(), "it comes again"
        world.do(deed)
    assert world.server.calls == []
    world.leading = True
    world.settle()
    assert len(world.running()) == 2


def overdue(world, monkeypatch):
    """A pod that nobody has bound in time, and that is about to fail."""
    with monkeypatch.context() as nobody:
        nobody.setattr(World, "_bindable", lambda *_: None)
        uid = world.add_pod("1g.5gb", owner="ReplicaSet/web")
        world.settle()
        world.now += 301
        world.settle(but="fail")
        assert world.deeds() == [("fail", uid)]
    return uid


def test_a_pod_that_was_bound_just_before_it_failed_lives(world, monkeypatch):
    uid = overdue(world, monkeypatch)
    world.server.meanwhile(*FAIL[:2], lambda: world.do(("bind", uid)), "status")
    world.settle()
    assert world.running() == [uid]
    assert world.pods[uid].status == PodStatus(phase="Running")
    assert world.server.calls.count(FAIL) == 1


def test_a_pod_that_was_bound_before_its_turn_to_fail_came_lives(world, monkeypatch):
    uid = overdue(world, monkeypatch)
    world.do(("bind", uid))
    world.settle()
    assert world.running() == [uid]
    assert FAIL not in world.server.calls


def test_a_pod_that_ended_before_its_turn_to_fail_came_stays_as_it_ended(world, monkeypatch):
    uid = overdue(world, monkeypatch)
    world.end_pod(uid, "Succeeded")
    world.settle()
    assert world.pods[uid].status.phase == "Succeeded"
    assert FAIL not in world.server.calls


@pytest.mark.parametrize("lost", [False, True])
def test_a_pod_fails_once(world, monkeypatch, lost):
    uid = overdue(world, monkeypatch)
    if lost:
        world.server.lose_answer(*FAIL)
    world.settle()
    assert world.pods[uid].status.phase == "Failed"
    assert world.server.calls.count(FAIL) == 1
    assert not world.spec("a").allocations
    assert not world.dispatcher.state.capacities.discharge(uid), "it counts nowhere any more"
