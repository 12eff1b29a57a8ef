"""The labels of a static MIG layout on the real API server, beside others who write labels."""

import asyncio
import logging
import random
from contextlib import asynccontextmanager

import pytest
from waiting import until

from instaslice.api import crd, names, nvidia_labels
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import INSTASLICES, GpuStatus, Health, Instaslice, InstasliceStatus
from instaslice.controller.static_mig_labels import MANAGER, StaticMigLabels
from instaslice.geometry import models
from instaslice.kube.cache import Cache
from instaslice.kube.client import Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import NODES
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.kube.watch import Reflector
from instaslice.local.objects import DEFINITIONS, ClusterObjects

COUNT, STRATEGY = "nvidia.com/mig-1g.5gb.count", "nvidia.com/mig.strategy"
OTHERS = {"team": "a", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}


@pytest.fixture(autouse=True)
async def defined(client):
    await client.apply(DEFINITIONS, crd.definition(), manager="test", force=True)

    def missing(cache):
        return [] if any(each.established for each in cache) else [crd.NAME]

    only = Selector(fields=f"metadata.name={crd.NAME}")
    await ClusterObjects(client).until("not established: definition", DEFINITIONS, only, missing)


@pytest.fixture
async def node(client, namespace):
    await client.create(NODES, {"metadata": {"name": namespace, "labels": OTHERS}})
    yield Key("", namespace)
    await client.delete(NODES, Key("", namespace))
    if await client.list(INSTASLICES, Selector(fields=f"metadata.name={namespace}")):
        await client.delete(INSTASLICES, Key("", namespace))


@asynccontextmanager
async def running(client, *, wanted=True):
    """A controller that does nothing but this."""
    clock, rng = SystemClock(), random.Random(0)
    nodes, instaslices = Cache(), Cache()
    parts = [
        Reflector(client, NODES, nodes, clock=clock, rng=rng),
        Reflector(client, INSTASLICES, instaslices, clock=clock, rng=rng),
        StaticMigLabels(client, nodes, instaslices, clock, wanted=wanted),
    ]
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


async def report(client, node, *, model="A100-40GB", gpus=2):
    """What the agent of the node reports."""
    found = models.named(model)
    each = [GpuStatus(uuid=f"GPU-{n}", index=n, model=found.name, health=Health.HEALTHY) for n in range(gpus)]
    status = InstasliceStatus(observed_generation=1, models=(ModelGeometry.of(found),), gpus=tuple(each))
    meta = ObjectMeta(name=node.name)
    await client.apply(INSTASLICES, Instaslice(metadata=meta), manager="agent")
    body = Instaslice(metadata=meta, status=status)
    await client.apply(INSTASLICES, body, manager="agent", subresource="status", force=True)


async def labelled(client, node, **wanted):
    """Return once each label, named by its last part, has this value; None: is not there."""

    async def reached():
        labels = (await client.get(NODES, node)).metadata.labels
        assert labels.items() >= OTHERS.items()
        return all(labels.get({"count": COUNT, "strategy": STRATEGY}[name]) == value for name, value in wanted.items())

    await until(reached, 60)


async def static_labels(client, node):
    labels = (await client.get(NODES, node)).metadata.labels
    return {name: value for name, value in labels.items() if nvidia_labels.of_static_layout(name)}


async def test_a_node_is_labelled_while_it_is_managed(client, node):
    async with running(client):
        await report(client, node)
        await labelled(client, node, count="14", strategy="mixed")
        await report(client, node, gpus=1)
        await labelled(client, node, count="7")
        await client.merge(NODES, node, {"metadata": {"labels": {COUNT: None}}})
        await labelled(client, node, count="7")
        await report(client, node, model="A30")
        await labelled(client, node, count=None, strategy="mixed")
        await client.delete(INSTASLICES, node)
        await labelled(client, node, strategy=None)
    assert await static_labels(client, node) == {}


async def test_without_the_flag_the_labels_of_an_earlier_time_go(client, node):
    await report(client, node)
    async with running(client):
        await labelled(client, node, count="14")
    async with running(client, wanted=False):
        await labelled(client, node, count=None, strategy=None)
    assert await static_labels(client, node) == {}
    assert names.STATIC_MIG_LABELS not in (await client.get(NODES, node)).metadata.annotations


async def test_a_label_of_feature_discovery_is_left_to_it_and_said_once(client, node, caplog):
    """Whoever wrote it first, and whatever it becomes."""
    caplog.set_level(logging.WARNING)
    await client.merge(NODES, node, {"metadata": {"labels": {STRATEGY: "single"}}}, manager="nfd-master")
    async with running(client):
        await report(client, node)
        await labelled(client, node, count="14", strategy="single")
        theirs = {"metadata": {"labels": {COUNT: "2"}}}
        await client.merge(NODES, node, theirs, manager="nfd-master")
        for step in range(5):
            await client.merge(NODES, node, {"metadata": {"labels": {"step": str(step)}}}, manager="kubectl")
        await labelled(client, node, count="2", strategy="single")

        def said():
            return [each for each in caplog.messages if "left to whoever wrote them" in each]

        await until(lambda: len(said()) == 2, 60)
        assert all("nfd-master" in each for each in said())
        assert STRATEGY in said()[0] and COUNT in said()[1]
        await client.merge(NODES, node, {"metadata": {"labels": {STRATEGY: None}}}, manager="nfd-master")
        await labelled(client, node, count="2", strategy="mixed")
    async with running(client, wanted=False):
        await labelled(client, node, strategy=None)
    assert await static_labels(client, node) == {COUNT: "2"}


async def test_a_node_that_has_its_labels_is_not_written_again(client, namespace, node, monkeypatch):
    await report(client, node)
    async with running(client):
        await labelled(client, node, count="14")
    applied, apply = [], client.apply

    async def recorded(resource, body, **more):
        applied.append((more["manager"], resource.document(body)[0].name))
        return await apply(resource, body, **more)

    other = Key("", f"{namespace}-other")
    await client.create(NODES, {"metadata": {"name": other.name, "labels": OTHERS}})
    monkeypatch.setattr(client, "apply", recorded)
    try:
        async with running(client):
            await report(client, other)
            await labelled(client, other, count="14")
    finally:
        await client.delete(NODES, other)
        await client.delete(INSTASLICES, other)
    assert {name for manager, name in applied if manager == MANAGER} == {other.name}
