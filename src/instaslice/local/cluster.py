"""A local cluster: up, down, status. The command line, the tests and the benchmarks all enter here.

Crash-only: the record of a cluster is written before anything is started, so that `up` after a crash starts what is
missing, and `down` finds everything to remove.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import psutil

from instaslice.errors import BadInput
from instaslice.files import write_atomically
from instaslice.geometry import models
from instaslice.local import binaries, components, kueue, layout, nodes, operator, ports, realnode
from instaslice.local.control_plane import PORTS, ControlPlane
from instaslice.local.errors import LocalError
from instaslice.local.layout import Layout
from instaslice.local.network import Network
from instaslice.local.objects import KWOK, ClusterObjects, accepts_pods
from instaslice.local.operator import Operator
from instaslice.local.process import Processes

Say = Callable[[str], None]
LATENCIES = ("none", "h200")


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    nodes: int = 1
    gpus: int = 2
    model: str = "A100-40GB"
    real_node: bool = False
    kueue: bool = False
    bare: bool = False
    """Kubernetes alone, without InstaSlice."""
    latency: str = "none"
    """How long the emulated GPUs take for each step; a value of `instaslice agent --latency`."""
    controller_flags: tuple[str, ...] = ()
    """Further flags of `instaslice controller`."""
    kubernetes: str = components.KUBERNETES
    audit: bool = False
    """Have the API server record what our processes request, in `logs/audit.log`."""

    def __post_init__(self) -> None:
        if not 0 <= self.nodes <= 5000:
            raise BadInput(f"--nodes {self.nodes}: between 0 and 5000")
        if not 1 <= self.gpus <= 16:
            raise BadInput(f"--gpus {self.gpus}: between 1 and 16 per node")
        if self.latency not in LATENCIES:
            raise BadInput(f"--latency {self.latency}: one of {', '.join(LATENCIES)}")
        try:
            models.placeable(self.model)
        except BadInput as error:
            raise BadInput(f"--model {self.model}: {error}") from None


FORMAT = 1
"""How the parts of a cluster reach each other: incremented when this version cannot join a running cluster."""


class ClusterRecord(msgspec.Struct, kw_only=True):
    """The content of `cluster.json`."""

    spec: ClusterSpec
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

    def spec(self, **changes: object) -> ClusterSpec:
        """The spec of the cluster, or the default of a new one, with these changes; None changes nothing."""
        now = self.record().spec if self.exists else ClusterSpec()
        return msgspec.structs.replace(now, **{key: value for key, value in changes.items() if value is not None})

    def record(self) -> ClusterRecord:
        try:
            return msgspec.json.decode(self.layout.record.read_bytes(), type=ClusterRecord)
        except FileNotFoundError:
            raise LocalError(
                f"no cluster {self.name!r}; `instaslice up` starts one, `instaslice clusters` lists them"
            ) from None
        except msgspec.DecodeError as error:
            raise LocalError(
                f"{self.layout.record} cannot be read ({error}); `instaslice down {self.name}` removes the cluster"
            ) from None

    # Up ----------------------------------------------------------------------------------------------------------

    def up(self, spec: ClusterSpec, source: binaries.Source, *, port: int = 0, say: Say = lambda _: None) -> None:
        """Bring the cluster to `spec`, from nothing or from whatever a crash left. Safe to repeat.

        Raises an InstasliceError in one line; what this call has started is then stopped.
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
            with self._stop_on_failure():
                self._write_record(spec, programs, port)
                self._start(say)

    def _refuse_changes(self, before: ClusterRecord, spec: ClusterSpec) -> None:
        """What cannot change while the cluster exists."""
        if before.spec.kubernetes != spec.kubernetes:
            running = f"Kubernetes {before.spec.kubernetes}"
        elif spec.bare and not before.spec.bare:
            running = "InstaSlice, which pods may depend on"
        elif before.format != FORMAT and self._is_running():
            running = "as another version of InstaSlice started it"
        else:
            return
        raise BadInput(f"cluster {self.name!r} runs {running}; `instaslice down {self.name}` first")

    @contextmanager
    def _stop_on_failure(self) -> Iterator[None]:
        """A failed start leaves nothing running; the logs stay until `down` or the next `up`."""
        ran = self._is_running()
        try:
            yield
        except BaseException:
            if not ran:
                self._end_processes()
            raise

    def _write_record(self, spec: ClusterSpec, programs: dict[str, Path], port: int) -> None:
        """Written first: everything started afterwards can be found by it."""
        with layout.lock(layout.clusters() / ".ports.lock"):
            record = ClusterRecord(
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

    def _ports(self, requested: int) -> dict[str, int]:
        """The recorded ports, as long as they are in use by this cluster or free, and new ones for the rest."""
        kept = self.record().ports if self.exists else {}
        mine = self._is_running()
        if mine and requested and requested != kept["kube-apiserver"]:
            raise BadInput(f"cluster {self.name!r} runs on port {kept['kube-apiserver']}; end it to move it")
        if not mine and not all(ports.free(each) for each in kept.values()):
            kept = {}
        taken = {requested, *kept.values()}
        for other in all_clusters():
            # A cluster that is being removed, or cannot be read, must not block others.
            with suppress(LocalError):
                taken.update(other.record().ports.values())
        new = [name for name in PORTS if name not in kept]
        chosen = dict(zip(new, ports.choose(len(new), taken), strict=True))
        return {**kept, **chosen, **({"kube-apiserver": requested} if requested else {})}

    def _start(self, say: Say) -> None:
        record, plane = self.record(), self.plane()
        plane.prepare()
        commands = plane.commands()
        say(f"starting Kubernetes {record.spec.kubernetes}")
        # The API server waits for etcd; the others would exit without an API server.
        for name in ("etcd", "kube-apiserver"):
            self.processes.start(name, commands.pop(name))
        self.processes.wait("kube-apiserver", plane.ready("kube-apiserver"))
        kwok = commands.pop("kwok")
        for name, argv in commands.items():
            self.processes.start(name, argv)
        asyncio.run(self._install(kwok, say))
        for name in (*commands, "kwok"):
            self.processes.wait(name, plane.ready(name))

    async def _install(self, kwok: list[str], say: Say) -> None:
        """Fill the API server: roles (then start kwok, which needs one), InstaSlice, nodes, Kueue."""
        spec = self.record().spec
        async with ClusterObjects.connect(self.kubeconfig) as objects:
            await objects.grant("kwok", KWOK)
            self.processes.start("kwok", kwok)
            instaslice = self.operator()
            if not spec.bare:
                # Early: its processes start while the nodes become ready.
                say("starting InstaSlice")
                await instaslice.install(objects)
            if spec.real_node:
                say("starting a real node")
                if not spec.bare:
                    await objects.label_gpus(realnode.NAME, spec.gpus, models.named(spec.model))
                await asyncio.to_thread(self.real_node().start, self.processes)
            model = models.named(spec.model)
            await objects.emulated_nodes(spec.nodes, spec.gpus, model, spec.kubernetes, say)
            expected = [nodes.name(index) for index in range(spec.nodes)]
            expected += [realnode.NAME] if spec.real_node else []
            say(f"waiting for {len(expected)} node{'s' if len(expected) != 1 else ''}")
            await objects.nodes_ready(expected)
            await objects.namespace_ready()
            if spec.kueue:
                say("starting Kueue")
                await kueue.install(objects, self.plane(), self.processes)
            if not spec.bare:
                for name in (*instaslice.commands(), *([realnode.AGENT] if spec.real_node else [])):
                    await instaslice.ready(name, objects)

    def operator(self) -> Operator:
        spec = self.record().spec
        real = realnode.NAME if spec.real_node else ""
        return Operator(self.plane(), self.processes, spec.latency, real, spec.controller_flags)

    def plane(self) -> ControlPlane:
        record = self.record()
        programs = {name: Path(path) for name, path in record.programs.items()}
        bridge = record.network.ip if record.network else ""
        return ControlPlane(self.layout, record.ports, programs, bridge, audit=record.spec.audit)

    def real_node(self) -> realnode.RealNode:
        record = self.record()
        if record.network is None:
            raise LocalError(
                f"cluster {self.name!r} has no real node; `instaslice up {self.name} --real-node` adds one"
            )
        programs = {name: Path(record.programs[name]) for name in binaries.NODE}
        agent = () if record.spec.bare else tuple(self.operator().node_agent(realnode.cdi(self.layout)))
        return realnode.RealNode(
            self.layout,
            record.network,
            programs,
            record.ports["kubelet"],
            self.plane().server,
            record.ports["kube-apiserver"],
            agent,
        )

    # One component, for tests that break things -------------------------------------------------------------------

    def kill(self, component: str) -> None:
        self.processes.kill(component)

    def start(self, component: str) -> None:
        """Start one component again and wait until it is ready."""
        if component in (realnode.HOLDER, realnode.FORWARDER, "containerd", "kubelet", realnode.AGENT):
            self.real_node().start(self.processes)
            return
        if component in operator.ROLES:
            # In a thread: the caller may be running an event loop.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self._start_operator(component)).result()
            return
        plane = self.plane()
        if component == kueue.NAME:
            kueue.start(plane, self.processes)
            return
        self.processes.start(component, plane.commands()[component])
        self.processes.wait(component, plane.ready(component))

    async def _start_operator(self, component: str) -> None:
        instaslice = self.operator()
        instaslice.start(component)
        async with ClusterObjects.connect(self.kubeconfig) as objects:
            await instaslice.ready(component, objects)

    def pause(self, component: str) -> None:
        process = self._running(component)
        process.suspend()
        # On a busy machine it goes on for a moment.
        self.processes.wait(component, lambda: process.status() == psutil.STATUS_STOPPED)

    def resume(self, component: str) -> None:
        self._running(component).resume()

    def _running(self, component: str) -> psutil.Process:
        found = self.processes.find(component)
        if found is None:
            raise LocalError(f"cluster {self.name!r}: {component} does not run")
        return found

    # Down --------------------------------------------------------------------------------------------------------

    def down(self) -> bool:
        """End and remove everything of this cluster, even after a crash. False if there was nothing."""
        with self.layout.locked():
            existed = self.layout.root.exists() or bool(self.processes.strays())
            self._end_processes()
            shutil.rmtree(self.layout.root, ignore_errors=True)
            if self.layout.root.exists():
                raise LocalError(f"{self.layout.root} cannot be removed; remove it by hand")
        return existed

    def _end_processes(self) -> None:
        self.processes.kill_all()
        try:
            network = self.record().network if self.exists else None
        except LocalError:
            network = None
        realnode.remove(self.layout, network)

    def _is_running(self) -> bool:
        """Whether any component runs."""
        return any(self.components().values())

    def components(self) -> dict[str, bool]:
        """Component → whether it runs."""
        return {name: self.processes.find(name) is not None for name in self.processes.names()}

    async def count_ready(self) -> int:
        """How many nodes are ready, according to the API server. Raises KubeError."""
        async with ClusterObjects.connect(self.kubeconfig) as objects:
            return sum(map(accepts_pods, await objects.nodes()))


def all_clusters() -> list[Cluster]:
    """All clusters of this user."""
    home = layout.clusters()
    return [Cluster(entry.parent.name) for entry in sorted(home.glob("*/cluster.json"))]
