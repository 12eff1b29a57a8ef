"""What `instaslice drained` says of pods that hold slices."""

import msgspec
import pytest
from memory_server import MemoryServer
from small_worlds import pod

from instaslice.api.instaslice import (
    Allocation,
    AllocationState,
    Instaslice,
    InstasliceStatus,
    PodRef,
    PreparedSlice,
    SliceState,
)
from instaslice.api.names import GATE
from instaslice.cli.drained import GONE, MOST_PODS, WITHOUT_US, chosen, gone, holds, lines, waiting, waiting_lines
from instaslice.errors import BadInput
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import ObjectMeta


def held(pod, profile="1g.5gb", node="a"):
    ref = PodRef(namespace="team", name=pod, uid=f"uid-of-{pod}")
    return node, Allocation(f"{pod}-{profile}", ref, "main", profile, "GPU-0", 0, 1, AllocationState.UNGATED)


def test_each_pod_is_named_once_with_all_its_slices():
    assert lines([held("train"), held("train", "3g.20gb"), held("serve", node="b")], WITHOUT_US) == [
        "pod team/serve on node b: 1g.5gb",
        "pod team/train on node a: 1g.5gb, 3g.20gb",
        "2 pods hold slices; delete them, or skip this check: helm uninstall … --no-hooks",
    ]


def test_of_one_pod_it_speaks_in_the_singular():
    assert lines([held("train")], WITHOUT_US)[-1] == (
        "1 pod holds slices; delete it, or skip this check: helm uninstall … --no-hooks"
    )


def test_of_one_node_nothing_is_said_about_an_uninstall():
    assert lines([held("train")])[-1] == "1 pod holds slices; delete it"


async def test_a_holder_that_is_gone_is_not_to_be_deleted():
    server = MemoryServer()
    holders = [held("stays"), held("ended"), held("again")]
    for name, uid in (("stays", "uid-of-stays"), ("again", "another")):
        server.put(PODS, Pod(metadata=ObjectMeta(namespace="team", name=name, uid=uid)))
    without_pod = await gone(server.client(), holders)
    again, ended, stays, _remedy = lines(holders, without_pod=without_pod)
    assert again.endswith(GONE) and ended.endswith(GONE)
    assert stays == "pod team/stays on node a: 1g.5gb"


def test_of_many_pods_the_first_are_named():
    *named, more, remedy = lines(held(f"pod-{number:02}") for number in range(MOST_PODS + 3))
    assert len(named) == MOST_PODS
    assert more == "and 3 more"
    assert remedy.startswith("13 pods hold slices")


def test_a_node_that_is_not_ours_is_an_error_and_not_drained():
    objects = [Instaslice(metadata=ObjectMeta(name=name)) for name in "ab"]
    assert [each.metadata.name for each in chosen(objects, "b")] == ["b"]
    assert chosen(objects, None) == objects
    with pytest.raises(BadInput, match="--node c: there is no Instaslice object of that node, but of a, b"):
        chosen(objects, "c")
    with pytest.raises(BadInput, match="but of none at all"):
        chosen([], "c")


@pytest.mark.parametrize(
    "wanted, reported, expected",
    [
        pytest.param(AllocationState.CREATING, None, True, id="it is about to be created"),
        pytest.param(AllocationState.UNGATED, SliceState.CREATED, True, id="its pod runs"),
        pytest.param(AllocationState.DELETING, SliceState.CREATED, True, id="its pod has ended, the slice is there"),
        pytest.param(AllocationState.DELETING, SliceState.DELETING, True, id="it is in use, and destroyed later"),
        pytest.param(AllocationState.DELETING, SliceState.DELETED, False, id="it is gone"),
        pytest.param(AllocationState.DELETING, None, False, id="it is gone, and forgotten"),
    ],
)
def test_whether_an_allocation_holds_a_slice(wanted, reported, expected):
    allocation = Allocation("a", PodRef(namespace="team", name="x", uid="u"), "main", "1g.5gb", "GPU-0", 0, 1, wanted)
    slices = (PreparedSlice("a", "GPU-0", "1g.5gb", 0, 1, reported),) if reported else ()
    status = InstasliceStatus(observed_generation=1, slices=slices)
    assert holds(allocation, Instaslice(metadata=ObjectMeta(name="n"), status=status)) is expected


def test_pods_behind_our_gate_are_named_once_and_others_are_not():
    pods = [
        pod("waits", "1g.5gb", gates=["kueue.x-k8s.io/admission", GATE], phase="Pending"),
        pod("placed", "1g.5gb", gates=[GATE], phase="Pending"),
        pod("runs", "1g.5gb", on="a"),
        pod("other", gates=["kueue.x-k8s.io/admission"], phase="Pending"),
        pod("failed", "1g.5gb", gates=[GATE], phase="Failed"),
    ]
    node, allocation = held("placed")
    ref = PodRef(namespace="team-a", name="placed", uid="uid-placed")
    allocations = [(node, msgspec.structs.replace(allocation, pod=ref))]
    assert waiting(pods, allocations) == ["team-a/waits"]


def test_what_waits_is_said_with_the_remedy():
    named, remedy = waiting_lines(["team-a/waits"])
    assert named == "pod team-a/waits: waits for slices"
    assert remedy.startswith("1 pod waits behind the gate gpu.das.com/slice, which nobody removes after an uninstall")
    *named, more, remedy = waiting_lines([f"team/pod-{number:02}" for number in range(MOST_PODS + 3)])
    assert (len(named), more, remedy.partition(" behind")[0]) == (MOST_PODS, "and 3 more", "13 pods wait")
