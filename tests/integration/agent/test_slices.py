"""Slices come and go on the real API server as the controller asks, with the controller played by hand."""

import asyncio

from machines import now, wanted

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, AllocationState, Health
from instaslice.kube.core import NODES, PODS
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key


async def test_a_slice_is_made_used_and_given_back(machine, agent):
    node = await machine()
    await agent.start()
    thing = await node.serving()
    one, two = wanted(thing, "a-0", "3g.20gb", 4), wanted(thing, "a-1", "1g.5gb", 0, gpu=1)
    await node.write(one, two)
    made = await node.reported(a_0="created", a_1="created")
    assert made["a-0"].mig_uuid.startswith("MIG-")
    assert made["a-0"].mig_uuid != made["a-1"].mig_uuid
    await node.write(now(one, AllocationState.UNGATED), now(two, AllocationState.UNGATED))
    thing = await node.object()
    assert (thing.status.summary.slices, thing.status.summary.free_memory) == (2, "55/80 GB")
    await node.write(now(one, AllocationState.DELETING), now(two, AllocationState.UNGATED))
    await node.reported(a_0="deleted", a_1="created")
    await node.write(now(two, AllocationState.DELETING))
    await node.reported(a_1="deleted")
    await node.write()
    thing = await node.empty()  # the entries are pruned, though nobody waits for it
    assert thing.status.observed_generation == thing.metadata.generation
    assert await agent.stop() == 0


async def test_a_node_is_reported_and_advertises_what_it_could_hold(client, machine, agent):
    node = await machine(gpus=2)
    await agent.start()
    thing = await node.serving()
    assert [gpu.health for gpu in thing.status.gpus] == [Health.HEALTHY] * 2
    assert [model.name for model in thing.status.models] == ["A100-40GB"]
    assert (thing.status.summary.gpus, thing.status.conditions[0].status) == ("2x A100-40GB", "True")
    told = await advertised(client, node)
    assert told["gpu.das.com/mig-1g.5gb"] == "14"
    assert told["gpu.das.com/mig-1g.5gb.me"] == "2"
    assert told["gpu.das.com/mig-7g.40gb"] == "2"
    assert told[names.MEMORY] == "80"
    # Somebody takes it away: it comes back.
    await client.merge(
        NODES,
        node.key,
        {"status": {"capacity": {names.MEMORY: None}, "allocatable": {names.MEMORY: "1"}}},
        subresource="status",
    )
    assert (await advertised(client, node))[names.MEMORY] == "80"


async def test_a_node_that_changes_its_gpus_is_another_machine(client, machine, agent):
    node = await machine(gpus=2)
    await agent.start()
    thing = await node.serving()
    await node.write(wanted(thing, "a-0", gpu=1))
    await node.reported(a_0="created")
    await client.merge(NODES, node.key, {"metadata": {"labels": {names.GPU_COUNT: "1"}}})
    (lost,) = (await node.reported(a_0="failed")).values()
    assert "is not in this node" in lost.reason
    async with asyncio.timeout(60):
        while (await client.get(NODES, node.key)).status.allocatable[names.MEMORY] != "40":
            await asyncio.sleep(0.05)


async def test_a_model_that_nobody_knows_is_said(client, machine, agent):
    node = await machine(model="A99")
    await agent.start()
    thing = await node.until(lambda status: bool(status.conditions), "a condition")
    (ready,) = thing.status.conditions
    assert (ready.status, ready.reason) == ("False", "NoDriver")
    assert "no GPU model 'A99'" in ready.message
    await client.merge(NODES, node.key, {"metadata": {"labels": {names.EMULATED: "H200-141GB"}}})
    await node.until(lambda status: status.gpus and status.conditions[0].status == "True", "serving")


async def test_nodes_come_and_go_while_the_agent_runs(client, machine, agent):
    await agent.start()
    first, second = await machine(), await machine()
    await first.serving()
    thing = await second.serving()
    await second.write(wanted(thing, "a-0"))
    await second.reported(a_0="created")
    before = await second.object()
    await client.delete(NODES, second.key)
    # A new machine of the old name, while the garbage collector has not taken the old object away: it starts empty.
    await client.create(NODES, {"metadata": {"name": second.name, "labels": await labels(client, first)}})
    async with asyncio.timeout(60):
        while True:
            try:
                found = await second.object()
                if found.metadata.uid != before.metadata.uid and found.status.gpus:
                    break
            except NotFound:
                pass
            await asyncio.sleep(0.05)
    assert (found.spec.allocations, found.status.slices) == ((), ())
    assert [gpu.uuid for gpu in found.status.gpus] == [gpu.uuid for gpu in before.status.gpus]


async def test_an_object_removed_by_hand_comes_back_and_its_slices_are_nobodys(client, machine, agent):
    node = await machine()
    await agent.start("--grace", "3600")
    thing = await node.serving()
    kept = wanted(thing, "a-0", state=AllocationState.CREATING)
    await node.write(kept)
    made = await node.reported(a_0="created")
    await client.delete(INSTASLICES, node.key)
    (foreign,) = await node.foreign()
    assert foreign.id == made["a-0"].mig_uuid
    # The controller speaks within the grace: the slice is its pod's again.
    await node.write(now(kept, AllocationState.UNGATED))
    assert (await node.reported(a_0="created"))["a-0"].mig_uuid == foreign.id


async def test_a_pod_keeps_its_slice_though_its_object_is_deleted_and_no_controller_speaks(
    client, namespace, machine, agent
):
    node = await machine()
    await agent.start("--grace", "1")
    thing = await node.serving()
    await node.write(wanted(thing, "a-0"), wanted(thing, "a-1", start=1))
    made = await node.reported(a_0="created", a_1="created")
    meta = {"name": "a-0", "namespace": namespace, "annotations": {names.MIG_UUIDS: made["a-0"].mig_uuid}}
    container = {"name": "main", "image": "none"}
    await client.create(PODS, {"metadata": meta, "spec": {"nodeName": node.name, "containers": [container]}})
    await client.delete(INSTASLICES, node.key)

    def kept(status):
        return [(each.id, each.reason) for each in status.slices] == [
            (made["a-0"].mig_uuid, f"kept: pod {namespace}/a-0 uses it, though no allocation names it")
        ]

    await node.until(kept, "only the slice that nobody uses gone")
    await client.delete(PODS, Key(namespace, "a-0"), grace_seconds=0)
    await node.empty()


async def advertised(client, node):
    """Capacity, once it and allocatable say the same of memory."""
    async with asyncio.timeout(60):
        while True:
            status = (await client.get(NODES, node.key)).status
            if status.capacity.get(names.MEMORY) == status.allocatable.get(names.MEMORY) is not None:
                return status.capacity
            await asyncio.sleep(0.05)


async def labels(client, node):
    return (await client.get(NODES, node.key)).metadata.labels
