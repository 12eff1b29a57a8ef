"""`instaslice agent`: the agent of one node, or of many emulated ones, as a process."""

import asyncio
import random
import socket
from contextlib import nullcontext
from pathlib import Path

import click

from instaslice.agent.agent_process import MANAGER, AgentProcess
from instaslice.agent.emulation import EmulatedGpus, Emulation
from instaslice.agent.folder_lock import locked
from instaslice.agent.gpu_source import GpuSource, Hardware
from instaslice.agent.gpu_worker import OrphanPolicy
from instaslice.agent.job_mapping import JobMapping
from instaslice.agent.kubelet.node_devices import NodeDevices
from instaslice.agent.kubelet.paths import NodePaths
from instaslice.agent.kubelet.wiring import EmulatedWiring, NvidiaWiring, Wiring
from instaslice.api import names
from instaslice.cli.terminal.finite_range import FiniteRange
from instaslice.cli.terminal.given_flags import refuse_void
from instaslice.cli.terminal.gpu_model import GpuModel
from instaslice.cli.terminal.object_name import ObjectName
from instaslice.cli.terminal.observing import Observing, observed
from instaslice.cli.terminal.signals import run_until_signalled
from instaslice.drivers.executor import GpuExecutor
from instaslice.drivers.latencies import H200, INSTANT
from instaslice.errors import leaves
from instaslice.geometry import Model
from instaslice.kube.cache import freeze_heap
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import Clock, SystemClock
from instaslice.kube.errors import BadRequest
from instaslice.kube.heartbeat import Heartbeat
from instaslice.kube.meta import Key
from instaslice.observe.metrics import Component

LATENCIES = {"none": INSTANT, "h200": H200}
CTK_SPECS = (Path("/var/run/cdi/nvidia.yaml"), Path("/etc/cdi/nvidia.yaml"))

EXAMPLES = """\b
Examples:
  instaslice agent --node $(hostname)                   the node that this machine is, with its GPUs
  instaslice agent --node $(hostname) --gpus 0,1 --enable-mig    two of them, with MIG mode enabled
  instaslice agent --emulated --state-dir /tmp/gpus     emulate every node that has the label
  instaslice agent --emulated --latency h200            as slow as real GPUs
  instaslice agent --node $(hostname) --dcgm-job-mapping-dir /var/lib/dcgm-exporter/job-mapping
  kubectl annotate node gpu-0 local.gpu.das.com/fault='0 lost'    break GPU 0 of a node
"""


VOID_BESIDE = {
    "--emulated": ("--gpus", "--enable-mig", "--dev", "--proc", "--driver-spec"),
    "--node": ("--nodes",),
}
VOID_WITHOUT = {
    "--emulated": ("--model", "--latency"),
    "--model": ("--count",),
    "--node": ("--kubelet-dir", "--cdi-dir", "--dcgm-job-mapping-dir"),
}


def _heartbeat(client: Client, clock: Clock) -> Heartbeat:
    """Of the process that serves nodes without a kubelet: one for all of them."""
    key = Key(names.NAMESPACE, names.EMULATION)
    return Heartbeat(client, key, identity=socket.gethostname(), manager=MANAGER, clock=clock)


