"""One pod through all our processes."""

import asyncio
import random

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, Instaslice, SliceState
from instaslice.kube.cache import Cache
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import Key
from instaslice.kube.watch import Reflector


async def seen(client, resource, cache, met):
    """Watch until what is there meets a condition."""
    changed = asyncio.Event()
    cache.on_change(lambda _old, _new: changed.set())
    watching = asyncio.create_task(Reflector(client, resource, cache, clock=SystemClock(), rng=random.Random(0)).run())
    try:
        async with asyncio.timeout(60):
            await cache.synced()
            while not met(cache):
                await changed.wait()
                changed.clear()
    finally:
        watching.cancel()


async def test_a_pod_gets_the_slice_it_asked_for_runs_and_gives_it_back(client, namespace):
    limits = {"nvidia.com/mig-2g.10gb": "1"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    meta = {"namespace": namespace, "name": "train", "annotations": {"local.gpu.das.com/run-for": "3s"}}
    await client.create(PODS, {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [container]}})

    key = Key(namespace, "train")

    def runs(cache: Cache[Pod]) -> bool:
        pod = cache.get(key)
        told = pod and pod.condition(names.SLICE_READY)
        return bool(told) and told.status == "True" and pod.status.phase == "Running"

    pods: Cache[Pod] = Cache()
    await seen(client, PODS, pods, runs)
    pod = pods.get(key)
    uuid = pod.metadata.annotations[names.MIG_UUIDS]
    node = await client.get(INSTASLICES, Key("", pod.spec.node_name))
    (made,) = [slice_ for slice_ in node.status.slices if slice_.mig_uuid == uuid]
    assert (made.profile, made.state) == ("2g.10gb", SliceState.CREATED)

    def given_back(cache: Cache[Instaslice]) -> bool:
        return not any(
            each.pod.name == "train" and each.pod.namespace == namespace
            for node in cache
            for each in node.spec.allocations
        )

    await seen(client, PODS, Cache(), lambda cache: cache.get(key).status.phase == "Succeeded")
    await seen(client, INSTASLICES, Cache(), given_back)
