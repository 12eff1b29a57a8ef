"""The dispatcher when hardware refuses, agents fall silent, nodes go and nobody binds: no pod waits there for ever."""

from datetime import UTC, datetime

import msgspec
import pytest
from world import World, why

from instaslice.api import instaslice
from instaslice.api.instaslice import AllocationState, ConditionStatus, Health
from instaslice.api.pods import NO_REASON
from instaslice.kube.core import PODS, Condition, Container, Pod, PodSpec, PodStatus, ResourceRequirements
from instaslice.kube.meta import ObjectMeta


def test_a_slot_that_is_refused_is_tried_elsewhere(world):
    world.broken = {("a/0", start) for start in range(8)}
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == []
    world.add_node("b")
    world.settle()
    assert (world.running(), world.on(uid)) == ([uid], "b")


def test_a_slot_that_failed_is_tried_again_later(world):
    world.broken = {("a/0", start) for start in range(8)}
    uid = world.add_pod("7g.40gb")
    world.settle()
    assert list(world.dispatcher.state.ledger.nodes["a"].quarantined.values()) == ["the hardware refuses"]
    world.broken.clear()
    world.settle()
    assert world.running() == []
    world.wait(6)
    assert world.running() == [uid]


def test_an_unhealthy_gpu_is_offered_to_nobody_until_it_is_well(world):
    thing = world.instaslices["a"]
    well = thing.status.gpus
    sick = (msgspec.structs.replace(well[0], health=Health.UNHEALTHY, reason="Xid 79"),)

    def report(gpus):
        now = world.instaslices["a"]
        status = msgspec.structs.replace(now.status, gpus=gpus)
        world.change_instaslice(msgspec.structs.replace(now, status=status))

    running = world.add_pod("1g.5gb")
    world.settle()
    report(sick)
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == [running]
    assert why(world, running).message == "Xid 79"
    assert why(world, uid).message == "every GPU that has 1g.5gb is closed; out of use: GPU 0 of a (Xid 79)"
    world.told_pod(running, "GpuUnhealthy")
    world.told.clear()
    report(well)
    world.settle()
    assert uid in world.running()
    assert running in world.told
    assert why(world, running).ready


