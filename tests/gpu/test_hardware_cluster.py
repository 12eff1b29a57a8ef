"""Controller and agent on a real API server, with slices on a real GPU: pods in, slices out, whoever is killed.

Needs etcd and kube-apiserver in the folder KUBEBUILDER_ASSETS. The kubelet is played, and only listens: what a real one
does with a pod that is let go is shown by tests/integration/node.
"""

import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs all of our dependencies, see scripts/carry_for_gpu")

from kubelets import Listener
from waiting import until

from instaslice.api import crd, names
from instaslice.api.instaslice import INSTASLICES
from instaslice.doctor import check
from instaslice.kube.client import Client, JsonOp, Selector
from instaslice.kube.core import NAMESPACES, NODES, PODS, PartialObjectMetadata
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.local import binaries, ports
from instaslice.local.control_plane import PORTS, ControlPlane
from instaslice.local.layout import Layout
from instaslice.local.objects import DEFINITIONS, ClusterObjects
from instaslice.local.process import Processes

NODE = "real-gpu"
ROUNDS = 8
WITHIN_S = 60
IDLE_S = 20
PATIENCE = ["--grace", "3", "--deadline", "5"]
ACCOUNTS = Resource(PartialObjectMetadata, "ServiceAccount", "serviceaccounts")
AMOUNTS = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "50Gi", "pods": "110"}
READY_NOW = ("True", "Serving")
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Test",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def plane(tmp_path, monkeypatch):
    """An API server and its store, and nothing else of Kubernetes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    if not all((assets / name).exists() for name in ("etcd", "kube-apiserver")):
        pytest.skip("needs etcd and kube-apiserver: name their folder in KUBEBUILDER_ASSETS")
    layout = Layout.of("gpu")
    layout.root.mkdir(parents=True)
    programs = {name: assets / name for name in binaries.CONTROL_PLANE}
    made = ControlPlane(layout, dict(zip(PORTS, ports.choose(len(PORTS), set()), strict=True)), programs)
    made.prepare()
    processes = Processes(layout)
    for name in ("etcd", "kube-apiserver"):
        processes.start(name, made.commands()[name])
    processes.wait("kube-apiserver", made.ready("kube-apiserver"))
    yield made
    processes.kill_all()


@pytest.fixture
def home():
    """Not pytest's own folder: the path of a socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


class Ours:
    """Our two processes, to be killed and started."""

    def __init__(self, plane, home, gpu):
        kubeconfig = ["--kubeconfig", str(plane.layout.kubeconfig)]
        folders = {"--kubelet-dir": "kubelet", "--cdi-dir": "cdi", "--state-dir": "state"}
        places = [word for flag, folder in folders.items() for word in (flag, str(home / folder))]
        self._lines = {
            "controller": ["controller", "--identity", "one", *kubeconfig],
            "agent": ["agent", "--node", NODE, "--gpus", gpu, "--enable-mig", *PATIENCE, *places, *kubeconfig],
        }
        self._home = home
        self._running = {}
        self.hang = home / "hang"
        """While this file is there, the GPU does not answer an agent that looks for it."""

    def start(self, name):
        hanging = [Path(__file__).parent / "hanging_agent.py", self.hang]
        program = hanging if name == "agent" else ["-m", "instaslice.cli"]
        with (self._home / f"{name}.log").open("ab") as log:
            line = [sys.executable, *program, *self._lines[name]]
            self._running[name] = subprocess.Popen(line, stdout=log, stderr=log)

    def kill(self, *names_):
        for name in names_:
            running = self._running.pop(name, None)
            if running is not None:
                running.kill()
                running.wait()

    def cost(self, name):
        """Seconds of CPU so far, and memory in MiB."""
        proc = Path(f"/proc/{self._running[name].pid}")
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        ticks, pages = int(fields[11]) + int(fields[12]), int((proc / "statm").read_text().split()[1])
        return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def again(self, name):
        self.kill(name)
        self.start(name)


def on_gpu():
    """The slices that NVIDIA's own tool lists."""
    told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"MIG-[0-9a-f-]+", told))


