"""A whole local cluster: up, down, status. The command line, the tests and the benchmarks all come in here.

Crash-only: what a cluster is stands in its record before anything of it is started, so that `up` after a crash finds
what is missing and starts it, and `down` finds everything that must go.
"""

import asyncio
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from instaslice.errors import BadInput
from instaslice.files import write_atomically
from instaslice.geometry import models
from instaslice.local import binaries, components, kueue, layout, nodes, operator, ports, realnode
from instaslice.local.errors import LocalError
from instaslice.local.layout import Layout
from instaslice.local.network import Network
from instaslice.local.objects import KWOK, Objects, takes_pods
from instaslice.local.operator import Operator
from instaslice.local.plane import PORTS, Plane
from instaslice.local.process import Processes

Say = Callable[[str], None]
LATENCIES = ("none", "h200")


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    nodes: int = 1
    gpus: int = 2
    model: str = "A100-40GB"
    real_node: bool = False
    kueue: bool = False
    bare: bool = False
    """Kubernetes alone, without InstaSlice."""
    latency: str = "none"
    """How long the emulated GPUs take for their work; a name that `instaslice agent` knows."""
    kubernetes: str = components.KUBERNETES

    def __post_init__(self) -> None:
        if not 0 <= self.nodes <= 5000:
            raise BadInput(f"--nodes {self.nodes}: between 0 and 5000")
        if not 1 <= self.gpus <= 16:
            raise BadInput(f"--gpus {self.gpus}: between 1 and 16 a node")
        if self.latency not in LATENCIES:
            raise BadInput(f"--latency {self.latency}: one of {', '.join(LATENCIES)}")
        models.named(self.model)


FORMAT = 1
"""How the parts of a cluster reach each other: goes up when what runs cannot be joined by what this version starts."""


class Record(msgspec.Struct, kw_only=True):
    """What stands in `cluster.json`."""

    spec: Spec
    format: int = 0
    ports: dict[str, int]
    programs: dict[str, str]
    network: Network | None = None


