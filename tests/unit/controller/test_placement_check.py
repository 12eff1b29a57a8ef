"""What Kueue's workloads are answered: Ready with places held for their pods, or Retry with the reason."""

import logging

import msgspec
import pytest
from kueue_world import KueueWorld
from world import why

from instaslice.api import names
from instaslice.api.instaslice import Health
from instaslice.controller.placement_check import decisions
from instaslice.controller.placement_check.retries import retry_seconds, waited_seconds
from instaslice.geometry import models
from instaslice.kube.core import (
    Affinity,
    ClaimSource,
    Container,
    ContainerPort,
    LabelSelector,
    NodeSpec,
    PodAffinity,
    PodAffinityTerm,
    ResourceRequirements,
    Taint,
    Toleration,
    Volume,
)
from instaslice.kube.meta import ObjectMeta, OwnerReference
from instaslice.kueue.objects import (
    ADMISSION_CHECKS,
    ADMISSION_GATE,
    FINISHED,
    RESOURCE_FLAVORS,
    ROLE_HASH,
    AdmissionCheckState,
    KueueWorkload,
    ReclaimablePod,
    ResourceFlavor,
    ResourceFlavorSpec,
)


@pytest.fixture
def world():
    """With one node of one A100."""
    made = KueueWorld()
    made.add_node("a")
    made.settle()
    return made


def fragmented(world):
    """The GPU of node a has four free memory slices, and none of two that are neighbours."""
    filling = [world.add_pod("1g.5gb") for _ in range(7)]
    world.settle()
    starts = {world.spec("a").allocations[i].start: world.spec("a").allocations[i].pod.uid for i in range(7)}
    kept = [uid for start, uid in starts.items() if start % 2]
    for uid in filling:
        if uid not in kept:
            world.end_pod(uid)
    world.settle()
    return kept


# Ready ----------------------------------------------------------------------------------------------------------------


def test_a_workload_that_fits_is_ready_and_its_place_is_held(world):
    world.queue("train", "3g.20gb")
    world.settle()
    assert world.state("train") == "Ready"
    assert world.answer("train").message == "places for 1 pod are held for 60 s on a"
    assert world.held() == ["3g.20gb"]
    (update,) = world.answer("train").pod_set_updates
    assert (update.name, update.annotations) == ("main", {names.HELD_FOR: "workload-train/main"})


def test_its_pod_gets_the_place_that_no_other_got(world):
    world.queue("train", "7g.40gb")
    world.settle()
    other = world.add_pod("1g.5gb")
    world.settle()
    assert not world.on(other)
    assert "held for pods that are about to come: 1 place of workload team/train" in why(world, other).message
    world.admit("train")
    mine = world.pod_of("train", "7g.40gb")
    world.settle()
    assert (world.running(), world.held()) == ([mine], [])


def test_a_pod_of_the_same_shape_that_was_refused_does_not_keep_it_waiting(world):
    world.queue("train", "7g.40gb")
    world.settle()
    stranger = world.add_pod("7g.40gb")
    world.settle()
    mine = world.pod_of("train", "7g.40gb")
    world.settle()
    assert world.running() == [mine]
    assert not world.on(stranger)


def test_memory_alone_is_held_as_the_slice_that_wastes_least(world):
    world.queue("train", **{names.MEMORY: "8"})
    world.settle()
    assert (world.state("train"), world.held()) == ("Ready", ["1g.10gb"])
    limits = {names.MEMORY: "8", names.ANY_SLICE: "1"}
    mine = world.pod_of("train", containers=[container(**limits)])
    world.settle()
    assert (world.running(), world.held()) == ([mine], [])
    assert [each.profile for each in world.spec("a").allocations] == ["1g.10gb"]


def test_it_keeps_that_slice_when_a_node_comes_back_where_a_tighter_one_is_taken(world):
    world.add_pod("7g.40gb")
    world.settle()
    world.cordon("a")
    world.add_node("b", model=models.named("H100-96GB"))
    world.queue("train", **{names.MEMORY: "8"})
    world.settle()
    assert world.held() == ["1g.12gb"]
    world.cordon("a", False)
    limits = {names.MEMORY: "8", names.ANY_SLICE: "1"}
    mine = world.pod_of("train", containers=[container(**limits)])
    world.settle()
    assert (world.on(mine), world.held()) == ("b", [])


