"""An `AgentProcess` on a clock that moves by hand, with an API server in memory: objects as JSON, patches, watches."""

import asyncio
import copy
import json
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import manifests
import msgspec
from agent_bench import MortalDriver
from fake_clock import FakeClock
from prometheus_client import CollectorRegistry

from instaslice.agent.agent_process import AgentProcess
from instaslice.agent.emulation import Emulation
from instaslice.agent.gpu_worker import OrphanPolicy
from instaslice.agent.job_mapping import JobMapping
from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, Allocation, AllocationState, PodRef
from instaslice.geometry import models
from instaslice.kube.client import Selector
from instaslice.kube.core import NODES, PODS
from instaslice.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from instaslice.kube.meta import Key
from instaslice.kube.observer import UNOBSERVED

MODEL = "A100-40GB"


class Server:
    """The verbs that an agent uses. A write takes `took` seconds, is refused by `error`, and is noted in `written`."""

    observer = UNOBSERVED

    def __init__(self, clock):
        self._clock = clock
        self._objects = {}
        self._watches = []
        self._version = 0
        self.took, self.error = 0.0, None
        self.written = []
        """(kind, name, what was sent) of every patch and merge that was taken."""
        self.created, self.deleted, self.listed, self.events = [], [], [], []

    # What a test does and sees --------------------------------------------------------------------------------------

    def put(self, resource, document):
        """As somebody else would write it, uid and generation included. The watches tell of it."""
        key = _key(document)
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        known = (resource, key) in self._objects
        self._objects[resource, key] = document
        self._tell(resource, "MODIFIED" if known else "ADDED", document)

    def take(self, resource, name):
        """Gone."""
        last = self._objects.pop((resource, Key("", name)))
        self._version += 1
        last["metadata"]["resourceVersion"] = str(self._version)
        self._tell(resource, "DELETED", last)

    def get(self, resource, name):
        """A copy, to be changed and put back; None where there is none."""
        return copy.deepcopy(self._objects.get((resource, Key("", name))))

    # The verbs ------------------------------------------------------------------------------------------------------

    async def pages(self, resource, selector):
        found = [each for (kind, _), each in self._objects.items() if kind is resource]
        page = {"metadata": {"resourceVersion": str(self._version)}, "items": found}
        yield resource.page_decoder.decode(json.dumps(page))

    @asynccontextmanager
    async def watch(self, resource, selector, params, *, silent_after):
        if "sendInitialEvents" in params:
            raise Invalid("a server without watch lists")
        made = _Watch(resource)
        self._watches.append(made)
        yield made

    async def list(self, resource, selector):
        self.listed.append((resource.plural, selector.fields))
        await self._answer()
        return [
            resource.decoder.decode(json.dumps(each)) for (kind, _), each in self._objects.items() if kind is resource
        ]

    async def create(self, resource, body):
        if resource not in (NODES, INSTASLICES):
            self.events.append(body)
            return None
        await self._answer()
        document = msgspec.to_builtins(body)
        if (resource, _key(document)) in self._objects:
            raise AlreadyExists("it is there")
        document["metadata"] |= {"uid": f"made-{self._version}", "generation": 1}
        self.created.append(document)
        self.put(resource, document)
        return resource.decoder.decode(json.dumps(document))

    async def delete(self, resource, key, *, uid=""):
        await self._answer()
        there = self._there(resource, key)
        if uid and there["metadata"]["uid"] != uid:
            raise Conflict("another by now")
        self.deleted.append(key.name)
        self.take(resource, key.name)

    async def patch(self, resource, key, ops, *, manager="", subresource=""):
        await self._answer()
        document = copy.deepcopy(self._there(resource, key))
        for op in json.loads(msgspec.json.encode(ops)):
            *parents, last = op["path"].strip("/").split("/")
            part = document
            for each in parents:
                if each not in part:
                    raise Invalid(f"{op['path']} has no parent")
                part = part[each]
            match op["op"]:
                case "test" if part.get(last) != op["value"]:
                    raise Invalid(f"testing path {op['path']} failed")
                case "add" | "replace":
                    part[last] = op["value"]
                case "remove":
                    del part[last]
        self.written.append((resource.plural, key.name, [op for op in ops if op.op != "test"]))
        self.put(resource, document)
        return resource.decoder.decode(json.dumps(document))

    async def merge(self, resource, key, body, *, manager="", subresource=""):
        await self._answer()
        document = copy.deepcopy(self._there(resource, key))
        if body["metadata"]["uid"] != document["metadata"]["uid"]:
            raise Conflict("another by now")
        for part, values in body["status"].items():
            document["status"][part] = {
                name: value
                for name, value in {**document["status"].get(part, {}), **values}.items()
                if value is not None
            }
        self.written.append((resource.plural, key.name, body))
        self.put(resource, document)

    # Inside ---------------------------------------------------------------------------------------------------------

    async def _answer(self):
        await self._clock.sleep(self.took)
        if self.error is not None:
            raise self.error

    def _there(self, resource, key):
        try:
            return self._objects[resource, key]
        except KeyError:
            raise NotFound(f"no {resource.plural} {key}") from None

    def _tell(self, resource, kind, document):
        line = json.dumps({"type": kind, "object": document}).encode() + b"\n"
        for each in self._watches:
            if each.resource is resource:
                each.lines.put_nowait(line)


