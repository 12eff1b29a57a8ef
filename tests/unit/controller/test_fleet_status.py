"""What `instaslice status` says of GPUs, nodes and queue."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from mutated_objects import clusters
from small_worlds import NOW, allocation, instaslice, made, node, pod, uuid

from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    AllocationState,
    ConditionStatus,
    GpuStatus,
    Health,
    InstasliceCondition,
    PreparedSlice,
    SliceState,
)
from instaslice.api.names import GATE
from instaslice.api.snapshot import ClusterSnapshot, UnreadObject
from instaslice.controller.explanation import Stage
from instaslice.controller.fleet_status import fleet_status
from instaslice.controller.held_slots import SlotState
from instaslice.geometry import models
from instaslice.placement import policies


def status(instaslices, pods=(), nodes=None, **more):
    nodes = [node()] if nodes is None else nodes
    cluster = ClusterSnapshot(pods=list(pods), nodes=nodes, instaslices=instaslices, now=NOW, **more)
    return fleet_status(cluster, policies.named("adaptive"))


def running(promised):
    return pod(promised.pod.name, promised.profile, on="gpu-0", given=[uuid(promised)])


def changed(thing, **status):
    return msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, **status))


def sick(thing, reason):
    gpus = [msgspec.structs.replace(gpu, health=Health.UNHEALTHY, reason=reason) for gpu in thing.status.gpus]
    return changed(thing, gpus=tuple(gpus))


def not_serving(thing):
    condition = InstasliceCondition(
        type="Ready",
        status=ConditionStatus.FALSE,
        reason="NoKubelet",
        last_transition_time=NOW,
        message="the kubelet is silent",
    )
    return changed(thing, conditions=(condition,))


def cordoned():
    there = node()
    return msgspec.structs.replace(there, spec=msgspec.structs.replace(there.spec, unschedulable=True))


SEVEN = [allocation(f"small-{start}", "1g.5gb", start) for start in range(7)]


@pytest.mark.parametrize(
    "promised, largest, held, free, unusable",
    [
        pytest.param([], "7g.40gb", 0, 40, 0, id="an empty GPU"),
        pytest.param([allocation("a", "4g.20gb", 0)], "3g.20gb", 20, 20, 0, id="a 3g beside a 4g"),
        pytest.param([allocation("a", "1g.5gb", 0)], "3g.20gb", 5, 35, 0, id="a 4g only starts at 0"),
        pytest.param(SEVEN, "", 35, 5, 5, id="seven 1g leave a memory slice that nothing can use"),
        pytest.param([allocation("a", "7g.40gb", 0)], "", 40, 0, 0, id="a full GPU"),
    ],
)
def test_what_still_fits_a_gpu(promised, largest, held, free, unusable):
    gpu = status([instaslice(*promised)]).nodes[0].gpus[0]
    assert (gpu.largest_fit, gpu.held_gb, gpu.free_gb, gpu.unusable_gb) == (largest, held, free, unusable)
    assert gpu.total_gb == 40


def test_who_holds_a_slot_since_when():
    promised = allocation("train", "3g.20gb", 4)
    (slot,) = status([instaslice(promised)], [running(promised)]).nodes[0].gpus[0].slots
    assert (slot.start, slot.size, slot.profile, slot.state) == (4, 4, "3g.20gb", SlotState.CREATED)
    assert (slot.pod, slot.container, slot.mig_uuid) == ("team-a/train", "main", uuid(promised))
    assert (NOW - slot.since).total_seconds() == 600


@pytest.mark.parametrize(
    "promised, reported, state, who",
    [
        pytest.param(
            [allocation("a", "1g.5gb", 0)], [], SlotState.CREATING, "team-a/a", id="promised and not made yet"
        ),
        pytest.param(
            [allocation("a", "1g.5gb", 0, state=AllocationState.DELETING)],
            [made(allocation("a", "1g.5gb", 0))],
            SlotState.DELETING,
            "team-a/a",
            id="its pod has ended",
        ),
        pytest.param(
            [allocation("a", "1g.5gb", 0)],
            [made(allocation("a", "1g.5gb", 0), SliceState.FAILED, reason="IN_USE")],
            SlotState.FAILED,
            "team-a/a",
            id="refused by the hardware",
        ),
        pytest.param(
            [],
            [made(allocation("x", "1g.5gb", 0), SliceState.FOREIGN, id="MIG-x", holder="uid-b")],
            SlotState.FOREIGN,
            "team-a/b",
            id="not ours, and the kubelet names the pod that uses it",
        ),
    ],
)
def test_what_is_in_a_slot(promised, reported, state, who):
    pods = [pod("b", "1g.5gb", on="gpu-0")]
    (slot,) = status([instaslice(*promised, slices=reported)], pods).nodes[0].gpus[0].slots
    assert (slot.state, slot.pod) == (state, who)
    assert slot.reason == (reported[0].reason if reported else "")


def test_an_allocation_says_why_it_goes_where_nothing_is_reported_of_it():
    promised = allocation("a", "1g.5gb", 0, state=AllocationState.DELETING, reason="the pod is gone")
    (slot,) = status([instaslice(promised, slices=[])]).nodes[0].gpus[0].slots
    assert slot.reason == "the pod is gone"


def test_gpus_are_in_the_order_of_their_numbers():
    there = instaslice()
    found = status([changed(there, gpus=there.status.gpus[::-1])])
    assert [gpu.index for gpu in found.nodes[0].gpus] == [0, 1]


def test_gb_have_one_digit_where_a_memory_slice_is_no_whole_number_of_them():
    h200 = models.named("H200")
    gpus = tuple(GpuStatus(uuid=f"GPU-{n}", index=n, model=h200.name, health=Health.HEALTHY) for n in range(3))
    held = PreparedSlice(id="x", gpu="GPU-0", profile="1g.18gb", start=6, size=1, state=SliceState.FOREIGN)
    there = changed(instaslice(), models=(ModelGeometry.of(h200),), gpus=gpus, slices=(held,))
    (total,) = status([there]).models
    assert (total.total_gb, total.held_gb, total.free_gb, total.unusable_gb) == (423, 17.6, 405.4, 17.6)
    (total,) = status([there], nodes=[cordoned()]).models
    assert (total.held_gb, total.out_of_use_gb) == (17.6, 405.4)


@pytest.mark.parametrize(
    "there, nodes, why",
    [
        pytest.param(sick(instaslice(), "Xid 79"), None, "unhealthy: Xid 79", id="unhealthy"),
        pytest.param(instaslice(), [cordoned()], "cordoned", id="cordoned"),
        pytest.param(instaslice(), [node(ready=False)], "not ready", id="not ready"),
        pytest.param(instaslice(), [], "the node does not exist", id="an object without its node"),
        pytest.param(
            not_serving(instaslice()), None, "its agent does not serve: the kubelet is silent", id="no kubelet"
        ),
        pytest.param(
            changed(instaslice(), models=()),
            None,
            "it is of a model A100-40GB that its node does not list",
            id="a model that is not listed",
        ),
    ],
)
def test_where_nothing_is_placed_nothing_is_free(there, nodes, why):
    found = status([there], nodes=nodes)
    for gpu in found.nodes[0].gpus:
        assert gpu.out_of_use == why
        assert (gpu.largest_fit, gpu.free_gb, gpu.unusable_gb) == ("", 0, 0)
    (model,) = found.models
    assert (model.free_gb, model.out_of_use_gb) == (0, model.total_gb)
    assert model.unhealthy == (2 if why.startswith("unhealthy") else 0)
    assert {gpu.memory_slices for gpu in found.nodes[0].gpus} == {8 if there.status.models else 0}


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([("3g.20gb", 2)], id="a start that the profile does not have"),
        pytest.param([("3g.20gb", 0), ("1g.5gb", 3)], id="two in one place"),
    ],
)
def test_a_layout_that_no_gpu_can_have_fits_nothing(places):
    foreign = [
        made(allocation(f"x-{start}", profile, start), SliceState.FOREIGN, id=f"MIG-{start}")
        for profile, start in places
    ]
    gpu = status([instaslice(slices=foreign)]).nodes[0].gpus[0]
    assert (gpu.largest_fit, gpu.free_gb, gpu.unusable_gb) == ("", 20, 20)


def test_slices_of_a_gpu_that_is_not_reported_any_more_are_shown():
    promised = allocation("train", "3g.20gb", 4, gpu="GPU-lost")
    gpu = status([instaslice(promised)], [running(promised)]).nodes[0].gpus[-1]
    assert (gpu.uuid, gpu.index, gpu.out_of_use) == ("GPU-lost", None, "its node does not report it")
    assert (gpu.healthy, gpu.memory_slices) == (False, 8)
    assert [slot.pod for slot in gpu.slots] == ["team-a/train"]


def test_those_that_wait_for_room_have_a_position_and_others_have_none():
    pods = [pod(f"w-{age}", "7g.40gb", gates=[GATE], phase="Pending", age=age) for age in (10, 30, 20)]
    pods.append(pod("held", "7g.40gb", gates=[GATE, "example.com/other"], phase="Pending"))
    full = [allocation(f"big-{gpu}", "7g.40gb", 0, gpu=f"GPU-{gpu}") for gpu in (0, 1)]
    found = status([instaslice(*full)], [*pods, *map(running, full)]).waiting
    assert [(each.position, each.pod) for each in found] == [
        (1, "team-a/w-30"),
        (2, "team-a/w-20"),
        (3, "team-a/w-10"),
        (None, "team-a/held"),
    ]
    assert found[0].message.startswith("7g.40gb needs 8 free memory slices on one GPU")
    assert found[3].stage is Stage.HELD


def test_totals_are_by_model_and_of_the_nodes_that_are_asked_for():
    promised = allocation("train", "3g.20gb", 4)
    found = status(
        [instaslice(promised), instaslice(name="gpu-1", gpus=("GPU-2", "GPU-3"))], nodes=[node(), node("gpu-1")]
    )
    assert [(model.model, model.nodes, model.gpus, model.held_gb) for model in found.models] == [
        ("A100-40GB", 2, 4, 20)
    ]
    assert found.models[0].largest_fit == {"7g.40gb": 3, "4g.20gb": 1}
    assert found.slots == {"created": 1}
    one = found.only(["gpu-1"])
    assert [(model.gpus, model.held_gb) for model in one.models] == [(2, 0)]
    assert [each.name for each in one.nodes] == ["gpu-1"]
    assert one.slots == {}


@pytest.mark.parametrize(
    "forbidden, out_of_use, waiting",
    [
        pytest.param("nodes", "", ["team-a/w"], id="no nodes: what the controller wrote into the pods has to do"),
        pytest.param("pods", "", [], id="no pods: slots still name theirs"),
    ],
)
def test_what_may_not_be_read_is_named_and_costs_only_itself(forbidden, out_of_use, waiting):
    promised = allocation("train", "3g.20gb", 4)
    pods = [] if forbidden == "pods" else [pod("w", "7g.40gb", gates=[GATE], phase="Pending")]
    nodes = [] if forbidden == "nodes" else [node()]
    found = status([instaslice(promised)], pods, nodes, forbidden=[forbidden])
    assert list(found.missing) == [forbidden]
    assert found.missing[forbidden].endswith(f"grant `list` on {forbidden}")
    assert found.nodes[0].out_of_use == out_of_use
    assert found.nodes[0].gpus[0].slots[0].pod == "team-a/train"
    assert [each.pod for each in found.waiting] == waiting


def test_an_object_that_could_not_be_read_is_named():
    assert status([instaslice()], unread=[UnreadObject("pod team-a/odd", "is odd")]).left_out == [
        "pod team-a/odd: is odd"
    ]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_odd_objects_cost_only_themselves(cluster):
    found = status(cluster.instaslices, cluster.pods, cluster.nodes)
    assert [each.name for each in found.nodes] == sorted(each.metadata.name for each in cluster.instaslices)
    for each in found.models:
        assert each.held_gb + each.free_gb + each.out_of_use_gb == pytest.approx(each.total_gb, abs=0.1 * each.gpus + 1)
        assert 0 <= each.unusable_gb <= each.free_gb + 0.1
