"""The Instaslice object on the real API server: what it takes, what it refuses, who owns what, what it prints."""

import subprocess
from datetime import UTC, datetime

import msgspec
import pytest

from instaslice.api import crd
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    EMPTY_SPEC,
    EMPTY_STATUS,
    INSTASLICES,
    Allocation,
    AllocationState,
    ConditionStatus,
    GpuStatus,
    Health,
    Instaslice,
    InstasliceCondition,
    InstasliceSpec,
    InstasliceStatus,
    PodRef,
    PreparedSlice,
    SliceState,
)
from instaslice.api.summary import summary
from instaslice.geometry import models
from instaslice.kube.client import Selector
from instaslice.kube.errors import Conflict, Invalid
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.local.objects import DEFINITIONS, ClusterObjects

A100 = models.named("A100-40GB")


@pytest.fixture(autouse=True)
async def defined(client):
    """The definition is in the server and served."""
    await client.apply(DEFINITIONS, crd.definition(), manager="test", force=True)

    def missing(cache):
        return [] if any(each.established for each in cache) else [crd.NAME]

    await ClusterObjects(client).until(
        "not established: definition", DEFINITIONS, Selector(fields=f"metadata.name={crd.NAME}"), missing
    )


@pytest.fixture
async def node(client, namespace):
    """The object of a node named after the test's namespace, empty as an agent makes it."""
    await client.apply(INSTASLICES, Instaslice(metadata=ObjectMeta(name=namespace)), manager="agent")
    yield namespace
    await client.delete(INSTASLICES, Key("", namespace))


def allocation(name="a/main/0", start=0, state=AllocationState.CREATING, **more):
    pod = PodRef(namespace="team-a", name="train", uid="6f2c")
    promised = {"cpu": 1500, "memory": 8 << 30, **more}
    return Allocation(
        id=name, pod=pod, container="main", profile="1g.5gb", gpu="GPU-0", start=start, size=1, state=state, **promised
    )


def promised(node, *allocations):
    return Instaslice(metadata=ObjectMeta(name=node), spec=InstasliceSpec(allocations=allocations))


def reported(node):
    """A full status: every field set."""
    status = InstasliceStatus(
        observed_generation=3,
        boot_id="0c8f",
        models=(ModelGeometry.of(A100),),
        gpus=(
            GpuStatus(uuid="GPU-0", index=0, model="A100-40GB", health=Health.HEALTHY),
            GpuStatus(uuid="GPU-1", index=1, model="A100-40GB", health=Health.UNHEALTHY, reason="Xid 79"),
        ),
        slices=(
            PreparedSlice(
                id="a/main/0",
                gpu="GPU-0",
                profile="1g.5gb",
                start=0,
                size=1,
                state=SliceState.CREATED,
                mig_uuid="MIG-1",
                gi=7,
                ci=0,
            ),
        ),
        conditions=(
            InstasliceCondition(
                type="Ready",
                status=ConditionStatus.TRUE,
                reason="Serving",
                last_transition_time=datetime(2026, 1, 2, tzinfo=UTC),
            ),
        ),
    )
    return Instaslice(metadata=ObjectMeta(name=node), status=msgspec.structs.replace(status, summary=summary(status)))


async def test_controller_and_agent_each_write_their_half_and_both_read_it_all(client, node):
    await client.apply(INSTASLICES, promised(node, allocation()), manager="controller")
    await client.apply(INSTASLICES, reported(node), manager="agent-status", subresource="status")
    await client.apply(INSTASLICES, promised(node, allocation(state=AllocationState.CREATED)), manager="controller")
    read = await client.get(INSTASLICES, Key("", node))
    assert read.spec == InstasliceSpec(allocations=(allocation(state=AllocationState.CREATED),))
    assert read.status == reported(node).status


async def test_the_spec_cannot_be_written_through_the_status_nor_the_status_with_the_spec(client, node):
    await client.apply(INSTASLICES, promised(node, allocation()), manager="agent", subresource="status")
    await client.apply(INSTASLICES, reported(node), manager="controller")
    read = await client.get(INSTASLICES, Key("", node))
    assert (read.spec, read.status) == (EMPTY_SPEC, EMPTY_STATUS)


async def test_an_entry_left_out_of_the_next_apply_is_gone_and_the_others_stay(client, node):
    one, two = allocation("a/main/0"), allocation("b/main/0", start=1)
    await client.apply(INSTASLICES, promised(node, one, two), manager="controller")
    await client.apply(INSTASLICES, promised(node, two), manager="controller")
    assert (await client.get(INSTASLICES, Key("", node))).spec.allocations == (two,)
    await client.apply(INSTASLICES, promised(node), manager="controller")
    assert (await client.get(INSTASLICES, Key("", node))).spec.allocations == ()


async def test_a_second_writer_of_the_same_allocation_is_told_so(client, node):
    await client.apply(INSTASLICES, promised(node, allocation()), manager="controller")
    with pytest.raises(Conflict, match="controller"):
        await client.apply(INSTASLICES, promised(node, allocation(start=3)), manager="somebody")


@pytest.mark.parametrize(
    "change, why",
    [
        pytest.param({"state": "dreaming"}, "Unsupported value", id="a state that there is not"),
        pytest.param({"start": -1}, "greater than or equal to 0", id="a start before the GPU"),
        pytest.param({"size": 0}, "greater than or equal to 1", id="a slice of nothing"),
        pytest.param({"cpu": -5}, "greater than or equal to 0", id="negative CPU"),
        pytest.param({"profile": "large"}, "should match", id="what is no profile name"),
        pytest.param({"container": "c" * 64}, "Too long", id="a container name that is too long"),
        pytest.param({"pod": {"namespace": "a", "name": "n" * 254, "uid": "u"}}, "Too long", id="a pod name too long"),
        pytest.param({"reason": "x" * 1025}, "Too long", id="a reason too long"),
        pytest.param({"gpu": None}, "Required|null", id="no GPU"),
    ],
)
async def test_the_server_refuses(client, node, change, why):
    good = msgspec.to_builtins(allocation())
    with pytest.raises(Invalid, match=why):
        await client.merge(INSTASLICES, Key("", node), {"spec": {"allocations": [{**good, **change}]}})
    await client.merge(INSTASLICES, Key("", node), {"spec": {"allocations": [good]}})


async def test_the_server_refuses_the_same_id_twice(client, node):
    twice = msgspec.to_builtins([allocation(), allocation(start=1)])
    with pytest.raises(Invalid, match="Duplicate value"):
        await client.merge(INSTASLICES, Key("", node), {"spec": {"allocations": twice}})


async def test_kubectl_prints_gpus_slices_free_memory_and_readiness(cluster, client, node):
    await client.apply(INSTASLICES, reported(node), manager="agent", subresource="status")
    kubectl = cluster.record().programs["kubectl"]
    printed = subprocess.run(
        [kubectl, "--kubeconfig", str(cluster.kubeconfig), "get", "instaslices", node],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    head, row = printed.splitlines()
    assert head.split() == ["NAME", "GPUS", "SLICES", "FREE", "READY", "AGE"]
    for cell in (node, "2x A100-40GB (1 unhealthy)", "1", "35/80 GB", "True"):
        assert cell in row


async def test_the_last_slice_gone_leaves_the_rest_of_the_status(client, node):
    full = reported(node)
    await client.apply(INSTASLICES, full, manager="agent", subresource="status")
    empty = msgspec.structs.replace(full, status=msgspec.structs.replace(full.status, slices=()))
    await client.apply(INSTASLICES, empty, manager="agent", subresource="status")
    assert (await client.get(INSTASLICES, Key("", node))).status == empty.status