class _Watch:
    def __init__(self, resource):
        self.resource = resource
        self.lines = asyncio.Queue()

    async def read(self):
        return await self.lines.get()

    async def gather(self, seconds):
        """Nothing more comes at this moment."""


def _key(document):
    return Key(document["metadata"].get("namespace", ""), document["metadata"]["name"])


@dataclass(frozen=True)
class Rack(Emulation):
    """GPUs that outlive the agent, as hardware does."""

    drivers: dict = field(default_factory=dict)
    forgotten: list = field(default_factory=list)
    looks: list = field(default_factory=list)
    """The names of the nodes that were looked at."""

    def gpus(self, node):
        self.looks.append(node.metadata.name)
        return super().gpus(node)

    def driver(self, node):
        gpus = self.gpus(node)
        made = MortalDriver(node.metadata.name, [models.named(gpus.model)] * gpus.number)
        return self.drivers.setdefault((node.metadata.uid, gpus), made)

    def forget(self, node):
        self.forgotten.append(node.metadata.uid)


class Bench:
    """Nodes, their objects and the agent that serves them. Use within `async with`."""

    def __init__(self, devices=None, jobs=None, **orphan_policy):
        """`jobs` is the folder in which dcgm-exporter is told of pods."""
        self.jobs = jobs
        self.clock = FakeClock()
        self.server = Server(self.clock)
        self.rack = Rack()
        self.devices, self._orphan_policy = devices, OrphanPolicy(**orphan_policy)
        self._running = None

    async def __aenter__(self):
        self.start()
        await self.passes(0)
        return self

    async def __aexit__(self, *_):
        await self.stop()

    def start(self):
        self.registry = CollectorRegistry()
        self.agent = AgentProcess(
            self.server,
            self.rack,
            selector=Selector(),
            clock=self.clock,
            rng=random.Random(1),
            orphan_policy=self._orphan_policy,
            devices=self.devices,
            registry=self.registry,
            job_mapping=JobMapping(self.jobs) if self.jobs else None,
        )
        self._running = asyncio.create_task(self.agent.run())

    async def stop(self):
        self._running.cancel()
        await asyncio.wait([self._running])
        if not self._running.cancelled():
            self._running.result()  # it had failed before

    async def restart(self):
        await self.stop()
        self.start()
        await self.passes(0)

    async def passes(self, seconds):
        """Time goes by, in steps small enough that what is asked for meanwhile is done in its time."""
        end = self.clock.monotonic() + seconds
        while True:
            # No sleep: as many turns of the loop as the longest chain of tasks needs.
            for _ in range(50):
                await asyncio.sleep(0)
            left = end - self.clock.monotonic()
            if left <= 1e-9:
                assert not self._running.done(), self._running.result()
                return
            self.clock.advance(min(0.25, left))

    # Nodes ----------------------------------------------------------------------------------------------------------

    async def node(self, name="node", *, uid="one", gpus=1, model=MODEL, annotations=None):
        """Its driver, once its object is reported."""
        labels = {names.EMULATED: model, names.GPU_COUNT: str(gpus)}
        meta = {"name": name, "uid": uid, "labels": labels, "annotations": annotations or {}}
        room = {"cpu": "8", "memory": "64Gi"}
        self.server.put(NODES, {"metadata": meta, "status": {"capacity": dict(room), "allocatable": dict(room)}})
        await self.passes(0)
        return next((each for (owner, _), each in self.rack.drivers.items() if owner == uid), None)

    def pod(self, name, *uuids, phase="Running", node="node"):
        given = {names.MIG_UUIDS: ",".join(uuids)}
        made = manifests.pod(name, namespace="team", annotations=given, nodeName=node)
        made["metadata"]["uid"] = f"uid-{name}"
        self.server.put(PODS, {**made, "status": {"phase": phase}})

    # The object -----------------------------------------------------------------------------------------------------

    def object(self, name="node"):
        return INSTASLICES.decoder.decode(json.dumps(self.server.get(INSTASLICES, name)))

    def states(self, name="node"):
        return {each.id: each.state.value for each in self.object(name).status.slices}

    def condition(self, kind, name="node"):
        return next((each for each in self.object(name).status.conditions if each.type == kind), None)

    def promise(self, *allocations, name="node"):
        """The spec, as the controller writes it."""
        document = self.server.get(INSTASLICES, name)
        document["metadata"]["generation"] += 1
        document["spec"] = {"allocations": msgspec.to_builtins(allocations)}
        self.server.put(INSTASLICES, document)

    def patches(self):
        """The patches of statuses since the last call, each as the paths that it wrote."""
        found = [[op.path for op in ops] for kind, _, ops in self.server.written if kind == INSTASLICES.plural]
        self.server.written.clear()
        return [each for each in found if each != ["/metadata/managedFields"]]


def wants(driver, name, start=0, state="creating", profile="1g.5gb", gpu=0):
    card = driver.discover()[gpu]
    return Allocation(
        id=name,
        pod=PodRef(namespace="team", name=name, uid=f"uid-{name}"),
        container="main",
        profile=profile,
        gpu=card.uuid,
        start=start,
        size=card.model.profile(profile).size,
        state=AllocationState(state),
    )


def there(driver, gpu=0):
    """What is on the hardware."""
    return [(each.placement.profile, each.placement.start) for each in driver.slices(driver.discover()[gpu].uuid)]