class Cluster:
    """One local cluster by name; it need not exist yet."""

    def __init__(self, name: str = "default") -> None:
        self.layout = Layout.of(name)
        self.processes = Processes(self.layout)

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.layout.kubeconfig

    @property
    def exists(self) -> bool:
        return self.layout.record.exists()

    def spec(self, **changes: object) -> Spec:
        """What the cluster is, or what a new one would be, with these changes; None changes nothing."""
        now = self.record().spec if self.exists else Spec()
        return msgspec.structs.replace(now, **{key: value for key, value in changes.items() if value is not None})

    def record(self) -> Record:
        try:
            return msgspec.json.decode(self.layout.record.read_bytes(), type=Record)
        except FileNotFoundError:
            raise LocalError(
                f"no cluster {self.name!r}; `instaslice up` makes one, `instaslice status` lists them"
            ) from None
        except msgspec.DecodeError as error:
            raise LocalError(
                f"{self.layout.record} cannot be read ({error}); `instaslice down {self.name}` removes the cluster"
            ) from None

    # Up ----------------------------------------------------------------------------------------------------------

    def up(self, spec: Spec, source: binaries.Source, *, port: int = 0, say: Say = lambda _: None) -> None:
        """Bring the cluster to `spec`, from nothing or from whatever a crash left. Safe to repeat.

        Raises an InstasliceError in one line; what this call started is then stopped again.
        """
        if spec.real_node:
            realnode.check(self.layout)
        with self.layout.locked():
            if self.exists:
                self._refuse_changes(self.record(), spec)
            if port and not (self.exists and self.record().ports["kube-apiserver"] == port):
                ports.require(port)
            wanted = binaries.needed(real_node=spec.real_node, kueue=spec.kueue)
            programs = binaries.locate(wanted, source, spec.kubernetes)
            with self._undone_on_failure():
                self._write(spec, programs, port)
                self._start(say)

    def _refuse_changes(self, before: Record, spec: Spec) -> None:
        """What cannot become true while the cluster is there."""
        if before.spec.kubernetes != spec.kubernetes:
            running = f"Kubernetes {before.spec.kubernetes}"
        elif spec.bare and not before.spec.bare:
            running = "InstaSlice, which pods may depend on"
        elif before.format != FORMAT and self._runs():
            running = "as another version of InstaSlice made it"
        else:
            return
        raise BadInput(f"cluster {self.name!r} runs {running}; `instaslice down {self.name}` first")

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        """A failed start leaves nothing running; the logs stay until `down` or the next `up`."""
        ran = self._runs()
        try:
            yield
        except BaseException:
            if not ran:
                self._end_processes()
            raise

    def _write(self, spec: Spec, programs: dict[str, Path], port: int) -> None:
        """The record first: what is started afterwards can be found by it."""
        with layout.lock(layout.clusters() / ".ports.lock"):
            record = Record(
                spec=spec,
                format=FORMAT,
                ports=self._ports(port),
                programs={name: str(path) for name, path in programs.items()},
                network=self.record().network if self.exists else None,
            )
            if spec.real_node and record.network is None:
                record.network = Network.choose(self.layout)
            self.layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self.layout.record, msgspec.json.format(msgspec.json.encode(record)))

    def _ports(self, asked: int) -> dict[str, int]:
        """Those of the record while something runs on them or nobody else took them, and new ones for the rest."""
        kept = self.record().ports if self.exists else {}
        mine = self._runs()
        if mine and asked and asked != kept["kube-apiserver"]:
            raise BadInput(f"cluster {self.name!r} runs on port {kept['kube-apiserver']}; end it to move it")
        if not mine and not all(ports.free(each) for each in kept.values()):
            kept = {}
        taken = {asked, *kept.values()}
        for other in every():
            # One that is being removed, or cannot be read, keeps nobody from starting.
            with suppress(LocalError):
                taken.update(other.record().ports.values())
        new = [name for name in PORTS if name not in kept]
        chosen = dict(zip(new, ports.choose(len(new), taken), strict=True))
        return {**kept, **chosen, **({"kube-apiserver": asked} if asked else {})}

    def _start(self, say: Say) -> None:
        record, plane = self.record(), self.plane()
        plane.prepare()
        commands = plane.commands()
        say(f"starting Kubernetes {record.spec.kubernetes}")
        # The API server waits for etcd by itself; the others would end without an API server.
        for name in ("etcd", "kube-apiserver"):
            self.processes.start(name, commands.pop(name))
        self.processes.wait("kube-apiserver", plane.ready("kube-apiserver"))
        kwok = commands.pop("kwok")
        for name, argv in commands.items():
            self.processes.start(name, argv)
        asyncio.run(self._fill(kwok, say))
        for name in (*commands, "kwok"):
            self.processes.wait(name, plane.ready(name))

    async def _fill(self, kwok: list[str], say: Say) -> None:
        """What has to be in the API server, kwok once it has a role there, and the nodes."""
        spec = self.record().spec
        async with Objects.connect(self.kubeconfig) as objects:
            await objects.allow("kwok", KWOK)
            self.processes.start("kwok", kwok)
            ours = self.operator()
            if not spec.bare:
                # Early: they take as long to start as the nodes take to become ready.
                say("starting InstaSlice")
                await ours.install(objects)
            if spec.real_node:
                say("starting a real node")
                if not spec.bare:
                    await objects.gpus(realnode.NAME, spec.gpus, models.named(spec.model))
                await asyncio.to_thread(self.real_node().start, self.processes)
            await objects.emulated_nodes(spec.nodes, spec.gpus, models.named(spec.model), spec.kubernetes)
            expected = [nodes.name(index) for index in range(spec.nodes)]
            expected += [realnode.NAME] if spec.real_node else []
            say(f"waiting for {len(expected)} node{'s' if len(expected) != 1 else ''}")
            await objects.nodes_ready(expected)
            await objects.takes_pods()
            if spec.kueue:
                say("starting Kueue")
                await kueue.install(objects, self.plane(), self.processes)
            if not spec.bare:
                for name in (*ours.commands(), *([realnode.AGENT] if spec.real_node else [])):
                    await ours.ready(name, objects)

    def operator(self) -> Operator:
        spec = self.record().spec
        real = realnode.NAME if spec.real_node else ""
        return Operator(self.plane(), self.processes, spec.latency, real)

    def plane(self) -> Plane:
        record = self.record()
        return Plane(self.layout, record.ports, {name: Path(path) for name, path in record.programs.items()})

    def real_node(self) -> realnode.RealNode:
        record = self.record()
        if record.network is None:
            raise LocalError(
                f"cluster {self.name!r} has no real node; `instaslice up {self.name} --real-node` adds one"
            )
        programs = {name: Path(record.programs[name]) for name in binaries.NODE}
        agent = () if record.spec.bare else tuple(self.operator().node_agent(realnode.cdi(self.layout)))
        return realnode.RealNode(
            self.layout, record.network, programs, record.ports["kubelet"], self.plane().server, agent
        )

    # One component, for tests that break things -------------------------------------------------------------------

    def kill(self, component: str) -> None:
        self.processes.kill(component)

    def start(self, component: str) -> None:
        """Start one component again and wait until it is ready."""
        if component in (realnode.HOLDER, "containerd", "kubelet", realnode.AGENT):
            self.real_node().start(self.processes)
            return
        if component in operator.ROLES:
            # In a thread: callers that have an event loop of their own may call this too.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self._start_ours(component)).result()
            return
        plane = self.plane()
        if component == kueue.NAME:
            kueue.start(plane, self.processes)
            return
        self.processes.start(component, plane.commands()[component])
        self.processes.wait(component, plane.ready(component))

    async def _start_ours(self, component: str) -> None:
        ours = self.operator()
        ours.start(component)
        async with Objects.connect(self.kubeconfig) as objects:
            await ours.ready(component, objects)

    def pause(self, component: str) -> None:
        self._signal(component, signal.SIGSTOP)

    def resume(self, component: str) -> None:
        self._signal(component, signal.SIGCONT)

    def _signal(self, component: str, number: signal.Signals) -> None:
        found = self.processes.find(component)
        if found is None:
            raise LocalError(f"cluster {self.name!r}: {component} does not run")
        found.send_signal(number)

    # Down --------------------------------------------------------------------------------------------------------

    def down(self) -> bool:
        """End and remove everything of this cluster, also what a crash left. False when there was nothing."""
        with self.layout.locked():
            there = self.layout.root.exists() or bool(self.processes.strays())
            self._end_processes()
            shutil.rmtree(self.layout.root, ignore_errors=True)
            if self.layout.root.exists():
                raise LocalError(f"{self.layout.root} cannot be removed; remove it by hand")
        return there

    def _end_processes(self) -> None:
        self.processes.kill_all()
        try:
            network = self.record().network if self.exists else None
        except LocalError:
            network = None
        realnode.remove(self.layout, network)

    def _runs(self) -> bool:
        """Whether any component does."""
        return any(self.components().values())

    def components(self) -> dict[str, bool]:
        """Component → whether it runs."""
        return {name: self.processes.find(name) is not None for name in self.processes.names()}

    async def count_ready(self) -> int:
        """How many nodes are ready, by the API server's word. Raises KubeError."""
        async with Objects.connect(self.kubeconfig) as objects:
            return sum(map(takes_pods, await objects.nodes()))


def every() -> list[Cluster]:
    """All clusters of this user."""
    home = layout.clusters()
    return [Cluster(entry.parent.name) for entry in sorted(home.glob("*/cluster.json"))]
