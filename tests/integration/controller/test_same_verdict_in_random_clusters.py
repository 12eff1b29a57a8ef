"""kube-scheduler binds a pod to a node that we would choose, and binds it to none if and only if we find none.

Each pod is judged by us while it is gated, then let go. Six of ten name their node, so that node by node verdicts are
compared; the others may go anywhere. `INSTASLICE_VERDICTS` is how many pods (`make verdicts`: 1,000), and
`INSTASLICE_SEED` brings back a run that is printed.
"""

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress

from random_clusters import Generator

from instaslice.controller.node_admission import refusal
from instaslice.controller.scheduling.filters import Filters
from instaslice.kube.cache import Cache
from instaslice.kube.client import JsonOp
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import NAMESPACES, NODES, PODS
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key, key_of
from instaslice.kube.storage import (
    CLAIMS,
    CLASSES,
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    SELECTED_NODE,
    STORAGE_KINDS,
    VOLUMES,
)
from instaslice.kube.watch import Reflector
from instaslice.local.objects import ClusterObjects, accepts_pods

COUNT = int(os.environ.get("INSTASLICE_VERDICTS", "150"))
AMOUNTS = {"cpu": "1k", "memory": "1Ti", "pods": "10k"}
MOST_BOUND = 30
"""Pods that run at one time: so many that most filters have something to refuse, and something to admit."""
KINDS_OF_REFUSAL = (
    "pod anti-affinity",
    "pod affinity",
    "topology spread",
    "host port",
    "uses its disk",
    "its volume",
    "no volume of class",
    "PersistentVolumeClaim",
    "",
)
"""By words of the refusal; the last is all the rest."""
SETTLES = 15.0
"""Seconds in which the scheduler has to come to our verdict where it has seen less than we did."""


class Watched:
    """The cluster as the controller sees it."""

    def __init__(self, client):
        self.client = client
        self.caches = {kind: Cache() for kind in (NODES, PODS, NAMESPACES, *STORAGE_KINDS)}
        self.nodes = {}
        self.filters = Filters(self.nodes)
        self.changed = asyncio.Event()
        self.caches[NODES].on_change(self._node)
        self.caches[PODS].on_change(self._pod)
        self.caches[NAMESPACES].on_change(self.filters.namespace_changed)
        for kind in STORAGE_KINDS:
            self.caches[kind].on_change(self.filters.storage_changed)
        for cache in self.caches.values():
            cache.on_change(self._hear)

    def _node(self, old, new):
        if new is None:
            del self.nodes[old.metadata.name]
        else:
            self.nodes[new.metadata.name] = new
        self.filters.node_changed(old, new)

    def _pod(self, old, new):
        if new is None or new.ended:
            self.filters.remove((new or old).metadata.uid)
        elif new.spec.node_name:
            self.filters.assign(new, new.spec.node_name)

    def _hear(self, _old, _new):
        self.changed.set()

    async def until(self, what, find, seconds=60.0):
        try:
            async with asyncio.timeout(seconds):
                while not (found := find()):
                    self.changed.clear()
                    await self.changed.wait()
                return found
        except TimeoutError:
            raise AssertionError(f"{what} did not come about") from None

    def get(self, kind, namespace, name):
        return self.caches[kind].get(Key(namespace, name))

    def judged(self, pod):
        """Node → why not; None where the pod would be bound."""
        verdict = self.filters.for_pod(pod)
        return {name: refusal(pod, node) or verdict(name) for name, node in self.nodes.items()}


async def test_every_pod_is_bound_as_we_would(client, namespace):
    seed = int(os.environ.get("INSTASLICE_SEED", random.randrange(2**32)))
    print(f"INSTASLICE_SEED={seed}")
    made = Generator(random.Random(seed), namespace)
    watched = Watched(client)
    async with asyncio.TaskGroup() as group:
        for kind, cache in watched.caches.items():
            reflector = Reflector(client, kind, cache, clock=SystemClock(), rng=random.Random(1))
            group.create_task(reflector.run())
        tasks = list(group._tasks)
        for cache in watched.caches.values():
            await cache.synced()
        try:
            await _build(watched, made)
            said = Counter()
            differ = [each for _ in range(COUNT) if (each := await _compare(watched, made, said))]
        finally:
            await _clear(client, made)
            for task in tasks:
                task.cancel()
    print(f"seed {seed}, {COUNT} pods: {said}")
    assert not differ, f"INSTASLICE_SEED={seed}: {len(differ)} of {COUNT} differ:\n" + "\n".join(differ)
    # A few pods need not meet every filter; a thousand do.
    assert {"bound", "refused", *(KINDS_OF_REFUSAL[:8] if COUNT >= 1000 else ())} <= set(said), said


