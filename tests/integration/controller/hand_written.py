"""Writes to a real API server what webhook, controller and agent would, for tests of the doctor and of explain."""

import msgspec
import pytest

from instaslice.api import crd, names
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    INSTASLICES,
    Allocation,
    AllocationState,
    GpuStatus,
    Health,
    Instaslice,
    InstasliceSpec,
    InstasliceStatus,
    PodRef,
    PreparedSlice,
    SliceState,
)
from instaslice.geometry import models
from instaslice.kube.client import JsonOp, Selector
from instaslice.kube.core import NODES, PODS
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.local.objects import DEFINITIONS, ClusterObjects

A100 = models.named("A100-40GB")
NODE = "gpu-0"


async def define(client):
    await client.apply(DEFINITIONS, crd.definition(), manager="test", force=True)

    def missing(cache):
        return [] if any(each.established for each in cache) else [crd.NAME]

    selector = Selector(fields=f"metadata.name={crd.NAME}")
    await ClusterObjects(client).until("not established: definition", DEFINITIONS, selector, missing)


@pytest.fixture
async def hand(client, namespace):
    """Writes what controller and agent would."""
    await define(client)
    await client.apply(INSTASLICES, Instaslice(metadata=ObjectMeta(name=NODE)), manager="test")
    yield Hand(client, namespace)
    await client.delete(INSTASLICES, Key("", NODE))


def gated_spec(profile="1g.5gb"):
    """Of a pod as the webhook leaves it."""
    resources = {"limits": {f"{names.RESOURCE}{profile}": "1"}}
    return {
        "schedulingGates": [{"name": names.GATE}],
        "containers": [{"name": "main", "image": "none", "resources": resources}],
    }


class Hand:
    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace

    async def pod(self, name):
        """A gated pod that asks for one slice, as the webhook leaves it."""
        meta = {"namespace": self.namespace, "name": name}
        return await self.client.create(PODS, {"metadata": meta, "spec": gated_spec()})

    def allocation(self, pod, start, profile="1g.5gb", size=1):
        ref = PodRef(namespace=self.namespace, name=pod.metadata.name, uid=pod.metadata.uid)
        return Allocation(
            id=f"{pod.metadata.uid}-0",
            pod=ref,
            container="main",
            profile=profile,
            gpu="GPU-0",
            start=start,
            size=size,
            state=AllocationState.CREATING,
        )

    async def reservation(self, *allocations):
        spec = msgspec.to_builtins(InstasliceSpec(allocations=allocations))
        await self.client.patch(INSTASLICES, Key("", NODE), [JsonOp(op="add", path="/spec", value=spec)])

    async def make(self, *allocations):
        """What the agent reports once it has made them all."""
        slices = tuple(
            PreparedSlice(
                id=each.id,
                gpu=each.gpu,
                profile=each.profile,
                start=each.start,
                size=each.size,
                state=SliceState.CREATED,
                mig_uuid=f"MIG-{each.start}",
            )
            for each in allocations
        )
        gpus = (GpuStatus(uuid="GPU-0", index=0, model=A100.name, health=Health.HEALTHY),)
        status = InstasliceStatus(observed_generation=99, models=(ModelGeometry.of(A100),), gpus=gpus, slices=slices)
        ops = [JsonOp(op="add", path="/status", value=msgspec.to_builtins(status))]
        await self.client.patch(INSTASLICES, Key("", NODE), ops, subresource="status")

    async def advertise(self, **amounts):
        """What the agent has the node advertise."""
        status = {"capacity": amounts, "allocatable": amounts}
        await self.client.merge(NODES, Key("", NODE), {"status": status}, subresource="status")

    async def nothing(self):
        """What the agent reports of a node without GPUs: of one with some there is always something wrong here, as
        nobody advertises their capacity."""
        ops = [JsonOp(op="add", path="/status", value=msgspec.to_builtins(InstasliceStatus(observed_generation=99)))]
        await self.client.patch(INSTASLICES, Key("", NODE), ops, subresource="status")

    async def ungate(self, pod, start):
        field = {"key": "metadata.name", "operator": "In", "values": [NODE]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        ops = [
            JsonOp(op="remove", path="/spec/schedulingGates"),
            JsonOp(op="add", path="/spec/affinity", value=affinity),
            JsonOp(op="add", path="/metadata/annotations", value={names.MIG_UUIDS: f"MIG-{start}"}),
        ]
        await self.client.patch(PODS, Key(self.namespace, pod.metadata.name), ops)

    async def remove(self, pod):
        await self.client.delete(PODS, Key(self.namespace, pod.metadata.name), grace_seconds=0)

    async def serve(self, name, start):
        """One pod from its creation to its slice."""
        pod = await self.pod(name)
        allocation = self.allocation(pod, start)
        await self.reservation(allocation)
        await self.make(allocation)
        await self.ungate(pod, start)
        return pod, allocation