def pod(name, profile):
    resources = {"limits": {f"{names.RESOURCE}{profile}": "1"}, "requests": {"cpu": "10m"}}
    return {
        "metadata": {"namespace": "default", "name": name, "annotations": {names.REQUESTED: "{}"}},
        "spec": {
            "schedulingGates": [{"name": names.GATE}],
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }


async def furnish(client):
    """What a controller-manager and a kubelet would put there."""
    await client.apply(DEFINITIONS, crd.definition(), manager="test", force=True)
    await ClusterObjects(client).until(
        "not established: definition",
        DEFINITIONS,
        Selector(),
        lambda cache: [] if any(each.established for each in cache) else [crd.NAME],
    )
    await client.create(NAMESPACES, {"metadata": {"name": names.NAMESPACE}})
    await client.create(ACCOUNTS, {"metadata": {"namespace": "default", "name": "default"}})
    await client.create(NODES, {"metadata": {"name": NODE}})
    status = {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [READY]}
    await client.strategic_merge(NODES, Key("", NODE), {"status": status}, subresource="status")
    await client.patch(NODES, Key("", NODE), [JsonOp(op="add", path="/spec/taints", value=[])])


@asynccontextmanager
async def kubelet(client, home):
    """Listens to the agent of the node and says on it what there is."""

    async def advertise(resource, count):
        there = {resource: str(count)}
        status = {"status": {"capacity": there, "allocatable": there}}
        await client.strategic_merge(NODES, Key("", NODE), status, subresource="status")

    listener = Listener(home, advertise)
    await listener.start()
    try:
        yield
    finally:
        await listener.stop()


async def let_go(client, count):
    """The pods without a gate, when they are as many."""
    pods = await client.list(PODS, Selector(namespace="default"))
    given = [each for each in pods if not each.spec.scheduling_gates]
    return given if len(given) == count else None


def _conditions(thing):
    return {each.type: (each.status.value, each.reason) for each in thing.status.conditions}


async def over(client):
    """Whether nothing is left on the GPU or in the objects."""
    return not on_gpu() and not any(thing.spec.allocations for thing in await client.list(INSTASLICES))


@pytest.mark.timeout(200)
async def test_pods_get_real_slices_and_give_them_back_whoever_is_killed(index, plane, home):
    ours = Ours(plane, home, index)
    rng = random.Random(7)
    async with await Client.connect(plane.layout.kubeconfig, rate=1000, burst=1000) as client, kubelet(client, home):
        await furnish(client)

        async def reported():
            return [thing for thing in await client.list(INSTASLICES) if _conditions(thing).get("Ready") == READY_NOW]

        async def waits():
            pods = await client.list(PODS, Selector(namespace="default"))
            told = [each.condition(names.SLICE_READY) for each in pods if each.spec.scheduling_gates]
            return told and told[0] and told[0].message

        async def held(count):
            return len(on_gpu()) == count

        try:
            for name in ("agent", "controller"):
                ours.start(name)
            (thing,) = await until(reported, WITHIN_S)
            print("conditions:", _conditions(thing))
            assert _conditions(thing) == {"Ready": READY_NOW, "GpusReady": ("True", "AllWell")}
            smallest = thing.status.models[0].profiles[0]
            for number in range(smallest.limit + 1):
                await client.create(PODS, pod(f"p{number}", smallest.name))
            given = await until(lambda: let_go(client, smallest.limit), WITHIN_S)
            uuids = {each.metadata.annotations[names.MIG_UUIDS] for each in given}
            assert len(uuids) == smallest.limit
            assert uuids == on_gpu()
            print("one more waits:", await until(waits, WITHIN_S))
            await client.delete(PODS, Key("default", given[0].metadata.name), grace_seconds=0)
            await until(lambda: let_go(client, smallest.limit), WITHIN_S)
            await client.delete(PODS, Key("default", given[1].metadata.name), grace_seconds=0)
            await until(lambda: held(smallest.limit - 1), WITHIN_S)
            for number in range(ROUNDS):
                await client.create(PODS, pod(f"k{number}", smallest.name))
                await asyncio.sleep(rng.uniform(0.05, 0.5))
                ours.again("agent")
                await until(lambda: let_go(client, smallest.limit), WITHIN_S)
                if number % 2:
                    ours.again("controller")
                await client.delete(PODS, Key("default", f"k{number}"), grace_seconds=0)
                await asyncio.sleep(rng.uniform(0, 0.2))
                ours.again("agent")
                await until(lambda: held(smallest.limit - 1), WITHIN_S)
            for each in await client.list(PODS, Selector(namespace="default")):
                await client.delete(PODS, Key("default", each.metadata.name), grace_seconds=0)
            await until(lambda: over(client), WITHIN_S)
            before, _ = ours.cost("agent")
            await asyncio.sleep(IDLE_S)
            after, memory = ours.cost("agent")
            print(f"agent, idle: {100 * (after - before) / IDLE_S:.2f} % of a core, {memory:.0f} MiB")
            assert await check(client) == []
        finally:
            ours.kill("agent", "controller")


@pytest.mark.timeout(120)
async def test_an_agent_that_finds_its_gpu_hanging_says_so_and_disturbs_no_pod(index, plane, home):
    ours = Ours(plane, home, index)
    async with await Client.connect(plane.layout.kubeconfig, rate=1000, burst=1000) as client, kubelet(client, home):
        await furnish(client)

        async def ready(status):
            for thing in await client.list(INSTASLICES):
                for each in thing.status.conditions:
                    if (each.type, each.status) == ("GpusReady", status):
                        return thing, each
            return None

        try:
            for name in ("agent", "controller"):
                ours.start(name)
            thing, _ = await until(lambda: ready("True"), WITHIN_S)
            smallest = thing.status.models[0].profiles[0].name
            for number in range(2):
                await client.create(PODS, pod(f"p{number}", smallest))
            given = await until(lambda: let_go(client, 2), WITHIN_S)
            before = {each.metadata.annotations[names.MIG_UUIDS] for each in given}
            assert before == on_gpu()

            ours.hang.touch()
            ours.again("agent")
            thing, told = await until(lambda: ready("False"), WITHIN_S)
            print(f"GpusReady is {told.status}, {told.reason}: {told.message}")
            assert told.reason == "GpuHung"
            assert [gpu.health.value for gpu in thing.status.gpus] == ["unhealthy"]
            await client.create(PODS, pod("waits", smallest))
            await asyncio.sleep(5)  # longer than the grace
            thing, _ = await until(lambda: ready("False"), WITHIN_S)
            assert {each.mig_uuid for each in thing.status.slices if each.state == "created"} == before == on_gpu()
            assert len(await let_go(client, 2)) == 2

            ours.hang.unlink()
            await until(lambda: ready("True"), WITHIN_S)
            given = await until(lambda: let_go(client, 3), WITHIN_S)
            assert before < {each.metadata.annotations[names.MIG_UUIDS] for each in given} == on_gpu()
            for each in given:
                await client.delete(PODS, Key("default", each.metadata.name), grace_seconds=0)
            await until(lambda: over(client), WITHIN_S)
        finally:
            ours.kill("agent", "controller")