@click.command(epilog=EXAMPLES)
@click.option("--node", type=ObjectName(), help="The node that we run on; its kubelet hands out its slices.")
@click.option("--gpus", default="", metavar="LIST", help="With --node: only these, by index, UUID or model.")
@click.option("--enable-mig", is_flag=True, help="With --node: enable MIG mode where it is off.")
@click.option(
    "--kubelet-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=NodePaths.kubelet,
    show_default=True,
    help="With --node: the kubelet's folder.",
)
@click.option(
    "--cdi-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=NodePaths.cdi,
    show_default=True,
    help="With --node: where the runtime looks for devices; preferably a directory that is empty after a boot.",
)
@click.option(
    "--dev",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/dev"),
    show_default=True,
    help="With --node: where the host's /dev is.",
)
@click.option(
    "--proc",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/proc"),
    show_default=True,
    help="With --node: where the host's /proc is.",
)
@click.option(
    "--driver-spec",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="With --node: what `nvidia-ctk cdi generate` wrote.  [default: " + ", ".join(map(str, CTK_SPECS)) + "]",
)
@click.option("--emulated", is_flag=True, help="Emulate the GPUs of nodes that have none.")
@click.option(
    "--model",
    type=GpuModel(placeable=True),
    help="With --emulated: which GPUs to emulate on every node served.  [default: by the node's labels]",
)
@click.option("--count", type=click.IntRange(1, 64), default=1, help="With --model: how many.  [default: 1]")
@click.option(
    "--nodes",
    default=names.EMULATED,
    show_default=True,
    metavar="SELECTOR",
    help=f"Without --node: which nodes, by labels. Label {names.EMULATED} names their GPU model, {names.GPU_COUNT} "
    "says how many they have.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to keep what outlives this process: who holds which slice, and emulated slices.  "
    f"[default: {NodePaths.state} with --node, otherwise nowhere]",
)
@click.option(
    "--latency",
    type=click.Choice(list(LATENCIES)),
    default="none",
    show_default=True,
    help="With --emulated: how long it takes to create and to destroy a slice.",
)
@click.option(
    "--grace",
    type=FiniteRange(0),
    default=60.0,
    show_default=True,
    help="Seconds before a slice that no allocation names and no pod uses is destroyed.",
)
@click.option("--keep-foreign", is_flag=True, help="Never destroy slices that are not ours.")
@click.option(
    "--deadline",
    type=FiniteRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds after which a call to a GPU counts as hung.",
)
@click.option(
    "--dcgm-job-mapping-dir",
    "job_mapping_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --node: tell dcgm-exporter here which pod has which slice (its --hpc-job-mapping-dir).",
)
@click.option("--rate", type=FiniteRange(1), default=1000.0, show_default=True, help="Requests per second.")
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
@observed(Component.AGENT)
def command(
    observing: Observing,
    node: str | None,
    gpus: str,
    enable_mig: bool,
    kubelet_dir: Path,
    cdi_dir: Path,
    dev: Path,
    proc: Path,
    driver_spec: tuple[Path, ...],
    emulated: bool,
    model: Model | None,
    count: int,
    nodes: str,
    state_dir: Path | None,
    latency: str,
    grace: float,
    keep_foreign: bool,
    deadline: float,
    job_mapping_dir: Path | None,
    rate: float,
    kubeconfig: Path | None,
) -> None:
    """Create the slices that the controller wants on a node, destroy them afterwards, and report what exists."""
    if not node and not emulated:
        raise click.UsageError("say which node this is (--node NAME), or emulate others (--emulated)")
    refuse_void(click.get_current_context(), beside=VOID_BESIDE, without=VOID_WITHOUT)
    clock, executor = SystemClock(), GpuExecutor(deadline)
    if node:
        state_dir = state_dir or NodePaths.state
    if state_dir:
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise click.BadParameter(
                f"{state_dir} cannot be a folder: {str(error.strerror).lower()}; give one that exists or can be made",
                param_hint="--state-dir",
            ) from None

    async def serve(client: Client) -> None:
        gpu_source: GpuSource
        wiring: Wiring
        if emulated:
            fixed = EmulatedGpus(model.name, count) if model else None
            gpu_source, wiring = Emulation(state_dir, LATENCIES[latency], fixed), EmulatedWiring()
        else:
            chosen = tuple(gpus.split(","))
            gpu_source = hardware = await Hardware.open(
                chosen, enable_mig=enable_mig, proc=proc, deadline=deadline, clock=clock
            )
            driver = hardware.driver
            specs = driver_spec or CTK_SPECS
            wiring = NvidiaWiring(driver.minor, driver.capabilities, dev=dev, proc=proc, specs=specs)
        freeze_heap()
        devices = None
        if node and state_dir:
            places = NodePaths(kubelet_dir, cdi_dir, state_dir)
            devices = NodeDevices(places, wiring, executor=executor, clock=clock)
        agent = AgentProcess(
            client,
            gpu_source,
            selector=Selector(fields=f"metadata.name={node}") if node else Selector(labels=nodes),
            clock=clock,
            rng=random.Random(),
            orphan_policy=OrphanPolicy(grace, keep_foreign),
            executor=executor,
            devices=devices,
            registry=observing.registry,
            job_mapping=JobMapping(job_mapping_dir) if job_mapping_dir else None,
            heartbeat=None if node else _heartbeat(client, clock),
        )
        observing.health.not_ready = lambda: agent.not_ready
        await agent.run()

    def starting() -> str:
        return "the GPUs are not known yet"

    def stand_by() -> None:
        # Ready: a rolling update that starts the next agent first ends the last one only then.
        observing.health.not_ready = str

    async def take_over(client: Client) -> None:
        """In a rolling update the next agent of a node may start before the last one has ended."""
        lock = locked(state_dir, clock, waits=stand_by) if node and state_dir else nullcontext()
        async with lock:
            observing.health.not_ready = starting
            await serve(client)

    async def run() -> None:
        observing.health.not_ready = starting
        async with (
            await Client.connect(
                kubeconfig, clock=clock, rate=rate, burst=int(2 * rate), observer=observing.calls
            ) as client,
            observing.served(client, clock),
        ):
            refused = ""
            try:
                await run_until_signalled(take_over(client))
            except* BadRequest as group:
                refused = str(next(leaves(group)))
            if refused:
                raise click.BadParameter(f"the API server refuses it: {refused}", param_hint="--nodes")

    asyncio.run(run())
