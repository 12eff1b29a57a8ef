"""Kueue beside the control plane: a quota of GPU memory admits what fits and holds the rest."""

import asyncio

import pytest
from running import pod

from instaslice.kube.client import Client
from instaslice.kube.core import PODS, PartialObjectMetadata
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.local.binaries import Source
from instaslice.local.cluster import ClusterSpec

MEMORY = "gpu.das.com/mem"


def kueue(kind: str, plural: str, namespaced: bool = False) -> Resource[PartialObjectMetadata]:
    return Resource(
        PartialObjectMetadata, kind, plural, version="v1beta2", group="kueue.x-k8s.io", namespaced=namespaced
    )


@pytest.fixture
def queued(new_cluster):
    cluster = new_cluster("kueue")
    cluster.up(ClusterSpec(nodes=1, kueue=True, bare=True), Source())
    return cluster


async def test_a_quota_of_gpu_memory_lets_two_of_three_pods_in(queued):
    async with await Client.connect(queued.kubeconfig) as client:
        await give_quota(client, memory=10)
        for name in ("a", "b", "c"):
            await client.create(PODS, asking(name, memory=5))
        await gated(client, 1)
        # One goes, and the third is let in.
        admitted = [each.metadata.name for each in await client.list(PODS) if not each.spec.scheduling_gates]
        assert len(admitted) == 2
        await client.delete(PODS, Key("default", admitted[0]), grace_seconds=0)
        await gated(client, 0)


async def give_quota(client: Client, *, memory: int) -> None:
    quota = {"name": MEMORY, "nominalQuota": str(memory)}
    group = {"coveredResources": [MEMORY], "flavors": [{"name": "any", "resources": [quota]}]}
    await client.create(kueue("ResourceFlavor", "resourceflavors"), {"metadata": {"name": "any"}, "spec": {}})
    await client.create(
        kueue("ClusterQueue", "clusterqueues"),
        {"metadata": {"name": "gpus"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}},
    )
    await client.create(
        kueue("LocalQueue", "localqueues", namespaced=True),
        {"metadata": {"namespace": "default", "name": "team"}, "spec": {"clusterQueue": "gpus"}},
    )


def asking(name: str, *, memory: int) -> dict:
    made = pod("default", name)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    made["spec"]["containers"][0]["resources"] = {"limits": {MEMORY: str(memory)}}
    return made


async def gated(client: Client, count: int) -> None:
    """Return once exactly that many pods are held. The others stay unscheduled: no node has the resource here."""
    for _ in range(300):
        held = [each.metadata.name for each in await client.list(PODS) if each.spec.scheduling_gates]
        if len(held) == count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{held} are held, not {count}")