def plain(world, **annotations):
    """A plain pod, as Kueue's gate keeps it, and whose workload names it as its owner and has nothing else of it."""
    limits = {names.MEMORY: "8", names.ANY_SLICE: "1"}
    uid = world.add_pod(containers=[container(**limits)], gates=[ADMISSION_GATE])
    meta = world.pods[uid].metadata
    meta = msgspec.structs.replace(meta, annotations={**meta.annotations, **annotations})
    world._set(msgspec.structs.replace(world.pods[uid], metadata=meta))
    return OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=uid)


def test_a_plain_pod_says_itself_which_slice_is_right_for_it(world):
    owner = plain(world, **{names.COMPUTE_SLICES: "4"})
    world.queue("train", **{names.MEMORY: "8"}, owners=[owner])
    world.settle()
    assert (world.state("train"), world.held()) == ("Ready", ["4g.20gb"])


def test_of_a_group_each_role_says_it_for_itself(world):
    few, many = (
        plain(world, **{names.COMPUTE_SLICES: compute, ROLE_HASH: role})
        for role, compute in (("few", "1"), ("many", "4"))
    )
    world.queue("train", **{names.MEMORY: "8"}, owners=[few, many], pod_set="many")
    world.settle()
    assert (world.state("train"), world.held()) == ("Ready", ["4g.20gb"])


def test_one_without_slices_is_ready_at_once_and_holds_nothing(world):
    world.queue("web", cpu="1")
    world.settle()
    assert (world.state("web"), world.answer("web").message, world.held()) == ("Ready", "asks for no slices", [])


def test_the_check_of_another_controller_is_left_alone(world):
    world.queue("train", "3g.20gb", check="provisioning")
    world.settle()
    assert (world.state("train"), world.held()) == ("Pending", [])


def test_pods_that_have_ended_need_no_place(world):
    world.queue("train", "3g.20gb", count=3)
    workload = world.workloads["train"]
    status = msgspec.structs.replace(workload.status, reclaimable_pods=[ReclaimablePod(name="main", count=1)])
    world.put(msgspec.structs.replace(workload, status=status))
    world.settle()
    assert world.held() == ["3g.20gb"] * 2


def test_as_many_are_held_as_kueue_admits(world):
    world.queue("train", "3g.20gb", count=3)
    workload = world.workloads["train"]
    (assigned,) = workload.status.admission.pod_set_assignments
    fewer = [msgspec.structs.replace(assigned, count=2)]
    admission = msgspec.structs.replace(workload.status.admission, pod_set_assignments=fewer)
    world.put(msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, admission=admission)))
    world.settle()
    assert world.held() == ["3g.20gb"] * 2


def test_pods_that_avoid_each_other_get_places_apart(world):
    apart = LabelSelector(match_labels={"app": "train"})
    anti = PodAffinity(required=[PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=apart)])
    world.add_node("b")
    world.queue("train", "1g.5gb", count=2, labels={"app": "train"}, affinity=Affinity(pod_anti_affinity=anti))
    world.settle()
    assert world.answer("train").message == "places for 2 pods are held for 60 s on a, b"


def test_its_places_are_where_its_flavor_sends_the_pods(world):
    world.add_node("b")
    world.label("b", pool="gold")
    taints = [Taint(key="x", effect="NoSchedule")]
    world.change_node(msgspec.structs.replace(world.nodes["b"], spec=NodeSpec(taints=taints)))
    spec = ResourceFlavorSpec(node_labels={"pool": "gold"}, tolerations=[Toleration(key="x", operator="Exists")])
    world.server.put(RESOURCE_FLAVORS, ResourceFlavor(metadata=ObjectMeta(name="gold"), spec=spec))
    world.queue("train", "1g.5gb", count=2)
    workload = world.workloads["train"]
    (assigned,) = workload.status.admission.pod_set_assignments
    gold = msgspec.structs.replace(assigned, flavors={names.MEMORY: "gold", "cpu": "gold"})
    admission = msgspec.structs.replace(workload.status.admission, pod_set_assignments=[gold])
    world.put(msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, admission=admission)))
    world.settle()
    assert world.answer("train").message == "places for 2 pods are held for 60 s on b"


