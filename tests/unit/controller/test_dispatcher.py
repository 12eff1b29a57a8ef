"""Pods through the dispatcher, in a world where everything else happens late and in any order."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World, why

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, AllocationState
from instaslice.kube.core import (
    NODES,
    PODS,
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    ResourceRequirements,
)


def test_a_pod_gets_its_slice_and_gives_it_back(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.running() == [uid]
    assert [a.state for a in world.spec("a").allocations] == [AllocationState.UNGATED]
    world.end_pod(uid)
    world.settle()
    assert not world.spec("a").allocations
    assert not world.hardware["a/0"]


def test_seven_fit_and_the_eighth_starts_when_one_ends(world):
    uids = [world.add_pod("1g.5gb") for _ in range(8)]
    world.settle()
    assert world.running() == uids[:7]
    assert why(world, uids[7]).reason == "Waiting"
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


@pytest.mark.parametrize("annotated", [True, pytest.param(False, id="let go by an older version, which wrote no node")])
def test_a_pod_whose_affinity_names_two_nodes_keeps_the_slices_on_the_one_that_it_was_sent_to(world, annotated):
    """The pin stands in both terms, beside the name that was there."""
    world.add_node("b")
    world.cordon("a")
    uid = world.add_pod("1g.5gb", affinity=names_nodes(["a"], ["b"]))
    world.settle(but="bind")
    world.change_pod(uid, affinity=names_nodes(["a", "b"], ["b", "b"]))
    if not annotated:
        meta = world.pods[uid].metadata
        notes = {name: value for name, value in meta.annotations.items() if name != names.NODE}
        meta = msgspec.structs.replace(meta, annotations=notes)
        world._set(msgspec.structs.replace(world.pods[uid], metadata=meta))
    world.settle()
    assert (world.running(), world.on(uid)) == ([uid], "b")
    assert [each.state for each in world.spec("b").allocations] == [AllocationState.UNGATED]


def names_nodes(*terms):
    """A required affinity of terms that each name these nodes, one after the other."""
    written = [
        NodeSelectorTerm(match_fields=[Requirement(key="metadata.name", operator="In", values=[name]) for name in term])
        for term in terms
    ]
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=written)))


def test_a_pod_that_a_late_write_let_go_to_another_node_gives_back_what_it_was_promised(world):
    world.add_node("b")
    uid = world.add_pod("1g.5gb")
    world.dispatcher.decide()
    promised = world.on(uid)
    world.let_go(uid, {"a": "b", "b": "a"}[promised], "MIG-gone")
    assert world.on(uid) is None
    assert why(world, uid).reason == "SliceLost"
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


@pytest.mark.parametrize(
    "resource, quantity, said",
    [
        pytest.param("gpu.das.com/mig-foo", "1", "'gpu.das.com/mig-foo' is not a profile name", id="no profile"),
        pytest.param("gpu.das.com/mig-1g.5gb", "1k", "1k is not a number of slices", id="no number"),
        pytest.param("gpu.das.com/mig-1g.5gb", "9999999999", "not a number of slices up to 128", id="too many"),
    ],
)
def test_a_pod_that_came_past_the_webhook_and_makes_no_sense_is_told_so(world, resource, quantity, said):
    container = Container(name="c", resources=ResourceRequirements(limits={resource: quantity}))
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
    assert world.dispatcher.longest_waiting.reserved is None


def test_room_is_kept_for_the_first_that_any_node_could_hold():
    """Before it in line stands one that waits for a node that is not there."""
    world = World(patience=300)
    world.add_node("a", gpus=2)
    small = [world.add_pod("1g.5gb") for _ in range(14)]
    world.settle()
    world.add_pod("7g.40gb", node_selector={"zone": "nowhere"})
    large = world.add_pod("7g.40gb")
    world.wait(350)
    assert world.dispatcher.longest_waiting.reserved.uid == large
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
        st.sampled_from(
            [
                "pod",
                "pods",
                "end",
                "delete",
                "restart",
                "stop",
                "late",
                "some",
                "break",
                "mend",
                "wait",
                "lost",
                "refused",
            ]
        ),
        st.integers(0, 99),
    ),
    max_size=40,
)

WRITES = [("instaslices",), ("pods",), ("pods", "status")]
REFUSALS = [403, 409, 422, 500]


@settings(max_examples=150, deadline=None)
@given(DEEDS, st.integers(0, 1000))
def test_nothing_is_double_booked_or_lost_whatever_happens(deeds, seed):
    """Pods come and go, hardware refuses, the API server too, its answers are lost and its watches lag, the controller
    is started anew at any point between two deeds, and what one before it was about to write may still arrive."""
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
            case "lost":
                world.server.lose_answer("PATCH", *WRITES[number % 3])
            case "lag":
                world.lag([NODES, INSTASLICES, PODS][number % 3])
            case "refused":
                world.server.refuse("PATCH", WRITES[number % 3][0], REFUSALS[number % 4], *WRITES[number % 3][1:])
        world.check()
    world.broken.clear()
    world.server.forget_mishaps()
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
    fleet = world.dispatcher.state.ledger.fleet
    assert not any(fleet.held(gpu) for gpu in fleet.names), "no slot is lost"
