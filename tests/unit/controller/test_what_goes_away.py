"""Pods, nodes and GPUs that go, while a controller runs and while none does, and those that come back."""

from datetime import UTC, datetime

import msgspec
import pytest
from world import World, why

from instaslice.api import instaslice
from instaslice.api.instaslice import AllocationState, ConditionStatus, Health, SliceState
from instaslice.kube.core import Condition, Container, PodStatus, ResourceRequirements


def gone(world, gpu):
    """A GPU is not there any more, and nothing on it."""
    name = gpu.partition("/")[0]
    status = world.instaslices[name].status
    world.hardware.pop(gpu, None)
    world.report(
        name,
        gpus=tuple(each for each in status.gpus if each.uuid != gpu),
        slices=tuple(each for each in status.slices if each.gpu != gpu),
    )


def health(world, gpu, health, reason=""):
    name = gpu.partition("/")[0]
    gpus = [
        msgspec.structs.replace(each, health=health, reason=reason) if each.uuid == gpu else each
        for each in world.instaslices[name].status.gpus
    ]
    world.report(name, gpus=tuple(gpus))


def lost(world, uid, reason="the slice is gone"):
    """The agent says that a slice of this pod is lost."""
    (name,) = [name for name, thing in world.instaslices.items() if uid in {a.pod.uid for a in thing.spec.allocations}]
    ids = {a.id for a in world.spec(name).allocations if a.pod.uid == uid}
    made = [
        msgspec.structs.replace(each, state=SliceState.FAILED, reason=reason, mig_uuid=None) if each.id in ids else each
        for each in world.instaslices[name].status.slices
    ]
    world.report(name, slices=tuple(made))


def reasons(world, name="a"):
    return {a.reason for a in world.spec(name).allocations if a.state is AllocationState.DELETING}


# Pods ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "until, end",
    [
        pytest.param("write", "delete", id="promised, deleted"),
        pytest.param("agent", "delete", id="written, deleted"),
        pytest.param("ungate", "delete", id="made, deleted"),
        pytest.param("bind", "delete", id="let go, deleted"),
        pytest.param("", "delete", id="running, deleted"),
        pytest.param("", "end", id="running, ended"),
    ],
)
def test_a_pod_that_went_while_no_controller_ran_has_given_back_its_slices(world, until, end):
    uid = world.add_pod("3g.20gb")
    world.settle(but=until)
    with world.unattended():
        world.delete_pod(uid) if end == "delete" else world.end_pod(uid)
    world.settle()
    assert not world.spec("a").allocations
    assert not world.hardware["a/0"]
    assert world.running() == []
    after = world.add_pod("7g.40gb")
    world.settle()
    assert world.running() == [after]


@pytest.mark.parametrize(
    "end, told",
    [
        pytest.param(World.delete_pod, "the pod is gone", id="gone"),
        pytest.param(World.end_pod, "the pod has succeeded", id="ended"),
    ],
)
def test_why_slices_are_taken_back_stands_in_the_object(world, end, told):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.mute = {"a"}
    end(world, uid)
    world.settle()
    assert reasons(world) == {told}


