"""A stage for one story: nodes of its own, pods with slices on them, and waiting by watch for what becomes of them.

Nodes are added to the shared cluster, each story's with a label of its own that its pods select, so that stories
need no cluster each and know exactly what room there is.
"""

import asyncio
import random
from contextlib import asynccontextmanager

import manifests

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, SliceState
from instaslice.geometry import models
from instaslice.kube.cache import Cache
from instaslice.kube.client import Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import EVENTS, NODES, PODS
from instaslice.kube.meta import Key, is_older, key_of
from instaslice.kube.watch import Reflector
from instaslice.local import components, nodes
from instaslice.local.objects import accepts_pods

PATIENCE = 90.0
"""Seconds after which a wait counts as hung: longer than the agent keeps a slice that nobody owns, which is 60. Nothing
asserts on how long anything took."""
STORY = "local.gpu.das.com/story"
"""Label of the nodes of one story."""


def container(name="main", slices="1g.5gb", **requests):
    """`slices` is a profile, or {resource or profile: quantity}; the rest are requests and limits of other things."""
    wanted = {slices: 1} if isinstance(slices, str) else slices
    limits = {each if "/" in each else f"nvidia.com/mig-{each}": str(count) for each, count in wanted.items()}
    limits |= {each.replace("_", "-"): text for each, text in requests.items()}
    return manifests.container(name, limits=limits)


def pod(name, slices="1g.5gb", *, run_for="", exit_code="", annotations=None, requests=None, **spec):
    """A pod of one container unless `containers` are given; without `run_for` it runs until it is deleted."""
    told = {"run-for": run_for, "exit-code": exit_code}
    played = {f"local.gpu.das.com/{key}": text for key, text in told.items() if text}
    spec = {"restartPolicy": "Never", "containers": [container("main", slices, **(requests or {}))], **spec}
    return manifests.pod(name, annotations={**played, **(annotations or {})}, **spec)


