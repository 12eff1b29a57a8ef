"""The taint of managed nodes on the real API server, whose own controllers change taints meanwhile."""

import asyncio
import random
from contextlib import asynccontextmanager, suppress

import pytest

from instaslice.api import crd
from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.api.names import TAINTED
from instaslice.controller.taints import TAINT, Taints, steps_to
from instaslice.kube.cache import Cache
from instaslice.kube.client import JsonOp, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import NODES
from instaslice.kube.errors import Invalid
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.kube.watch import Reflector
from instaslice.local.objects import DEFINITIONS, ClusterObjects

THEIRS = {"key": "team", "value": "a", "effect": "NoSchedule", "timeAdded": "2026-11-16T00:00:00Z"}


@pytest.fixture(autouse=True)
async def defined(client):
    await client.apply(DEFINITIONS, crd.definition(), manager="test", force=True)

    def missing(cache):
        return [] if any(each.established for each in cache) else [crd.NAME]

    only = Selector(fields=f"metadata.name={crd.NAME}")
    await ClusterObjects(client).until("not established: definition", DEFINITIONS, only, missing)


@pytest.fixture
async def node(client, namespace):
    """A node of no kubelet: the controller-manager taints it for that, in its own time."""
    await client.create(NODES, {"metadata": {"name": namespace}, "spec": {"taints": [THEIRS]}})
    yield Key("", namespace)
    await client.delete(NODES, Key("", namespace))
    if await client.list(INSTASLICES, Selector(fields=f"metadata.name={namespace}")):
        await client.delete(INSTASLICES, Key("", namespace))


@asynccontextmanager
async def running(client, *, wanted):
    """A controller that does nothing but this."""
    clock, rng = SystemClock(), random.Random(0)
    nodes, instaslices = Cache(), Cache()
    parts = [
        Reflector(client, NODES, nodes, clock=clock, rng=rng),
        Reflector(client, INSTASLICES, instaslices, clock=clock, rng=rng),
        Taints(client, nodes, instaslices, clock, wanted=wanted),
    ]
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


async def tainted(client, node, *, ours):
    """Return once our taint is there, or is not; theirs always is."""

    def missing(cache):
        if not len(cache):
            return ["node"]
        keys = {each.key for each in next(iter(cache)).spec.taints or ()}
        assert "team" in keys
        return [] if (TAINT.key in keys) == ours else ["taint"]

    await ClusterObjects(client).until("not so:", NODES, Selector(fields=f"metadata.name={node.name}"), missing)


async def manage(client, node):
    await client.apply(INSTASLICES, Instaslice(metadata=ObjectMeta(name=node.name)), manager="agent")


async def test_a_node_is_tainted_while_it_is_managed(client, node):
    async with running(client, wanted=True):
        await manage(client, node)
        await tainted(client, node, ours=True)
        await client.patch(NODES, node, [JsonOp(op="replace", path="/spec/taints", value=[THEIRS])])
        await tainted(client, node, ours=True)
        await client.delete(INSTASLICES, node)
        await tainted(client, node, ours=False)


async def test_without_the_flag_the_taints_of_an_earlier_time_go(client, node):
    await manage(client, node)
    async with running(client, wanted=True):
        await tainted(client, node, ours=True)
    async with running(client, wanted=False):
        await tainted(client, node, ours=False)


async def test_a_taint_that_a_node_was_registered_with_stays(client, namespace, node):
    """It keeps the node empty until our agent is there; whoever wants it gone says so to the kubelet."""
    ours = JsonOp(op="add", path="/spec/taints/-", value=TAINT)
    await client.patch(NODES, node, [ours])
    other = Key("", f"{namespace}-other")
    await client.create(NODES, {"metadata": {"name": other.name}, "spec": {"taints": [THEIRS]}})
    try:
        async with running(client, wanted=True):
            await manage(client, other)
            await tainted(client, other, ours=True)
        async with running(client, wanted=False):
            await tainted(client, other, ours=False)
    finally:
        await client.delete(INSTASLICES, other)
        await client.delete(NODES, other)
    await tainted(client, node, ours=True)


async def test_what_others_change_at_the_same_time_is_kept(client, node):
    """Another adds and removes a taint of its own, again and again, while ours comes and goes."""
    other = {"key": "busy", "effect": "NoSchedule"}

    async def keys():
        return [each.key for each in (await client.get(NODES, node)).spec.taints or ()]

    async def take_away():
        while "busy" in (found := await keys()):
            place = f"/spec/taints/{found.index('busy')}"
            steps = [JsonOp(op="test", path=f"{place}/key", value="busy"), JsonOp(op="remove", path=place)]
            with suppress(Invalid):  # ours went meanwhile, and the place moved
                await client.patch(NODES, node, steps)

    async with running(client, wanted=True):
        for _ in range(10):
            add = client.patch(NODES, node, [JsonOp(op="add", path="/spec/taints/-", value=other)])
            await asyncio.gather(manage(client, node), add)
            await tainted(client, node, ours=True)
            assert "busy" in await keys()
            await asyncio.gather(client.delete(INSTASLICES, node), take_away())
            await tainted(client, node, ours=False)
            assert "busy" not in await keys()


async def test_a_patch_made_from_an_old_reading_changes_nothing(client, node):
    ours = {"key": TAINT.key, "effect": TAINT.effect}

    async def become(*taints):
        return await client.patch(NODES, node, [JsonOp(op="replace", path="/spec/taints", value=list(taints) or None)])

    bare = await become()
    await become(THEIRS)
    with pytest.raises(Invalid):
        await client.patch(NODES, node, steps_to(bare, wanted=True))

    marked = await client.patch(NODES, node, steps_to(await become(THEIRS), wanted=True))
    without = await become(THEIRS)
    await become(THEIRS, ours)
    with pytest.raises(Invalid):
        await client.patch(NODES, node, steps_to(without, wanted=False))
    assert TAINTED in (await client.get(NODES, node)).metadata.annotations, "or nobody would ever take the taint away"
    await become(ours, THEIRS)
    with pytest.raises(Invalid):
        await client.patch(NODES, node, steps_to(marked, wanted=False))
    left = await client.get(NODES, node)
    assert {"team", TAINT.key} <= {each.key for each in left.spec.taints}
    assert TAINTED in left.metadata.annotations