# Retry ----------------------------------------------------------------------------------------------------------------


def test_memory_that_is_free_in_the_wrong_places_is_not_enough(world):
    kept = fragmented(world)
    world.queue("train", "3g.20gb")
    world.settle()
    why_not, seconds = world.refusal("train")
    assert "1 GPU holds enough free memory for 3g.20gb but no legal start" in why_not
    assert seconds == 5
    # Meanwhile smaller ones pass; and once the slot is there, Kueue's next attempt succeeds.
    world.queue("small", "1g.5gb")
    world.settle()
    assert world.state("small") == "Ready"
    world.delete("small")
    for uid in kept:
        world.end_pod(uid)
    world.settle()
    world.delete("train")
    world.queue("train", "3g.20gb", retries=1)
    world.settle()
    assert world.state("train") == "Ready"


def test_all_pods_are_placed_or_none(world):
    world.queue("train", "3g.20gb", count=3)
    world.settle()
    assert world.held() == []
    why_not, _ = world.refusal("train")
    assert why_not.startswith("2 of its 3 pods would fit now, all at once do not: ")
    assert "held for pods" not in why_not, "what was held for itself is no obstacle"


@pytest.mark.parametrize(
    "retries, seconds",
    [
        pytest.param(None, 5, id="the first"),
        pytest.param(1, 10, id="the second"),
        pytest.param(4, 80, id="the fifth"),
    ],
)
def test_each_retry_waits_longer(world, retries, seconds):
    world.add_pod("7g.40gb")
    world.settle()
    world.queue("train", "3g.20gb", retries=retries)
    world.settle()
    assert world.refusal("train")[1] == seconds


def test_no_delay_is_longer_than_five_minutes_and_the_sum_is_what_has_been_waited():
    assert [retry_seconds(each) for each in (0, 5, 6, 7, 10_000)] == [5, 160, 300, 300, 300]
    assert [waited_seconds(each) for each in (0, 1, 3, 7)] == [0, 5, 35, 615]
    assert waited_seconds(10_000) == waited_seconds(9_999) + 300


@pytest.mark.parametrize(
    "profile, message",
    [
        pytest.param("1g.12gb", "does not exist on any node", id="a profile of other GPUs"),
        pytest.param("9g.99gb", "pod set main: container c0: nvidia.com/mig-9g.99gb: no known GPU", id="of none"),
    ],
)
def test_what_no_node_could_hold_comes_back_seldom_and_is_never_rejected(world, profile, message):
    world.queue("train", profile)
    world.settle()
    why_not, seconds = world.refusal("train")
    assert message in why_not
    assert seconds == 300


def test_a_node_that_joins_helps_it(world):
    world.queue("train", "1g.12gb")
    world.settle()
    world.add_node("h", model=models.named("H100-96GB"))
    world.delete("train")
    world.queue("train", "1g.12gb", retries=1)
    world.settle()
    assert world.state("train") == "Ready"


def test_its_quota_is_free_while_it_waits_and_a_new_process_brings_it_back_at_once(world):
    world.add_pod("7g.40gb")
    world.settle()
    world.queue("train", "3g.20gb")
    world.settle(but="kueue")
    assert (world.state("train"), world.answer("train").requeue_after_seconds) == ("Retry", 0), "evicted without delay"
    world.settle()
    assert (world.state("train"), world.refusal("train")[1]) == ("Pending", 5)
    world.begin()
    world.settle()
    assert (world.state("train"), world.refusal("train")[1]) == ("Pending", 5)


def test_a_delay_that_kueue_notes_when_it_is_over_is_not_repeated(world):
    """Or nothing is ever tried again while Kueue has more to do than in the shortest delay."""
    world.add_pod("7g.40gb")
    world.settle()
    world.queue("train", "3g.20gb")
    world.settle(but="kueue")
    world._do_kueue("train")
    world.settle(but="kueue")
    noted = world._kueue_work("train")
    world.now += 6
    world._change("train", requeue_state=noted)
    world.settle()
    assert (world.state("train"), world.answers.decisions) == ("Pending", {})


