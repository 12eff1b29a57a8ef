"""Pods through the dispatcher, in a world where everything else happens late and in any order."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World

from instaslice.api import instaslice
from instaslice.api.instaslice import Health, State, Truth
from instaslice.controller.words import words
from instaslice.kube.core import Condition, Container, Pod, PodSpec, PodStatus, Resources
from instaslice.kube.meta import ObjectMeta


@pytest.fixture
def world():
    made = World()
    made.add_node("a")
    return made


def why(world, uid):
    return words(world.dispatcher, uid)


def test_a_pod_gets_its_slice_and_gives_it_back(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == [uid]
    assert [a.state for a in world.spec("a").allocations] == [State.UNGATED]
    world.end_pod(uid)
    world.settle()
    assert not world.spec("a").allocations
    assert not world.hardware["a/0"]


def test_seven_fit_and_the_eighth_starts_when_one_ends(world):
    uids = [world.add_pod("1g.5gb") for _ in range(8)]
    world.settle()
    assert world.running() == uids[:7]
    assert why(world, uids[7]).kind == "Waiting"
    world.end_pod(uids[3])
    world.settle()
    assert uids[7] in world.running()


def test_all_slices_of_a_pod_or_none(world):
    world.add_pod("4g.20gb")
    both = world.add_pod("3g.20gb", "2g.10gb")
    world.settle()
    assert both not in world.running()
    assert len(world.spec("a").allocations) == 1


def test_two_containers_with_different_profiles_share_a_node(world):
    uid = world.add_pod("3g.20gb", "2g.10gb")
    world.settle()
    assert world.running() == [uid]
    assert [(a.container, a.profile) for a in world.spec("a").allocations] == [("c0", "3g.20gb"), ("c1", "2g.10gb")]


def test_a_pod_that_a_late_write_let_go_to_another_node_gives_back_what_it_was_promised(world):
    world.add_node("b")
    uid = world.add_pod("1g.5gb")
    world.dispatcher.decide()
    promised = world.on(uid)
    world.let_go(uid, {"a": "b", "b": "a"}[promised], "MIG-gone")
    assert world.on(uid) is None
    assert why(world, uid).kind == "SliceLost"
    world.settle(but="bind")
    assert not world.spec(promised).allocations
    world.now += world.limits.bind
    world.woken = True
    world.settle(but="bind")
    assert world.pods[uid].status.phase == "Failed", "it does not wait for ever"


@pytest.mark.parametrize(
    "free, runs", [pytest.param("500m", True, id="exactly"), pytest.param("499m", False, id="one milli-core less")]
)
def test_cpu_that_fits(free, runs):
    world = World()
    world.add_node("a", cpu=free)
    uid = world.add_pod("1g.5gb", cpu="500m")
    world.settle()
    assert (uid in world.running()) is runs
    if not runs:
        assert "cpu: 500m wanted, 499m free" in why(world, uid).message


def test_cpu_of_pods_that_are_not_bound_yet_is_counted():
    world = World()
    world.add_node("a", cpu="1")
    first, second = world.add_pod("1g.5gb", cpu="600m"), world.add_pod("1g.5gb", cpu="600m")
    world.dispatcher.decide()
    assert (world.on(first), world.on(second)) == ("a", None)


def test_a_pod_with_another_gate_is_left_alone(world):
    uid = world.add_pod("1g.5gb", gates=["kueue.x-k8s.io/admission"])
    world.settle()
    assert world.on(uid) is None
    world.change_pod(uid, scheduling_gates=world.pods[uid].spec.scheduling_gates[:1])
    world.settle()
    assert world.running() == [uid]


def test_priority_then_arrival(world):
    filler = world.add_pod("7g.40gb")
    world.settle()
    low, high = world.add_pod("7g.40gb"), world.add_pod("7g.40gb", priority=10)
    world.settle()
    world.end_pod(filler)
    world.settle()
    assert world.running() == [high]
    world.end_pod(high)
    world.settle()
    assert world.running() == [low]


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
    assert list(world.dispatcher.ledger.books["a"].aside.values()) == ["the hardware refuses"]
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
    serves(world, Truth.FALSE, "no kubelet listens")
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == [running]
    assert why(world, running).ready
    assert why(world, uid).message == "every GPU that has 1g.5gb is closed; out of use: node a (no kubelet listens)"
    serves(world, Truth.TRUE)
    world.settle()
    assert world.running() == [running, uid]


def test_a_pod_that_waited_for_a_kubelet_in_vain_is_told_so(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    serves(world, Truth.FALSE, "no kubelet listens")
    world.wait(121)
    assert not world.running()
    assert "has not answered" not in why(world, uid).message
    assert "no kubelet listens" in why(world, uid).message


def serves(world, status, message=""):
    """What the agent of node a says of pods that would start there."""
    now = world.instaslices["a"]
    ready = instaslice.Condition(instaslice.READY, status, "Any", datetime.now(UTC), message)
    world.change_instaslice(
        msgspec.structs.replace(now, status=msgspec.structs.replace(now.status, conditions=(ready,)))
    )


def test_an_ungated_pod_that_nobody_binds_fails_and_gives_back(world, monkeypatch):
    monkeypatch.setattr(World, "_bindable", lambda *_: False)
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.wait(301)
    assert world.pods[uid].status.message == ("not bound to node a within 300 s (no scheduler has looked at it since)")
    assert not world.spec("a").allocations


@pytest.mark.parametrize(
    "reason, message, told",
    [
        pytest.param("Unschedulable", "volume elsewhere", "volume elsewhere", id="what it lacks"),
        pytest.param(
            "SchedulingGated", "blocked by gates", "no scheduler has looked at it since", id="nobody is there"
        ),
    ],
)
def test_what_the_scheduler_says_is_in_the_message_of_a_pod_that_it_does_not_bind(
    world, monkeypatch, reason, message, told
):
    monkeypatch.setattr(World, "_bindable", lambda *_: False)
    uid = world.add_pod("1g.5gb")
    world.settle()
    said = Condition(type="PodScheduled", status="False", reason=reason, message=message)
    world._set(msgspec.structs.replace(world.pods[uid], status=PodStatus(phase="Pending", conditions=[said])))
    world.wait(301)
    assert f"within 300 s ({told})" in world.pods[uid].status.message


def test_a_pod_waits_where_the_scheduler_still_counts_what_no_gpu_holds_any_more(world):
    """Of a pod that lost its slice, or one that came past the webhook: let go, ours could not be bound."""
    lost = Container(name="c", resources=Resources(requests={"gpu.das.com/mem": "38"}))
    world.dispatcher.pod_changed(None, Pod(ObjectMeta(name="lost", uid="lost"), PodSpec("a", [lost])))
    wants = {"gpu.das.com/mig-1g.5gb": "1", "gpu.das.com/mem": "5"}
    asks = Resources(limits=wants, requests={**wants, "cpu": "1"})
    uid = world.add_pod(containers=[Container(name="c", resources=asks)])
    world.settle()
    assert not world.running()
    assert "gpu.das.com/mem: 5 wanted, 2 free" in why(world, uid).message
    world.dispatcher.pod_changed(Pod(ObjectMeta(name="lost", uid="lost"), PodSpec("a", [lost])), None)
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
    node = world.dispatcher.nodes["a"]
    world.change_node(msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True)))
    world.mute = set()
    world.settle()
    assert not world.spec("a").allocations
    assert "a: is cordoned" in why(world, uid).message
    world.change_node(node)
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
    assert why(world, uid).message == "node a is not ready: the slices there were given up"


def test_a_pod_whose_slices_take_long_is_told_so(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.told.clear()
    world.wait(6)
    assert world.told == {uid}
    assert why(world, uid).kind == "Creating"


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
    assert why(world, uid).kind == "SliceLost"
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
    assert (a.pod.uid, a.state, a.start, a.cpu) == (uid, State.UNGATED, made.start, 100)
    assert a.id != made.id


@pytest.mark.parametrize(
    "resource, quantity, said",
    [
        pytest.param("gpu.das.com/mig-foo", "1", "'gpu.das.com/mig-foo' is not a profile name", id="no profile"),
        pytest.param("gpu.das.com/mig-1g.5gb", "1k", "1k is not a number of slices", id="no number"),
        pytest.param("gpu.das.com/mig-1g.5gb", "9999999999", "not a number of slices up to 128", id="too many"),
    ],
)
def test_a_pod_that_came_past_the_webhook_and_makes_no_sense_is_told_so(world, resource, quantity, said):
    container = Container(name="c", resources=Resources(limits={resource: quantity}))
    strange = world.add_pod(containers=[container])
    world.settle()
    assert world.on(strange) is None
    assert said in why(world, strange).message


def test_a_gpu_that_two_nodes_claim_is_the_first_ones(world):
    thing = world.instaslices["a"]
    world.add_node("b", gpus=0)
    other = msgspec.structs.replace(world.instaslices["b"], status=thing.status)
    world.change_instaslice(other)
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.on(uid) == "a"


def test_a_restart_disturbs_nobody(world):
    uids = [world.add_pod("1g.5gb") for _ in range(8)]
    world.settle()
    before = world.spec("a")
    world.begin()
    world.settle()
    assert world.spec("a") == before
    assert world.running() == uids[:7]


def test_a_large_pod_is_not_passed_for_ever():
    """Small pods come as fast as they end, so that seven slices are never free at once; still the large one runs."""
    world = World(patience=300)
    world.add_node("a", gpus=2)
    small = [world.add_pod("1g.5gb") for _ in range(14)]
    world.settle()
    large = world.add_pod("7g.40gb")
    for _ in range(60):
        oldest = small.pop(0)
        small.append(world.add_pod("1g.5gb"))
        world.wait(10)
        if oldest in world.running():
            world.end_pod(oldest)
        world.settle()
        if large in world.running():
            break
    assert large in world.running()
    assert world.now >= 300, "before its patience was over it let others pass"
    assert world.dispatcher.patience.kept is None


def test_room_is_kept_for_the_first_that_any_node_could_hold():
    """Before it in line stands one that waits for a node that is not there."""
    world = World(patience=300)
    world.add_node("a", gpus=2)
    small = [world.add_pod("1g.5gb") for _ in range(14)]
    world.settle()
    world.add_pod("7g.40gb", node_selector={"zone": "nowhere"})
    large = world.add_pod("7g.40gb")
    world.wait(350)
    assert world.dispatcher.patience.kept.uid == large
    for uid in small[:14]:
        world.end_pod(uid)
        world.add_pod("1g.5gb")
        world.settle()
    assert large in world.running()


def test_a_waiting_pod_whose_selector_is_narrowed_goes_where_it_may(world):
    filler = world.add_pod("7g.40gb")
    world.settle()
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.change_pod(uid, node_selector={"kubernetes.io/hostname": "b"})
    world.end_pod(filler)
    world.settle()
    assert world.on(uid) is None
    world.add_node("b")
    world.settle()
    assert world.on(uid) == "b"


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "pods", "end", "delete", "restart", "stop", "late", "some", "break", "mend", "wait"]),
        st.integers(0, 99),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(DEEDS, st.integers(0, 1000))
def test_nothing_is_double_booked_or_lost_whatever_happens(deeds, seed):
    """Pods come and go, hardware refuses, the controller is started anew at any point between two deeds, and
    what one before it was about to write may still arrive."""
    world = World(seed, patience=50, create=1000)
    world.add_node("a", gpus=2)
    world.add_node("b", cpu="300m")
    profiles = ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    for kind, number in deeds:
        alive = sorted(uid for uid, pod in world.pods.items() if not pod.ended)
        match kind:
            case "pod":
                world.add_pod(profiles[number % 6], priority=number % 3)
            case "pods":
                world.add_pod(profiles[number % 6], profiles[number % 5])
            case "end" if world.running():
                world.end_pod(world.running()[number % len(world.running())])
            case "delete" if alive:
                world.delete_pod(alive[number % len(alive)])
            case "restart":
                world.begin()
            case "stop":
                world.stop()
            case "late":
                world.arrive()
            case "some":
                for _ in range(number % 10):
                    if options := world.deeds():
                        world.do(world.rng.choice(options))
            case "break":
                world.broken.add(("a/0", number % 8))
            case "mend":
                world.broken.clear()
            case "wait":
                world.now += number
                world.woken = True
        world.check()
    world.broken.clear()
    for _ in range(200):
        world.wait(1000)
        for uid in world.running():
            world.end_pod(uid)
        world.settle()
        if all(pod.ended for pod in world.pods.values()):
            break
    assert all(pod.ended for pod in world.pods.values()), "every pod that could run has run"
    world.wait(1000)
    assert not any(thing.spec.allocations for thing in world.instaslices.values())
    assert not any(world.hardware.values())
    fleet = world.dispatcher.ledger.fleet
    assert not any(fleet.held(gpu) for gpu in fleet.names), "no slot is lost"