async def _compare(watched, made, said):
    """Of one pod: what differs, "" where nothing does."""
    client, case = watched.client, made.case()
    meta = case.pod["metadata"]
    key = Key(meta["namespace"], meta["name"])
    await _claims(watched, case)
    await client.create(PODS, case.pod)
    pod = await watched.until(f"pod {key}", lambda: watched.get(PODS, *key))
    for volume in case.pod["spec"].get("volumes", ()):
        if "ephemeral" in volume:
            name = f"{key.name}-{volume['name']}"
            await watched.until(f"claim {name}", lambda name=name: watched.get(CLAIMS, key.namespace, name))
    ours = watched.judged(pod)
    fit = {name for name, why in ours.items() if why is None}
    await client.patch(PODS, key, [JsonOp(op="remove", path="/spec/schedulingGates")], manager="test")
    node = await watched.until(f"verdict on {key}", lambda: _verdict(watched, key))
    with suppress(AssertionError):
        if node == "none" and fit:
            node = await watched.until("another", lambda: _bound_to(watched, key), SETTLES)
    right = node in fit if node != "none" else not fit
    if not right and "may attach" in (ours.get(node) or ""):
        # Volumes of pods that are gone are detached at any time.
        right = watched.judged(pod)[node] is None
    for why in ours.values():
        said.update({_kind(why): 1} if why else {})
    said["bound" if node != "none" else "refused"] += 1
    told = watched.get(PODS, *key).condition("PodScheduled")
    if node == "none" or made.rng.random() < 0.2 or not _bound(watched, key):
        await _remove(watched, key)
    running = [each for each in watched.caches[PODS] if each.metadata.namespace in made.namespaces]
    if len(running) > MOST_BOUND:
        await _remove(watched, key_of(made.rng.choice(sorted(running, key=key_of))))
    return "" if right else f"{key}: the scheduler says {node} ({told}), we {ours}\n{case}"


async def _claims(watched, case):
    client, namespace = watched.client, case.pod["metadata"]["namespace"]
    for each in case.volumes:
        await client.create(VOLUMES, each)
    for each in case.claims:
        await client.create(CLAIMS, each)
    for each in case.volumes:
        name = each["metadata"]["name"]
        await watched.until(f"volume {name}", lambda name=name: _phase(watched.get(VOLUMES, "", name)) != "Pending")
    for each in case.claims:
        name = each["metadata"]["name"]
        await watched.until(f"claim {name}", lambda name=name: watched.get(CLAIMS, namespace, name))
        if name in case.deleted:
            await client.delete(CLAIMS, Key(namespace, name))
            await watched.until(
                "deletion",
                lambda name=name: watched.get(CLAIMS, namespace, name).metadata.deletion_timestamp,
            )
        if name in case.bound:
            await watched.until(f"claim {name} bound", lambda name=name: watched.get(CLAIMS, namespace, name).bound)
            await watched.until(
                f"claim {name} Bound",
                lambda name=name: _phase(watched.get(CLAIMS, namespace, name)) == "Bound",
            )
        if name in case.lost:
            volume = watched.get(CLAIMS, namespace, name).spec.volume_name
            await client.delete(VOLUMES, Key("", volume))
            with suppress(NotFound):
                await client.merge(VOLUMES, Key("", volume), {"metadata": {"finalizers": None}})
            await watched.until("loss", lambda name=name: _phase(watched.get(CLAIMS, namespace, name)) == "Lost")


def _phase(thing):
    return thing.status.phase if thing is not None else "Pending"


def _bound(watched, key):
    return watched.get(PODS, *key).spec.node_name


def _bound_to(watched, key):
    """Where the pod is bound, or where the scheduler has a volume made for it."""
    pod = watched.get(PODS, *key)
    if pod.spec.node_name:
        return pod.spec.node_name
    for each in pod.spec.volumes or ():
        source = each.persistent_volume_claim
        claim = watched.get(CLAIMS, key.namespace, source.claim_name if source else f"{key.name}-{each.name}")
        if claim is not None and not claim.spec.volume_name and SELECTED_NODE in claim.metadata.annotations:
            return claim.metadata.annotations[SELECTED_NODE]
    return ""


def _verdict(watched, key):
    if node := _bound_to(watched, key):
        return node
    told = watched.get(PODS, *key).condition("PodScheduled")
    return "none" if told is not None and told.reason in ("Unschedulable", "SchedulerError") else ""


def _kind(why):
    return next(kind for kind in KINDS_OF_REFUSAL if kind in why)


async def _remove(watched, key):
    with suppress(NotFound):
        await watched.client.delete(PODS, key, grace_seconds=0)
    await watched.until(f"end of {key}", lambda: watched.get(PODS, *key) is None)


async def _build(watched, made):
    client = watched.client
    for kind, documents in (
        (NAMESPACES, made.namespace_documents()),
        (CLASSES, made.class_documents()),
        (CSI_DRIVERS, made.driver_documents()),
        (CSI_CAPACITIES, made.capacity_documents()),
        (NODES, made.node_documents()),
    ):
        for document in documents:
            await client.create(kind, document)
    for name in made.namespaces[1:]:
        await ClusterObjects(client).namespace_ready(name)
    for name in made.nodes:
        status = {"metadata": {"name": name}, "status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}}
        await client.apply(NODES, status, manager="test", force=True, subresource="status")
    await watched.until("nodes", lambda: all(name in watched.nodes for name in made.nodes))
    for document in made.csi_node_documents({name: watched.nodes[name].metadata.uid for name in made.nodes}):
        await client.create(CSI_NODES, document)
    await watched.until("nodes", lambda: all(accepts_pods(watched.nodes[name]) for name in made.nodes))


async def _clear(client, made):
    for name in made.namespaces:
        await client.raw("DELETE", PODS.path(name), params={"gracePeriodSeconds": "0"})
        for claim in await client.list(CLAIMS):
            if claim.metadata.namespace == name:
                await client.merge(CLAIMS, key_of(claim), {"metadata": {"finalizers": None}})
    for name in made.namespaces[1:]:
        await client.delete(NAMESPACES, Key("", name))
    for kind in (CSI_NODES, NODES, VOLUMES, CLASSES, CSI_DRIVERS):
        for each in await client.list(kind):
            if made.prefix in each.metadata.name:
                with suppress(NotFound):
                    await client.delete(kind, key_of(each))