def test_a_node_whose_agent_is_silent_is_left_alone(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("b")
    world.wait(121)
    assert (world.running(), world.on(uid)) == ([uid], "b")
    later = [world.add_pod("1g.5gb") for _ in range(7)]
    world.settle()
    assert set(world.running()) == {uid, *later[:6]}
    world.mute = set()
    world.settle()
    assert later[6] in world.running()
    assert not [a for a in world.spec("a").allocations if a.pod.uid == uid]


def test_nobody_is_sent_to_a_node_on_which_no_pod_could_start(world):
    running = world.add_pod("1g.5gb")
    world.settle()
    serves(world, ConditionStatus.FALSE, "no kubelet listens")
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == [running]
    assert why(world, running).ready
    assert why(world, uid).message == "every GPU that has 1g.5gb is closed; out of use: node a (no kubelet listens)"
    serves(world, ConditionStatus.TRUE)
    world.settle()
    assert world.running() == [running, uid]


def test_a_pod_that_waited_for_a_kubelet_in_vain_is_told_so(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    serves(world, ConditionStatus.FALSE, "no kubelet listens")
    world.wait(121)
    assert not world.running()
    assert "has not answered" not in why(world, uid).message
    assert "no kubelet listens" in why(world, uid).message


def serves(world, status, message=""):
    """What the agent of node a says of pods that would start there."""
    now = world.instaslices["a"]
    ready = instaslice.InstasliceCondition(instaslice.READY, status, "Any", datetime.now(UTC), message)
    world.change_instaslice(
        msgspec.structs.replace(now, status=msgspec.structs.replace(now.status, conditions=(ready,)))
    )


def test_an_ungated_pod_that_nobody_binds_fails_and_gives_back(world, monkeypatch):
    monkeypatch.setattr(World, "_bindable", lambda *_: False)
    uid = world.add_pod("1g.5gb", owner="ReplicaSet/web")
    world.settle()
    world.wait(301)
    assert (
        "not bound to node a within 300 s (no scheduler says why; see its Events, and those of its claims)"
        in world.pods[uid].status.message
    )
    assert not world.spec("a").allocations


@pytest.mark.parametrize(
    "reason, message, told",
    [
        pytest.param("Unschedulable", "volume elsewhere", "volume elsewhere", id="what it lacks"),
        pytest.param(
            "SchedulingGated",
            "blocked by gates",
            NO_REASON,
            id="nobody is there",
        ),
    ],
)
def test_what_the_scheduler_says_is_in_the_message_of_a_pod_that_it_does_not_bind(
    world, monkeypatch, reason, message, told
):
    monkeypatch.setattr(World, "_bindable", lambda *_: False)
    uid = world.add_pod("1g.5gb", owner="ReplicaSet/web")
    world.settle()
    said = Condition(type="PodScheduled", status="False", reason=reason, message=message)
    world._set(msgspec.structs.replace(world.pods[uid], status=PodStatus(phase="Pending", conditions=[said])))
    world.wait(301)
    assert f"within 300 s ({told})" in world.pods[uid].status.message


def test_a_pod_waits_where_the_scheduler_still_counts_what_no_gpu_holds_any_more(world):
    """Of a pod that lost its slice, or one that came past the webhook: let go, ours could not be bound."""
    lost = Container(name="c", resources=ResourceRequirements(requests={"gpu.das.com/mem": "38"}))
    world.server.put(PODS, Pod(ObjectMeta(name="lost", uid="lost"), PodSpec("a", [lost])))
    wants = {"gpu.das.com/mig-1g.5gb": "1", "gpu.das.com/mem": "5"}
    asks = ResourceRequirements(limits=wants, requests={**wants, "cpu": "1"})
    uid = world.add_pod(containers=[Container(name="c", resources=asks)])
    world.settle()
    assert not world.running()
    assert "gpu.das.com/mem: 5 wanted, 2 free" in why(world, uid).message
    world.delete_pod("lost")
    world.settle()
    assert world.running() == [uid]


def test_pods_that_have_not_started_leave_a_node_that_is_gone(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("b")
    world.remove_node("a")
    world.settle()
    assert world.on(uid) == "b"


def test_a_node_that_is_not_ready_is_given_up_after_a_while(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("b")
    world.not_ready("a")
    world.wait(100)
    assert world.on(uid) == "a"
    world.wait(201)
    assert world.on(uid) == "b"


def test_a_pod_is_not_let_go_to_a_node_that_was_cordoned_since_it_was_chosen(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.on(uid) == "a"
    world.cordon("a")
    world.mute = set()
    world.settle()
    assert not world.spec("a").allocations
    assert "every node that could hold it is cordoned (a)" in why(world, uid).message
    world.cordon("a", False)
    world.settle()
    assert world.running() == [uid]


def test_a_pod_deleted_after_its_node_was_given_up_holds_nothing_there(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.not_ready("a")
    world.wait(301)
    assert world.on(uid) == "a", "Kubernetes has not given it up"
    world.mark_pod(uid)
    world.settle()
    assert not world.on(uid)
    assert why(world, uid).message == "node a is not ready: the slices there were released"


def test_a_pod_whose_slices_take_long_is_told_so(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.told.clear()
    world.wait(6)
    assert world.told == {uid}
    assert why(world, uid).reason == "Creating"


def test_what_was_promised_by_an_object_that_is_gone_does_not_count_against_the_pod():
    world = World()
    world.add_node("a", cpu="1")
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb", cpu="1")
    world.settle()
    thing = world.instaslices["a"]
    world.remove_instaslice("a")
    world.settle()
    world.change_instaslice(msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, allocations=())))
    world.mute = set()
    world.settle()
    assert world.running() == [uid]


def test_slices_of_running_pods_are_found_again_after_their_object_was_deleted(world):
    uid = world.add_pod("3g.20gb")
    world.settle()
    thing = world.instaslices["a"]
    world.remove_instaslice("a")
    world.settle()
    assert why(world, uid).reason == "SliceLost"
    made = thing.status.slices[0]
    stranger = msgspec.structs.replace(made, id=made.mig_uuid)
    world.change_instaslice(
        msgspec.structs.replace(
            thing,
            spec=msgspec.structs.replace(thing.spec, allocations=()),
            status=msgspec.structs.replace(thing.status, slices=(stranger,)),
        )
    )
    world.settle()
    (a,) = world.spec("a").allocations
    assert (a.pod.uid, a.state, a.start, a.cpu) == (uid, AllocationState.UNGATED, made.start, 100)
    assert a.id != made.id


def test_a_machine_that_was_registered_under_a_new_name_takes_pods_when_its_old_node_goes(world):
    """Its GPUs are the same, and the old object still claims them."""
    running = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("new")
    same = msgspec.structs.replace(world.instaslices["new"].status, gpus=world.instaslices["a"].status.gpus)
    world.change_instaslice(msgspec.structs.replace(world.instaslices["new"], status=same))
    waiting = world.add_pod("7g.40gb")
    world.settle()
    assert world.running() == [running]
    world.end_pod(running)
    world.mute = {"a"}  # nobody is there any more who would destroy the slice
    world.settle()
    assert not world.on(waiting)
    world.hardware.clear()
    world.remove_node("a")
    world.settle()
    assert (world.on(waiting), waiting in world.running()) == ("new", True)
    world.remove_instaslice("a")
    world.settle()
    assert world.on(waiting) == "new"


def test_a_pod_that_waits_again_is_promised_nothing_twice_when_its_object_comes_back(world):
    """The object of its node was deleted and restored, with what was promised there."""
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    thing = world.instaslices["a"]
    world.remove_instaslice("a")
    assert uid in world.dispatcher.state.queue
    world.change_instaslice(thing)
    world.mute = set()
    world.settle()
    assert world.running() == [uid]
    assert len(world.spec("a").allocations) == 1
    world.delete_pod(uid)
    world.settle()
    assert not world.spec("a").allocations
    assert not world.hardware["a/0"]