class Stage:
    """What a story does and sees. `pods`, `nodes`, `things` (Instaslice objects) and `events` follow the server."""

    def __init__(self, client, namespace):
        self.client, self.namespace = client, namespace
        self.pods, self.nodes, self.things, self.events = Cache(), Cache(), Cache(), Cache()
        self.own = []
        """Names of the story's nodes."""
        self._changed = asyncio.Event()
        for cache in (self.pods, self.nodes, self.things, self.events):
            cache.on_change(self._hear)

    def _hear(self, _old, _new):
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @asynccontextmanager
    async def following(self):
        async with asyncio.TaskGroup() as group:
            watching = []
            for resource, cache, selector in self.watched():
                reflector = Reflector(
                    self.client, resource, cache, clock=SystemClock(), rng=random.Random(1), selector=selector
                )
                watching.append(group.create_task(reflector.run()))
            async with asyncio.timeout(PATIENCE):
                for _, cache, _ in self.watched():
                    await cache.synced()
            yield self
            for task in watching:
                task.cancel()

    def watched(self):
        """What the story follows: resource, cache and selector."""
        here = Selector(namespace=self.namespace)
        watched = [(PODS, self.pods, here), (EVENTS, self.events, here)]
        return [*watched, (NODES, self.nodes, Selector()), (INSTASLICES, self.things, Selector())]

    async def until(self, what, find, seconds=PATIENCE):
        """What `find()` gives once it gives something. Fails with what the story sees then."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    changed = self._changed
                    if found := find():
                        return found
                    await changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what} did not come about:\n{self}") from None

    def __str__(self):
        lines = []
        for each in self.pods:
            said = each.condition(names.SLICE_READY)
            words = f"{said.reason}: {said.message}" if said else "nothing said"
            lines.append(f"pod {each.metadata.name} {each.status.phase} on {each.spec.node_name or 'no node'}, {words}")
        for name in self.own:
            if thing := self.thing(name):
                lines += [f"{name}: {each.id} {each.profile}@{each.start} {each.state}" for each in self._of(thing)]
                lines += [f"{name}: {each.id} is {each.state} {each.reason}" for each in thing.status.slices]
        return "\n".join(lines)

    def _of(self, thing):
        return [each for each in thing.spec.allocations if each.pod.namespace == self.namespace]

    # Nodes ----------------------------------------------------------------------------------------------------------

    async def node(self, gpus=1, *, model="A100-40GB", taints=(), labels=None, **resources):
        """The name of a new node, once it takes pods and its GPUs are reported."""
        name = f"{self.namespace}-{len(self.own)}"
        self.own.append(name)
        made = nodes.manifest(0, gpus, models.named(model), components.KUBERNETES)
        made["metadata"]["name"] = name
        made["metadata"]["labels"] |= {"kubernetes.io/hostname": name, STORY: self.namespace, **(labels or {})}
        told = {each.replace("_", "-"): text for each, text in resources.items()}
        made["status"]["capacity"] = made["status"]["allocatable"] = {**made["status"]["allocatable"], **told}
        await self.client.apply(
            NODES, {"metadata": made["metadata"], "spec": {"taints": list(taints)}}, manager="story", force=True
        )
        await self.client.apply(NODES, made, manager="story", force=True, subresource="status")
        await self.until(f"node {name}", lambda: self._serves(name, gpus))
        return name

    def _serves(self, name, gpus):
        node, thing = self.nodes.get(Key("", name)), self.thing(name)
        told = node and accepts_pods(node) and names.MEMORY in node.status.allocatable
        return told and thing and len(thing.status.gpus) == gpus

    async def some_nodes(self, count, gpus=1, **shape):
        async with asyncio.TaskGroup() as group:
            made = [group.create_task(self.node(gpus, **shape)) for _ in range(count)]
        return [each.result() for each in made]

    def thing(self, node):
        """The Instaslice object of a node."""
        return self.things.get(Key("", node))

    async def fault(self, node, text):
        """What ails the GPUs of a node from now on; see `agent/faults.py`. Its agent has heard of it then."""
        key = Key("", node)
        await self.client.merge(NODES, key, {"metadata": {"annotations": {names.FAULT: text or None}}})
        if not text:
            return
        # It removes what it does not advertise as soon as it has seen the node, and the fault came before that.
        foreign = f"{names.RESOURCE}9g.90gb"
        status = {"allocatable": {foreign: "1"}, "capacity": {foreign: "1"}}
        written = await self.client.merge(NODES, key, {"status": status}, subresource="status")
        await self.until(f"node {node} heard of {text}", lambda: self._removed(foreign, written))

    def _removed(self, resource, written):
        """Whether somebody removed this resource from the node since it was written like that."""
        now = self.nodes.get(key_of(written))
        seen = not is_older(now.metadata.resource_version, written.metadata.resource_version)
        return seen and resource not in now.status.allocatable

    # Pods -----------------------------------------------------------------------------------------------------------

    async def create(self, *documents):
        """Pods, on the story's own nodes unless they say otherwise."""
        for document in documents:
            document["metadata"]["namespace"] = self.namespace
            document["spec"].setdefault("nodeSelector", {STORY: self.namespace})
        return await asyncio.gather(*(self.client.create(PODS, each) for each in documents))

    def pod(self, name):
        return self.pods.get(Key(self.namespace, name))

    async def delete(self, *pods, **options):
        await asyncio.gather(*(self.client.delete(PODS, Key(self.namespace, each), **options) for each in pods))

    async def phase(self, name, *wanted):
        """The pod once it is in one of these phases."""
        there = f"pod {name} {' or '.join(wanted)}"
        return await self.until(there, lambda: (found := self.pod(name)) and found.status.phase in wanted and found)

    async def running(self, *pods):
        """The pods once they run. Their slices are known to the story then, which hears of them by another watch."""
        found = [await self.phase(each, "Running") for each in pods]
        for each in found:
            await self.until(f"slices of {each.metadata.name}", lambda each=each: self._knows_slices(each))
        return found

    def _knows_slices(self, pod):
        uuids = pod.metadata.annotations.get(names.MIG_UUIDS, "")
        made = {one.mig_uuid for thing in self.things for one in thing.status.slices}
        return not uuids or (self.held(pod.metadata.name) and made.issuperset(uuids.split(",")))

    async def ungated(self, name):
        await self.until(f"pod {name} ungated", lambda: (pod := self.pod(name)) and not pod.spec.scheduling_gates)

    async def bound(self, name):
        await self.until(f"pod {name} bound", lambda: (found := self.pod(name)) and found.spec.node_name)

    async def gone(self, *pods):
        for name in pods:
            await self.until(f"end of {name}", lambda name=name: self.pod(name) is None)

    async def said(self, name, reason):
        """The condition of the pod once it has this reason."""

        def find():
            found = self.pod(name)
            told = found and found.condition(names.SLICE_READY)
            return told if told and told.reason == reason else None

        return await self.until(f"pod {name}: {reason}", find)

    async def event(self, name, reason):
        """What an Event on the pod says for this reason."""

        def find():
            return next((e.note for e in self.events if (e.regarding.name, e.reason) == (name, reason)), None)

        return await self.until(f"event {reason} on {name}", find)

    async def waits(self, name):
        """Why a pod waits, in the words of its condition; an Event says the same. Another says what it waited for
        before, where that was something else."""
        told = await self.said(name, "Waiting")
        assert told.status == "False"
        says = (name, "Waiting", told.message)
        await self.until(
            f"event {says}", lambda: any((e.regarding.name, e.reason, e.note) == says for e in self.events)
        )
        assert not self.pod(name).spec.node_name
        return told.message

    # Slices ---------------------------------------------------------------------------------------------------------

    def held(self, name=None):
        """The allocations of a pod, or of all pods of the story, in their order."""
        return [each for thing in self.things for each in self._of(thing) if name is None or each.pod.name == name]

    def present(self, name=None):
        """Those of them whose slices are not gone."""
        gone = {each.id for each in self._reported() if each.state is SliceState.DELETED}
        return [each for each in self.held(name) if each.id not in gone]

    async def allocated(self, name, *states):
        """The pod's allocations whose slices are not gone, once they are in just these states, in any order. `created`
        and `ungated` are for people to read and are written late: a story waits for what they tell of."""

        def find():
            found = self.present(name)
            return found if sorted(each.state for each in found) == sorted(states) else None

        return await self.until(f"allocations of {name} {states}", find)

    async def free(self):
        """Return once nothing is left on the story's nodes and no pod of the story is promised anything. Entries of
        slices that are gone stay until the controller or the agent writes again: no story waits for that."""

        def find():
            ending = not self.present() and not any(each.wanted for each in self.held())
            return ending and all(each.state is SliceState.DELETED for each in self._reported())

        await self.until("slots back", find)

    async def pruned(self):
        """Return once nothing is written any more of any slice of the story."""
        await self.until("entries pruned", lambda: not self.held())

    def _reported(self):
        return [each for name in self.own if (thing := self.thing(name)) for each in thing.status.slices]

    async def clear(self):
        """All pods gone and all slots back. The nodes stay: nobody else's pods select them."""
        for name in self.own:
            if (node := self.nodes.get(Key("", name))) and names.FAULT in node.metadata.annotations:
                await self.fault(name, "")
        await self.client.raw("DELETE", PODS.path(self.namespace))
        await self.until("no pods", lambda: not len(self.pods))
        await self.free()