def test_nor_is_one_that_is_over_when_we_write_that_it_is_noted(world):
    world.add_pod("7g.40gb")
    world.settle()
    world.queue("train", "3g.20gb")
    world.settle(but="kueue")
    world._do_kueue("train")
    world.settle(but="kueue")
    noted = world._kueue_work("train")
    world._do_kueue("train")
    world.settle(but="answer")
    world.now += 6
    world.settle()
    assert (world.state("train"), world.workloads["train"].status.requeue_state) == ("Pending", noted)


# The end of a hold ----------------------------------------------------------------------------------------------------


def test_places_for_pods_that_do_not_come_are_for_others_after_a_minute(world, caplog):
    world.queue("train", "7g.40gb")
    world.settle()
    world.admit("train")
    other = world.add_pod("1g.5gb")
    world.wait(59)
    assert not world.on(other)
    with caplog.at_level(logging.INFO):
        world.wait(2)
    assert world.running() == [other]
    assert "1 of its pods did not come within 60 s" in caplog.text
    late = world.pod_of("train", "7g.40gb")
    world.settle()
    assert not world.on(late)
    world.end_pod(other)
    world.settle()
    assert world.on(late)


def test_one_that_is_not_admitted_meanwhile_releases_its_quota(world):
    world.queue("train", "7g.40gb")
    world.settle()
    world.wait(61)
    assert world.held() == []
    assert "it was not admitted: see its other checks" in world.refusal("train")[0]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(KueueWorld.evict, id="evicted"),
        pytest.param(KueueWorld.delete, id="deleted"),
        pytest.param(lambda world, name: world.set_condition(name, FINISHED), id="finished"),
    ],
)
def test_a_workload_that_ends_holds_nothing(world, end):
    world.queue("train", "7g.40gb")
    world.settle()
    world.admit("train")
    other = world.add_pod("7g.40gb")
    world.settle()
    end(world, "train")
    world.settle()
    assert world.running() == [other]


def test_a_place_that_cannot_be_used_any_more_is_given_up_for_another(world):
    world.queue("train", "7g.40gb")
    world.settle()
    world.add_node("b")
    world.cordon("a")
    mine = world.pod_of("train", "7g.40gb")
    world._do_decide("")
    assert (world.on(mine), world.held()) == ("b", [])
    world.settle()


def unhealthy(world):
    (gpu,) = world.instaslices["a"].status.gpus
    world.report("a", gpus=(msgspec.structs.replace(gpu, health=Health.UNHEALTHY),))


def out_of_cpu(world):
    """By a pod without slices that somebody bound there."""
    uid = world.add_pod(cpu="63950m", containers=[container(cpu="63950m")])
    world.change_pod(uid, node_name="a")


def port_in_use(world):
    uid = world.add_pod(containers=[container(ports=[ContainerPort(host_port=80)])])
    world.change_pod(uid, node_name="a")


def container(cpu="1m", ports=None, **limits):
    resources = ResourceRequirements(requests={"cpu": cpu}, limits=limits)
    return Container(name="main", resources=resources, ports=ports)


@pytest.mark.parametrize("happens", [unhealthy, out_of_cpu, port_in_use], ids=lambda each: each.__name__)
def test_whatever_has_become_of_its_node(world, happens):
    world.queue("train", "7g.40gb")
    world.settle()
    world.add_node("b")
    happens(world)
    limits = {f"{names.RESOURCE}7g.40gb": "1"}
    mine = world.pod_of("train", containers=[container("1", [ContainerPort(host_port=80)], **limits)])
    world._do_decide("")
    assert (world.on(mine), world.held()) == ("b", [])


def test_a_pod_that_waits_for_its_claim_keeps_its_place(world):
    world.queue("train", "7g.40gb")
    world.settle()
    claim = Volume(name="data", persistent_volume_claim=ClaimSource(claim_name="none"))
    mine = world.pod_of("train", "7g.40gb", volumes=[claim])
    world.settle()
    assert not world.on(mine)
    assert world.held() == ["7g.40gb"]


