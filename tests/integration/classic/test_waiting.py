"""Who waits, for what, and who comes first."""

import asyncio

import pytest
from stage import pod

from instaslice.api import names
from instaslice.kube.core import NODES, PODS, PartialObjectMetadata
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource

PRIORITIES = Resource(
    PartialObjectMetadata, "PriorityClass", "priorityclasses", group="scheduling.k8s.io", namespaced=False
)
KUEUE = "kueue.x-k8s.io/admission"


async def test_the_eighth_pod_waits_and_runs_when_one_of_the_seven_ends(stage):
    node = await stage.node(gpus=1)
    seven = [f"p{number}" for number in range(7)]
    await stage.create(*(pod(name) for name in seven))
    await stage.running(*seven)
    await stage.create(pod("eighth"))
    assert "1g.5gb" in await stage.waits("eighth")
    assert node in await stage.waits("eighth")
    await stage.delete("p3")
    await stage.running("eighth")
    assert (await stage.said("eighth", "SliceReady")).status == "True"
    assert node in await stage.event("eighth", "SliceReady")
    await stage.delete("eighth", *(name for name in seven if name != "p3"))
    await stage.free()


async def test_every_pod_is_given_the_slices_in_the_status_and_no_two_share_one(stage):
    await stage.some_nodes(2, gpus=2)
    pods = {f"p{number}": slices for number, slices in enumerate([{"1g.5gb": 1}, {"2g.10gb": 2}, {"3g.20gb": 1}] * 2)}
    await stage.create(*(pod(name, slices) for name, slices in pods.items()))
    running = await stage.running(*pods)
    given = {each.metadata.name: each.metadata.annotations[names.MIG_UUIDS].split(",") for each in running}
    made = {one.id: one.mig_uuid for name in stage.own for one in stage.thing(name).status.slices}
    assert given == {name: [made[each.id] for each in stage.held(name)] for name in pods}
    every = [uuid for uuids in given.values() for uuid in uuids]
    assert len(every) == len(set(every)) == 8
    assert {each.metadata.name: each.spec.node_name for each in running} == {
        name: next(node for node in stage.own if set(uuids) <= _uuids(stage.thing(node)))
        for name, uuids in given.items()
    }


def _uuids(thing):
    return {each.mig_uuid for each in thing.status.slices}


async def test_a_pod_with_another_gate_is_left_alone_until_it_is_gone(stage):
    await stage.node()
    await stage.create(pod("queued", schedulingGates=[{"name": KUEUE}]), pod("other", "7g.40gb"))
    # It came second and needs the whole GPU: it could not run if the first had been given anything.
    await stage.running("other")
    assert not stage.held("queued")
    (ours,) = [each for each in stage.pod("queued").spec.scheduling_gates if each.name != KUEUE]
    assert ours.name == names.GATE
    await stage.client.merge(PODS, Key(stage.namespace, "queued"), {"spec": {"schedulingGates": [{"name": ours.name}]}})
    await stage.waits("queued")
    await stage.delete("other")
    await stage.running("queued")


@pytest.fixture
async def urgent(client, namespace):
    await client.create(PRIORITIES, {"metadata": {"name": namespace}, "value": 1000})
    yield namespace
    await client.delete(PRIORITIES, Key("", namespace))


async def test_the_more_urgent_pod_is_served_first_though_it_came_last(stage, urgent):
    await stage.node()
    await stage.create(pod("holder", "7g.40gb"))
    await stage.running("holder")
    await stage.create(pod("patient", "7g.40gb"))
    await stage.waits("patient")
    await stage.create(pod("urgent", "7g.40gb", priorityClassName=urgent))
    await stage.waits("urgent")
    await stage.delete("holder")
    await stage.running("urgent")
    assert not stage.held("patient")
    await stage.delete("urgent")
    await stage.running("patient")


async def test_a_smaller_pod_passes_a_larger_one_that_cannot_be_placed_yet(stage):
    await stage.node()
    await stage.create(pod("holder", "3g.20gb"))
    await stage.running("holder")
    await stage.create(pod("large", "7g.40gb"))
    await stage.waits("large")
    await stage.create(pod("small"))
    await stage.running("small")
    assert not stage.held("large")
    await asyncio.gather(stage.delete("small"), stage.delete("holder"))
    await stage.running("large")


async def test_a_new_node_wakes_the_pod_that_waits_for_one(stage):
    await stage.create(pod("early"))
    assert "no such node admits the pod" in await stage.waits("early")
    await stage.node()
    await stage.running("early")


async def test_a_pod_that_selects_a_static_layout_is_told_and_runs_where_the_labels_are(stage, client):
    """The labels are written here by hand: what `--static-mig-labels` writes is in tests/integration/controller."""
    node = await stage.node()
    selector = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-1g.5gb.count": "7"}
    await stage.create(pod("picky", nodeSelector=selector))
    told = await stage.waits("picky")
    assert "has no label nvidia.com/mig-1g.5gb.count=7 (written where GPUs have a static MIG layout" in told
    assert "--static-mig-labels" in told
    await client.merge(NODES, Key("", node), {"metadata": {"labels": selector}})
    await stage.running("picky")


async def test_what_a_waiting_pod_says_follows_what_it_waits_for(stage):
    node = await stage.node()
    await stage.create(pod("holder", "7g.40gb"))
    await stage.running("holder")
    await stage.create(pod("patient", "7g.40gb"))
    # Nodes of other stories may be cordoned.
    assert not (await stage.waits("patient")).startswith("every node that could hold it is cordoned")
    await stage.client.merge(NODES, Key("", node), {"spec": {"unschedulable": True}})

    def says_so():
        said = stage.pod("patient").condition(names.SLICE_READY)
        return said.message.startswith(f"every node that could hold it is cordoned ({node}): uncordon one")

    await stage.until("a condition that follows", says_so)
    await stage.client.merge(NODES, Key("", node), {"spec": {"unschedulable": None}})
    await stage.delete("holder")
    await stage.running("patient")
