"""Emulated nodes of a test's own, the agent that plays them as a process, and the controller's part played by hand."""

import asyncio
import contextlib
import signal
import sys
import uuid

import msgspec
from waiting import until

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, Allocation, AllocationState, PodRef
from instaslice.geometry import models
from instaslice.kube.client import JsonOp
from instaslice.kube.core import NODES
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key

PATIENCE = 60
ROOM = {"cpu": "64", "memory": "512Gi"}
LABEL = "local.gpu.das.com/test"


def node_manifest(name, group, *, model="A100-40GB", gpus=2):
    return {
        "metadata": {
            "name": name,
            "labels": {LABEL: group, names.EMULATED: model, names.GPU_COUNT: str(gpus)},
        },
        "status": {"capacity": ROOM, "allocatable": ROOM},
    }


class Agent:
    """`instaslice agent` for the nodes of one test; started, killed and started again."""

    def __init__(self, kubeconfig, group, folder):
        self._kubeconfig, self._group, self._folder = kubeconfig, group, folder
        self._process = None

    async def start(self, *flags):
        command = [
            *(sys.executable, "-m", "instaslice.cli", "agent", "--emulated", "--kubeconfig", str(self._kubeconfig)),
            *("--observe", "", "--nodes", f"{LABEL}={self._group}", "--state-dir", str(self._folder), *flags),
        ]
        self._process = await asyncio.create_subprocess_exec(*command)

    async def kill(self):
        """As the kernel would for memory."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def stop(self):
        """As the kubelet would; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    async def end(self):
        if self._process is not None and self._process.returncode is None:
            await self.kill()


class Machine:
    """One node with its Instaslice object; plays the controller."""

    def __init__(self, client, name):
        self.client, self.name, self.key = client, name, Key("", name)

    async def object(self):
        return await self.client.get(INSTASLICES, self.key)

    async def until(self, holds, what="the status"):
        """The object, once `holds(status)` is true of it."""
        thing = None

        async def reached():
            nonlocal thing
            with contextlib.suppress(NotFound):
                thing = await self.object()
            return thing if thing and holds(thing.status) else None

        return await until(reached, PATIENCE, lambda: f"{what} of {self.name}, which is {thing and thing.status}")

    async def serving(self):
        return await self.until(lambda status: bool(status.gpus), "a first report")

    async def write(self, *allocations):
        """The spec, as the controller writes it."""
        generation = (await self.object()).metadata.generation
        spec = {"allocations": msgspec.to_builtins(allocations)}
        await self.client.patch(
            INSTASLICES,
            self.key,
            [
                JsonOp(op="test", path="/metadata/generation", value=generation),
                JsonOp(op="replace", path="/spec", value=spec),
            ],
        )

    async def reported(self, **states):
        """The slices by allocation id, once each is in the state given."""
        wanted = {name.replace("_", "-"): state for name, state in states.items()}

        def holds(status):
            return {each.id: each.state for each in status.slices} == wanted

        return {each.id: each for each in (await self.until(holds, f"slices {wanted}")).status.slices}

    async def foreign(self):
        """The slices that nobody asked for, once there are some."""
        found = await self.until(
            lambda status: any(each.state == "foreign" for each in status.slices), "a foreign slice"
        )
        return [each for each in found.status.slices if each.state == "foreign"]

    async def empty(self):
        return await self.until(lambda status: status.gpus and not status.slices, "no slices")

    async def annotate(self, name, value):
        await self.client.merge(NODES, self.key, {"metadata": {"annotations": {name: value}}})

    async def health(self, index, wanted):
        thing = await self.until(
            lambda status: bool(status.gpus) and status.gpus[index].health == wanted, f"GPU {index} {wanted}"
        )
        return thing.status.gpus[index]


def wanted(thing, name, profile="1g.5gb", start=0, *, gpu=0, state=AllocationState.CREATING):
    """An allocation on a GPU of the node, by index."""
    size = next(each.size for each in models.named(thing.status.gpus[gpu].model).profiles if each.name == profile)
    pod = PodRef(namespace="default", name=name, uid=str(uuid.uuid5(uuid.NAMESPACE_OID, name)))
    return Allocation(
        id=name,
        pod=pod,
        container="main",
        profile=profile,
        gpu=thing.status.gpus[gpu].uuid,
        start=start,
        size=size,
        state=state,
    )


def now(allocation, state):
    return msgspec.structs.replace(allocation, state=state)