def test_a_gpu_that_goes_and_comes_back_is_given_to_nobody_twice(world):
    world.queue("train", "7g.40gb")
    world.settle()
    gpus = world.instaslices["a"].status.gpus
    world.report("a", gpus=())
    world.settle()
    assert world.held() == []
    world.report("a", gpus=gpus)
    other = world.add_pod("7g.40gb")
    world.settle()
    assert world.running() == [other]
    world.evict("train")
    world.settle()
    waits = world.add_pod("7g.40gb")
    world.settle()
    assert not world.on(waits), "what was held there before was not released for the other's"


def test_nobody_takes_the_places_of_another_namespace(world):
    world.queue("train", "7g.40gb")
    world.settle()
    thief = world.pod_of("train", "7g.40gb", namespace="other")
    world.settle()
    assert not world.on(thief)
    assert world.held() == ["7g.40gb"]


def test_nor_does_a_pod_of_another_shape(world):
    world.queue("train", "7g.40gb")
    world.settle()
    odd = world.pod_of("train", "1g.5gb")
    world.settle()
    assert [each.profile for each in world.spec("a").allocations] == ["1g.5gb"]
    assert (world.on(odd), world.held()) == ("a", [])


# Restarts -------------------------------------------------------------------------------------------------------------


def test_a_new_process_holds_what_is_still_to_come(world):
    world.queue("train", "3g.20gb", count=2)
    world.settle()
    world.admit("train")
    first = world.pod_of("train", "3g.20gb")
    world.settle()
    world.now += 30
    world.begin()
    assert world.held() == ["3g.20gb"], "before anything is decided"
    stranger = world.add_pod("3g.20gb")
    world.settle()
    second = world.pod_of("train", "3g.20gb")
    world.settle()
    assert sorted(world.running()) == sorted([first, second])
    assert not world.on(stranger)


def test_it_holds_it_no_longer_than_the_one_before_would_have(world):
    world.queue("train", "7g.40gb")
    world.settle()
    world.admit("train")
    world.now += 50
    world.begin()
    other = world.add_pod("1g.5gb")
    world.wait(5)
    assert not world.on(other)
    world.wait(6)
    assert world.running() == [other]


def test_what_came_too_late_before_it_started_is_not_held(world):
    world.queue("train", "7g.40gb")
    world.settle()
    world.admit("train")
    with world.unattended():
        world.now += 61
    assert world.held() == []


def test_nor_is_it_admitted_without_places_by_a_check_that_comes_later_still(world):
    world.queue("train", "7g.40gb")
    world.settle()
    with world.unattended():
        world.now += 61
    world.settle()
    assert "it was not admitted: see its other checks" in world.refusal("train")[0]


def test_a_decision_that_was_never_written_is_made_again(world):
    world.queue("train", "7g.40gb")
    world.settle(but="answer")
    assert (world.state("train"), world.held()) == ("Pending", ["7g.40gb"])
    world.begin()
    assert world.held() == []
    world.settle()
    assert (world.state("train"), world.held()) == ("Ready", ["7g.40gb"])


def test_an_answer_to_an_evicted_workload_is_not_written(world):
    world.queue("train", "7g.40gb")
    world.settle(but="answer")
    world.server.meanwhile("PATCH", "workloads", lambda: world.evict("train"), "status")
    world.settle()
    assert (world.state("train"), world.held()) == ("Pending", [])


def test_it_counts_the_pods_that_have_come(world):
    world.queue("train", "1g.5gb", count=2)
    world.settle()
    world.admit("train")
    world.pod_of("train", "1g.5gb")
    world.settle()
    world.begin()
    assert world.held() == ["1g.5gb"]


def test_pods_of_another_namespace_are_not_taken_for_those_that_have_come(world):
    world.queue("train", "3g.20gb")
    world.settle()
    world.admit("train")
    world.pod_of("train", "3g.20gb", namespace="other")
    world.settle()
    world.begin()
    assert world.held() == ["3g.20gb"]


def test_nor_are_those_of_an_earlier_admission(world):
    world.add_node("b")
    world.queue("train", "7g.40gb")
    world.settle()
    world.admit("train")
    earlier = world.pod_of("train", "7g.40gb")
    world.settle()
    world.evict("train")
    world.mark_pod(earlier)
    world._change("train", admission_checks=[AdmissionCheckState(name="placement", state="Pending")])
    world._change("train", conditions=[world.condition("QuotaReserved")])
    world.settle()
    assert (world.state("train"), world.held()) == ("Ready", ["7g.40gb"])
    world.begin()
    assert world.held() == ["7g.40gb"]