def test_a_gated_pod_that_is_deleted_gives_back_at_once(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.mark_pod(uid)
    world.settle()
    assert reasons(world) == {"the pod was deleted"}


def test_a_running_pod_that_is_deleted_holds_its_slices_until_it_has_ended(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.mark_pod(uid)
    world.settle()
    assert [a.state for a in world.spec("a").allocations] == [AllocationState.UNGATED]
    world.delete_pod(uid)
    world.settle()
    assert not world.spec("a").allocations


def test_a_pod_that_is_let_go_is_told_of_its_slices_once(world):
    uid = world.add_pod("1g.5gb")
    world.settle(but="bind")
    assert why(world, uid).ready
    world.told.clear()
    world.settle()
    assert world.told == set()


def test_an_ungated_pod_stands_in_the_object_as_ungated(world):
    world.add_pod("1g.5gb")
    world.settle(but="bind")
    assert [a.state for a in world.spec("a").allocations] == [AllocationState.UNGATED]


# Nodes ---------------------------------------------------------------------------------------------------------------


def test_a_node_that_is_not_ready_at_the_start_is_given_up_in_time():
    world = World(create=1000)
    world.add_node("a")
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    with world.unattended():
        world.not_ready("a")
        world.add_node("b")
    world.wait(100)
    assert world.on(uid) == "a"
    world.wait(201)
    assert world.on(uid) == "b"
    assert reasons(world) == {"node a has not been ready for 300 s"}


def test_a_node_that_is_ready_again_in_time_is_not_given_up():
    world = World(create=1000)
    world.add_node("a")
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("b")
    world.not_ready("a")
    world.wait(299)
    world.not_ready("a", "True")
    world.wait(2)
    assert world.on(uid) == "a"


def test_a_node_that_was_given_up_and_came_back_is_used_again(world):
    world.not_ready("a")
    uid = world.add_pod("1g.5gb")
    world.wait(301)
    assert world.on(uid) is None
    world.not_ready("a", "True")
    world.settle()
    assert world.running() == [uid]
    world.mark_pod(uid)
    world.settle()
    assert world.on(uid) == "a", "its kubelet is there to end it"


def test_of_a_node_that_was_given_up_a_pod_that_is_being_deleted_gives_back(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.mark_pod(uid)
    world.not_ready("a")
    world.wait(299)
    assert world.on(uid) == "a"
    world.wait(2)
    assert world.on(uid) is None
    assert not world.spec("a").allocations


def test_a_running_pod_loses_its_slices_with_its_node(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.told.clear()
    world.remove_node("a")
    assert world.on(uid) is None
    assert world.told == {uid}
    assert why(world, uid).message.startswith("node a is gone: the slices there were released; delete the pod")
    assert not world.failing, "Kubernetes ends it"


def test_a_pod_that_is_pinned_to_a_node_that_is_gone_fails(world):
    uid = world.add_pod("1g.5gb")
    world.settle(but="bind")
    world.remove_node("a")
    world.settle()
    assert "node a is gone" in world.pods[uid].status.message
    assert not world.spec("a").allocations


def test_a_pod_of_a_deleted_object_that_comes_back_empty_waits_again(world):
    """Gated, it is placed anew; nothing of its first reservation counts."""
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    before = world.dispatcher.state.arrivals
    world.remove_instaslice("a")
    world.settle()
    assert world.on(uid) is None
    assert uid in world.dispatcher.state.queue
    assert world.dispatcher.state.arrivals == before, "it arrived once"


# GPUs ----------------------------------------------------------------------------------------------------------------


def test_a_gated_pod_whose_gpu_is_gone_is_placed_anew():
    world = World()
    world.add_node("a", gpus=2)
    world.mute = {"a"}
    uid = world.add_pod("7g.40gb")
    world.settle()
    (before,) = world.spec("a").allocations
    gone(world, before.gpu)
    world.mute = set()
    world.settle()
    assert world.running() == [uid]
    (after,) = world.spec("a").allocations
    assert after.gpu != before.gpu


def test_a_running_pod_whose_gpu_is_gone_is_told_so_and_others_are_not(world):
    world.add_node("b", gpus=2)
    first, second = world.add_pod("7g.40gb"), world.add_pod("7g.40gb")
    world.settle()
    name = world.on(first)
    (allocation,) = [a for a in world.spec(name).allocations if a.pod.uid == first]
    world.told.clear()
    gone(world, allocation.gpu)
    world.dispatcher.decide()
    assert first in world.told
    assert second not in world.told
    assert world.on(first) is None
    assert why(world, first).reason == "SliceLost"
    assert world.on(second)
    assert second in {a.pod.uid for thing in world.instaslices.values() for a in thing.spec.allocations}


def test_a_gpu_that_comes_back_under_its_name_is_empty():
    world = World()
    world.add_node("a", gpus=2)
    uids = [world.add_pod("7g.40gb") for _ in range(2)]
    world.settle(but="bind")
    status = world.instaslices["a"].status
    gone(world, "a/1")
    world.settle(but="bind")
    waiting = world.add_pod("7g.40gb")
    world.settle(but="bind")
    assert world.on(waiting) is None
    world.report("a", gpus=status.gpus)
    world.settle(but="bind")
    assert world.on(waiting) == "a"
    assert sum(world.on(uid) is not None for uid in uids) == 1


def test_a_sick_gpu_is_left_alone_when_it_is_only_one_of_two(world):
    world.add_node("b")
    health(world, "a/0", Health.UNHEALTHY, "Xid 79")
    first, second = world.add_pod("7g.40gb"), world.add_pod("7g.40gb")
    world.settle()
    assert (world.on(first), world.on(second)) == ("b", None)
    health(world, "a/0", Health.HEALTHY)
    world.settle()
    assert world.on(second) == "a"


@pytest.mark.parametrize("first", ["health", "unready"])
def test_a_gpu_that_is_closed_for_two_reasons_is_offered_when_both_are_gone(world, first):
    health(world, "a/0", Health.UNHEALTHY, "Xid 79")
    world.report("a", conditions=(unready("no kubelet listens"),))
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert set(world.dispatcher.state.ledger.closed("a")["a/0"].values()) == {"Xid 79", "no kubelet listens"}

    def mend(what):
        if what == "health":
            health(world, "a/0", Health.HEALTHY)
        else:
            world.report("a", conditions=())

    mend(first)
    world.settle()
    assert world.on(uid) is None
    mend({"health": "unready", "unready": "health"}[first])
    world.settle()
    assert world.running() == [uid]


def unready(message):
    return instaslice.InstasliceCondition(
        instaslice.READY, ConditionStatus.FALSE, "Any", datetime(2026, 1, 1, tzinfo=UTC), message
    )


def test_a_pod_that_was_placed_elsewhere_before_a_gpu_went_keeps_what_it_has():
    """Its first slice failed there, and was not destroyed yet when the GPU went."""
    world = World()
    world.add_node("a", gpus=2)
    world.broken = {("a/0", start) for start in range(8)}
    uid = world.add_pod("7g.40gb")
    while len({a.gpu for a in world.spec("a").allocations if a.pod.uid == uid}) < 2:
        world.do(min(world.deeds(), key=lambda deed: ["decide", "write", "agent"].index(deed[0])))
    gone(world, "a/0")
    assert world.on(uid) == "a"
    world.settle()
    assert world.running() == [uid]


def test_several_slices_on_a_closed_gpu_are_each_given_back(world):
    uids = [world.add_pod("1g.5gb") for _ in range(3)]
    world.settle()
    health(world, "a/0", Health.UNHEALTHY, "Xid 79")
    world.settle()
    for uid in uids[:2]:
        world.end_pod(uid)
        world.settle()
    assert len(world.spec("a").allocations) == 1
    health(world, "a/0", Health.HEALTHY)
    later = [world.add_pod("1g.5gb") for _ in range(6)]
    world.settle()
    assert set(world.running()) == {uids[2], *later}


def test_pods_of_a_sick_gpu_are_told_when_it_falls_sick_and_when_its_words_are_the_same_they_are_not(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.told.clear()
    health(world, "a/0", Health.UNHEALTHY, "Xid 79")
    assert world.told == {uid}
    assert (why(world, uid).reason, why(world, uid).message) == ("GpuUnhealthy", "Xid 79")


def test_a_slice_that_is_lost_under_a_running_pod_is_told_and_kept(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.told.clear()
    lost(world, uid)
    world.settle()
    assert world.told == {uid}
    said = why(world, uid)
    assert (said.reason, said.message, said.warning, said.ready) == (
        "SliceLost",
        "the slice is gone; delete the pod, it cannot use a GPU any more",
        True,
        False,
    )
    assert world.on(uid) == "a"


def test_a_slice_that_is_lost_under_a_gated_pod_is_made_elsewhere(world):
    uid = world.add_pod("1g.5gb")
    world.settle(but="ungate")
    world.told.clear()
    lost(world, uid, "somebody destroyed it")
    assert world.told == {uid}
    assert uid in world.dispatcher.state.queue
    world.settle()
    assert world.running() == [uid]
    assert world.on(uid) == "a"


# Places that failed --------------------------------------------------------------------------------------------------


def failing(world):
    """A pod for which every place is refused; how often the agent was asked so far."""
    world.broken = {("a/0", start) for start in range(8)}
    uid = world.add_pod("7g.40gb")
    world.settle()
    return uid


def test_a_place_that_fails_again_and_again_is_tried_ever_later_but_not_later_than_ten_minutes(world):
    failing(world)
    waits = []
    while len(waits) < 10:
        (place,) = world.dispatcher.state.ledger.nodes["a"].quarantined
        began = world.now
        while place in world.dispatcher.state.ledger.nodes["a"].quarantined:
            world.clock.advance(1)
            if world.woken:
                world.do(("decide", ""))
        waits.append(world.now - began)
        world.settle()
    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_a_place_where_a_slice_was_made_has_not_failed_before(world):
    uid = failing(world)
    world.wait(6)
    world.broken.clear()
    world.wait(11)
    assert world.running() == [uid]
    world.end_pod(uid)
    world.settle()
    failing(world)
    world.broken.clear()
    world.wait(6)
    assert len(world.running()) == 1, "it begins with the first wait again"


@pytest.mark.parametrize("how", ["well again", "started anew"])
def test_what_failed_is_tried_at_once_where_its_gpu_is_well_again_or_its_machine_was_started_anew(world, how):
    uid = failing(world)
    world.broken.clear()
    if how == "well again":
        health(world, "a/0", Health.UNHEALTHY, "Xid 79")
        world.settle()
        assert not world.running()
        health(world, "a/0", Health.HEALTHY)
    else:
        world.report("a", boot_id="two")
    world.settle()
    assert world.running() == [uid]


def test_a_place_that_failed_on_one_gpu_says_nothing_of_another():
    world = World()
    world.add_node("a", gpus=2)
    world.broken = {("a/0", start) for start in range(8)}
    uids = [world.add_pod("7g.40gb") for _ in range(2)]
    world.settle()
    assert len(world.running()) == 1
    gone(world, "a/0")
    world.settle()
    assert not world.dispatcher.state.ledger.nodes["a"].quarantined
    assert {a.gpu for a in world.spec("a").allocations} == {"a/1"}
    assert len(uids) == 2


# Silent agents -------------------------------------------------------------------------------------------------------


def test_a_silent_agent_that_speaks_of_anything_is_trusted_again(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.wait(121)
    assert world.on(uid) is None
    assert "has not answered for 121 s" in next(iter(world.dispatcher.state.ledger.closed("a")["a/0"].values()))
    world.change_instaslice(world.instaslices["a"])
    world.settle()
    assert world.on(uid) is None, "nothing was said"
    world.report("a", boot_id="two")
    world.settle()
    assert world.on(uid) == "a"


def test_a_pod_whose_slices_were_made_in_time_is_not_taken_for_overdue(world):
    uid = world.add_pod("1g.5gb")
    world.settle(but="ungate")
    world.now += 121
    world.settle(but="ungate")
    assert world.on(uid) == "a"
    assert not world.dispatcher.state.ledger.closed("a")


def test_a_pod_whose_slices_came_within_five_seconds_is_told_nothing_of_them(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.told.clear()
    world.wait(4)
    assert world.told == set()
    world.mute = set()
    world.settle(but="ungate")
    world.told.clear()
    world.now += 3
    world.settle(but="ungate")
    assert world.told == set()
    assert why(world, uid).message.endswith("of GPU 0 on node a: created, and about to be ungated")


def test_what_the_scheduler_said_last_is_in_the_words_of_an_unbound_pod(world, monkeypatch):
    monkeypatch.setattr(World, "_bindable", lambda *_: None)
    uid = world.add_pod("1g.5gb", owner="ReplicaSet/web")
    world.settle()
    said = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no such volume")
    world._set(msgspec.structs.replace(world.pods[uid], status=PodStatus(phase="Pending", conditions=[said])))
    world.wait(299)
    assert world.pods[uid].status.phase == "Pending"
    world.wait(2)
    assert "not bound to node a within 300 s (no such volume)" in world.pods[uid].status.message


# Words ---------------------------------------------------------------------------------------------------------------


def test_a_pod_that_finds_no_room_is_told_so_when_it_came_and_not_at_every_pass(world):
    world.add_pod("7g.40gb")
    world.settle()
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert uid in world.told
    assert (why(world, uid).reason, why(world, uid).ready) == ("Waiting", False)
    world.told.clear()
    world.wait(30)
    world.add_node("b")
    world.cordon("b")
    world.settle()
    assert world.told == set()


def test_a_pod_that_found_room_at_once_is_told_nothing_of_waiting(world):
    world.add_pod("1g.5gb")
    world.settle(but="agent")
    assert world.told == set()


@pytest.mark.parametrize(
    "sick, more",
    [
        pytest.param(3, "GPU 2 of a (Xid 79)", id="three are named"),
        pytest.param(4, "GPU 2 of a (Xid 79) and 1 more", id="and how many more"),
    ],
)
def test_what_is_out_of_use_is_named_up_to_three(sick, more):
    world = World()
    world.add_node("a", gpus=sick)
    for number in range(sick):
        health(world, f"a/{number}", Health.UNHEALTHY, "Xid 79")
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert why(world, uid).message.endswith(more)


def test_nodes_that_keep_a_pod_out_for_one_reason_are_counted_and_one_alone_is_named(world):
    for name in ("b", "c"):
        world.add_node(name)
        world.cordon(name)
    uid = world.add_pod("1g.5gb", cpu="65")
    world.settle()
    assert (
        why(world, uid).message.partition("pod ")[2].startswith("(a: cpu: 65 wanted, 64 free; 2 nodes: is cordoned);")
    )


def test_cpu_and_memory_of_a_pod_stand_at_its_first_slice(world):
    both = [
        Container(
            name=name,
            resources=ResourceRequirements(
                limits={f"gpu.das.com/mig-{profile}": "1"}, requests={"cpu": "2", "memory": "1Gi"}
            ),
        )
        for name, profile in (("c", "3g.20gb"), ("d", "2g.10gb"))
    ]
    world.add_pod(containers=both)
    world.settle()
    assert [(a.container, a.cpu, a.memory) for a in world.spec("a").allocations] == [
        ("c", 4000, 2 * 2**30),
        ("d", 0, 0),
    ]
