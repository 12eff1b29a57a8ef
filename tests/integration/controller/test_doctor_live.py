"""The doctor on a real API server, with objects written by hand: what it sees at a moment, and what in passing."""

import asyncio
import subprocess
import sys

import msgspec
import pytest
from cluster_monitor import ClusterMonitor

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
from instaslice.doctor import Invariant, check, wait_until_settled
from instaslice.geometry import models
from instaslice.kube.client import Client, JsonOp, Selector
from instaslice.kube.core import PODS
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.local.binaries import Source
from instaslice.local.cluster import ClusterSpec
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


class Hand:
    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace

    async def pod(self, name):
        """A gated pod that asks for one slice, as the webhook leaves it."""
        resources = {"limits": {f"{names.RESOURCE}1g.5gb": "1"}}
        return await self.client.create(
            PODS,
            {
                "metadata": {"namespace": self.namespace, "name": name},
                "spec": {
                    "schedulingGates": [{"name": names.GATE}],
                    "containers": [{"name": "main", "image": "none", "resources": resources}],
                },
            },
        )

    def allocation(self, pod, start):
        ref = PodRef(namespace=self.namespace, name=pod.metadata.name, uid=pod.metadata.uid)
        return Allocation(
            id=f"{pod.metadata.uid}-0",
            pod=ref,
            container="main",
            profile="1g.5gb",
            gpu="GPU-0",
            start=start,
            size=1,
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


def about(found, *kinds):
    """Other tests share the cluster, and nobody advertises capacity here."""
    return [each.invariant for each in found if each.object.startswith(kinds) and NODE not in each.object]


async def test_a_pod_past_its_gate_without_an_allocation_is_found(client, hand):
    pod, _ = await hand.serve("train", 0)
    assert about(await check(client), f"pod {hand.namespace}") == []
    await hand.reservation()
    assert about(await check(client), f"pod {hand.namespace}") == [Invariant.POD_HAS_SLICES]
    await hand.remove(pod)


async def test_what_is_passing_is_waited_for(client, hand):
    pod, _ = await hand.serve("train", 0)
    await hand.reservation()
    looking = asyncio.create_task(wait_until_settled(client, 20))
    await asyncio.sleep(1)
    await hand.remove(pod)
    await hand.nothing()
    assert about(await looking, f"pod {hand.namespace}") == []


async def test_a_place_held_by_two_pods_for_a_moment_only_is_found_afterwards(client, hand):
    async with ClusterMonitor(client) as monitor:
        first, _ = await hand.serve("first", 0)
        second = await hand.pod("second")
        two = hand.allocation(second, 0)
        await hand.reservation(two)
        await hand.make(two)
        await hand.ungate(second, 0)
        await hand.remove(first)
        await hand.remove(second)
        await hand.reservation()
        await hand.make()
    assert monitor.checked >= 8
    found = {each.invariant for each in monitor.findings}
    assert found == {Invariant.SLICE_EXISTS, Invariant.NO_OVERLAP, Invariant.UUID_ONCE}


async def test_a_clean_history_is_clean(client, hand):
    async with ClusterMonitor(client) as monitor:
        for name in "abc":
            pod, _ = await hand.serve(name, 0)
            await hand.remove(pod)
        await hand.reservation()
        await hand.make()
    assert monitor.checked >= 12
    assert monitor.findings == []


async def test_the_command_says_what_is_wrong_and_fails(cluster, client, hand):
    pod, _ = await hand.serve("train", 0)
    await hand.reservation()
    command = [sys.executable, "-m", "instaslice.cli", "doctor", "--kubeconfig", str(cluster.kubeconfig)]
    text = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert text.returncode == 1
    assert f"pod-has-slices  pod {hand.namespace}/train: is past its gate" in text.stdout
    told = await asyncio.to_thread(subprocess.run, [*command, "-o", "json"], capture_output=True)
    assert told.returncode == 1
    assert {"invariant", "object", "words", "passing"} == set(msgspec.json.decode(told.stdout)[0])
    await hand.remove(pod)


async def test_a_pod_is_explained_by_the_command(cluster, client, hand):
    await hand.pod("waits")
    pod, _ = await hand.serve("runs", 0)

    async def explain(name, *more):
        words = [
            sys.executable,
            "-m",
            "instaslice.cli",
            "explain",
            name,
            "--kubeconfig",
            str(cluster.kubeconfig),
            *more,
        ]
        return await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)

    text = (await explain("pod/waits", "-n", hand.namespace)).stdout
    assert text.startswith(f"pod {hand.namespace}/waits: waiting for room")
    assert "asks for  1 x 1g.5gb" in text
    told = msgspec.json.decode((await explain("runs", "-n", hand.namespace, "-o", "json")).stdout)
    assert told["slices"][0]["mig_uuid"] == "MIG-0"
    missing = await explain("pod/wait", "-n", hand.namespace)
    assert missing.returncode == 1
    assert missing.stderr == f"error: no pod wait in namespace {hand.namespace}; did you mean waits?\n"
    await hand.remove(pod)


async def test_following_survives_the_api_server(new_cluster):
    cluster = new_cluster("overseen")
    await asyncio.to_thread(cluster.up, ClusterSpec(nodes=1, bare=True), Source())
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as client:
        await define(client)
        await client.apply(INSTASLICES, Instaslice(metadata=ObjectMeta(name=NODE)), manager="test")
        hand = Hand(client, "default")
        async with ClusterMonitor(client) as monitor:
            await hand.serve("before", 0)
            await asyncio.to_thread(cluster.kill, "kube-apiserver")
            await asyncio.to_thread(cluster.start, "kube-apiserver")
            # What changes before both watches are back is not judged.
            await hand.pod("after")
            await client.patch(
                INSTASLICES, Key("", NODE), [JsonOp(op="add", path="/metadata/labels", value={"a": "b"})]
            )
            await monitor.catch_up()
            # The slice is taken from a pod that ran before the server went.
            await hand.reservation()
            await hand.make()
        assert Invariant.SLICE_EXISTS in {each.invariant for each in monitor.findings}