def test_where_room_has_gone_the_first_that_was_admitted_has_it(world):
    world.add_node("b")
    for name in ("zebra", "ant"):
        world.queue(name, "7g.40gb")
        world.settle()
        world.now += 2
    with world.unattended():
        world.remove_node("b")
        world.remove_instaslice("b")
    (held,) = world.dispatcher.state.ledger.held
    assert held.owner == "workload team/zebra"


def test_a_retry_that_was_not_written_yet_is_not_forgotten(world):
    world.queue("train", "7g.40gb")
    world.settle()
    world.now += 61
    world.settle(but="answer")
    world.set_condition("train", "PodsReady")
    world.settle()
    assert "it was not admitted" in world.refusal("train")[0]


def test_one_that_is_preempted_later_is_not_delayed_by_us(world):
    occupant = world.add_pod("7g.40gb")
    world.settle()
    world.queue("train", "7g.40gb")
    world.settle()
    assert world.refusal("train")
    world.end_pod(occupant)
    world.settle()
    world.queue("train", "7g.40gb", retries=1)
    world.settle()
    assert world.state("train") == "Ready"
    world.evict("train")
    world._change("train", admission_checks=[AdmissionCheckState(name="placement", state="Pending")])
    world.settle()
    assert world.answer("train").requeue_after_seconds is None


# Fairness -------------------------------------------------------------------------------------------------------------


def test_one_that_was_refused_for_too_long_waits_as_a_pod(world):
    occupant = world.add_pod("1g.5gb")
    world.settle()
    world.queue("large", "7g.40gb", retries=7)
    world.settle()
    assert (world.state("large"), world.held()) == ("Ready", [])
    assert "refused for longer than 300 s: its pods wait in the queue of InstaSlice" in world.answer("large").message
    world.admit("large")
    mine = world.pod_of("large", "7g.40gb")
    world.wait(301)
    world.queue("small", "1g.5gb")
    world.settle()
    assert "reserved for a pod that has waited longer" in world.refusal("small")[0], (
        "the GPU is reserved for the pod that has waited too long"
    )
    world.end_pod(occupant)
    world.settle()
    assert world.running() == [mine]


def test_only_one_at_a_time_waits_so(world):
    occupant = world.add_pod("7g.40gb")
    world.settle()
    world.queue("first", "7g.40gb", retries=7)
    world.settle()
    world.queue("second", "7g.40gb", retries=7)
    world.settle()
    assert world.state("first") == "Ready"
    assert world.refusal("second")
    world.admit("first")
    world.pod_of("first", "7g.40gb")
    world.end_pod(occupant)
    world.settle()
    world.delete("second")
    world.queue("second", "7g.40gb", retries=8)
    world.settle()
    assert world.state("second") == "Ready"


def test_but_one_of_each_namespace(world):
    """Those of a tenant with thousands are tried all the time: one of them would always be the next."""
    world.add_pod("7g.40gb")
    world.settle()
    for number in range(3):
        world.queue(f"many-{number}", "7g.40gb", namespace="many", retries=7)
    world.settle()
    world.queue("mine", "7g.40gb", retries=7)
    world.settle()
    assert [world.state(f"many-{number}") for number in range(3)].count("Ready") == 1
    assert world.state("mine") == "Ready"


def test_a_tenant_with_thousands_does_not_keep_others_waiting(world):
    world.add_pod("4g.20gb")
    world.settle()
    for number in range(300):
        world.queue(f"many-{number}", "7g.40gb", namespace="many")
    world.now += 1
    world.queue("mine", "1g.5gb", namespace="other")
    world._do_decide("")
    order = list(world.answers.decisions)
    assert order.index("workload-mine") < 100, order.index("workload-mine")
    assert len(order) == 301


def test_a_large_workload_is_placed_in_steps_and_pods_come_in_between(world, monkeypatch):
    monkeypatch.setattr(decisions, "STEP_SECONDS", -1)  # each step ends after one pod
    world.queue("train", "1g.5gb", count=6)
    world._do_decide("")
    assert (world.held(), world.answers.due) == (["1g.5gb"], world.now)
    pod = world.add_pod("1g.5gb")
    while world.answers.decisions == {}:
        world._do_decide("")
    assert world.on(pod)
    assert world.held() == ["1g.5gb"] * 6


def test_pods_that_wait_come_before_workloads(world, monkeypatch):
    world.queue("train", "1g.5gb")
    with monkeypatch.context() as patched:
        patched.setattr(type(world.dispatcher), "pass_complete", False)  # interrupted, as thousands of them wait
        world._do_decide("")
        assert (world.held(), world.answers.due) == ([], world.now)
    world._do_decide("")
    assert world.held() == ["1g.5gb"]


def test_pods_that_are_never_all_tried_delay_workloads_by_a_second_and_no_more(world, monkeypatch):
    """Room may become free more often than the pods of one tenant can be tried."""
    world.queue("train", "1g.5gb")
    monkeypatch.setattr(type(world.dispatcher), "pass_complete", False)
    world._do_decide("")
    world.now += 0.9
    world._do_decide("")
    assert world.held() == []
    world.now += 0.2
    world._do_decide("")
    assert world.held() == ["1g.5gb"]
    world.queue("more", "1g.5gb")
    world._do_decide("")
    assert world.held() == ["1g.5gb"], "then it is the turn of the pods again"


def test_one_that_is_evicted_while_it_is_placed_holds_nothing(world, monkeypatch):
    monkeypatch.setattr(decisions, "STEP_SECONDS", -1)
    world.queue("train", "1g.5gb", count=6)
    world._do_decide("")
    world.evict("train")
    assert world.held() == []
    world._do_decide("")
    assert (world.held(), world.answers.decisions) == ([], {})


def test_nothing_of_an_interrupted_attempt_is_remembered(world, monkeypatch):
    monkeypatch.setattr(decisions, "STEP_SECONDS", -1)
    world.queue("train", "1g.5gb", count=6)
    world._do_decide("")
    world.delete("train")
    assert not world.dispatcher.placer._requests


# Mishaps --------------------------------------------------------------------------------------------------------------


def test_a_workload_that_makes_no_sense_costs_itself_alone(world, caplog):
    world.queue("odd", **{"nvidia.com/mig-1g.5gb": "much"})
    world.queue("train", "3g.20gb")
    while deeds := world.deeds():
        kind, what = deeds[0]
        getattr(world, f"_do_{kind}")(what)
    assert world.state("train") == "Ready"
    why_not, seconds = world.refusal("odd")
    assert "InstaSlice cannot handle this workload" in why_not
    assert seconds == 300
    assert "workload workload-odd is set aside" in caplog.text


def test_and_is_answered_once_it_makes_sense(world):
    world.queue("odd", **{"nvidia.com/mig-1g.5gb": "much"})
    while deeds := world.deeds():
        kind, what = deeds[0]
        getattr(world, f"_do_{kind}")(what)
    world.dispatcher.state.quarantine.failures = 0  # of which `settle` wants none
    world.queue("odd", "1g.5gb")
    world.settle()
    assert world.state("odd") == "Ready"


def test_a_check_that_is_deleted_is_answered_no_more(world):
    (check,) = world.server.all(ADMISSION_CHECKS)
    world.server.drop(ADMISSION_CHECKS, check)
    world.queue("train", "1g.5gb")
    world.settle()
    assert (world.state("train"), world.held()) == ("Pending", [])


def test_a_refused_gang_holds_nothing_even_before_that_is_written(world):
    world.queue("train", "3g.20gb", count=3)
    world.settle(but="answer")
    assert world.held() == []


def test_the_more_important_comes_first(world):
    for number, priority in enumerate((0, 5)):
        world.queue(f"train-{priority}", "7g.40gb", priority=priority)
        world.now += number
    world._do_decide("")
    world.settle()
    assert world.state("train-5") == "Ready"
    assert world.refusal("train-0")


def test_without_pod_sets_it_asks_for_nothing(world):
    world.queue("train", "3g.20gb")
    workload = world.workloads["train"]
    world.put(KueueWorkload(metadata=workload.metadata, status=workload.status))
    world.settle()
    assert world.state("train") == "Ready"
