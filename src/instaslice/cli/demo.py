"""`instaslice demo`: pods wait for slices, run and end on a cluster that is started for them and removed afterwards.

Everything shown comes from watches on the API server; the only times that are made up are how long the pods run.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from instaslice.api import names
from instaslice.cli.terminal import timeline
from instaslice.cli.terminal.bars import bars, colours
from instaslice.cli.terminal.cluster_watch import ClusterWatch
from instaslice.cli.terminal.program_source import source_options
from instaslice.cli.terminal.timeline import Transition, table, waiting
from instaslice.errors import BadInput
from instaslice.kube.client import Client
from instaslice.kube.core import PODS
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import Key
from instaslice.local import binaries
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec, Say
from instaslice.local.errors import LocalError

NAMESPACE: Final = "default"
TIMEOUT: Final = 90.0
CLUSTER: Final = ClusterSpec(nodes=2, gpus=2, latency="h200")
EXAMPLES = """\b
Examples:
  instaslice demo               start a cluster, show it, remove it
  instaslice demo --download    the first time: official binaries instead of a build
  instaslice demo --keep        leave the cluster running, to look around
"""


@dataclass(frozen=True)
class DemoPod:
    """A pod of the demo: the slices it asks for, and how many seconds it runs."""

    name: str
    profile: str
    seconds: int
    count: int = 1

    @property
    def key(self) -> Key:
        return Key(NAMESPACE, self.name)

    @property
    def request(self) -> str:
        return self.profile if self.count == 1 else f"{self.count}× {self.profile}"

    def manifest(self) -> dict[str, Any]:
        limits = {f"{names.NVIDIA_RESOURCE}{self.profile}": str(self.count)}
        container = {"name": "main", "image": "none", "resources": {"limits": limits}}
        annotations = {"local.gpu.das.com/run-for": f"{self.seconds}s"}
        return {
            "metadata": {"namespace": NAMESPACE, "name": self.name, "annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }


# A whole GPU goes to `train`, and a 4g to each of the three others, which outlast it: whatever the policy, no GPU is
# whole for `whale` until `train` ends. The small ones fit beside the 4g and pass it.
TRAIN: Final = DemoPod("train", "7g.40gb", 6)
WHALE: Final = DemoPod("whale", "7g.40gb", 2)
LARGE: Final = (
    TRAIN,
    DemoPod("tune", "4g.20gb", 13),
    DemoPod("distill", "4g.20gb", 12),
    DemoPod("eval", "4g.20gb", 11),
    DemoPod("serve", "3g.20gb", 7),
)
SMALL: Final = (DemoPod("embed", "2g.10gb", 6), DemoPod("notebooks", "1g.5gb", 5, count=2))
TYPO: Final = DemoPod("typo", "3g.21gb", 1)

REQUESTS: Final = {pod.key: pod.request for pod in (*LARGE, WHALE, *SMALL)}
COLOURS: Final = colours(REQUESTS)


@click.command(epilog=EXAMPLES)
@click.option("--keep", is_flag=True, help="Leave the cluster running.")
@source_options
def command(keep: bool, source: Source) -> None:
    """Start a real Kubernetes with four emulated GPUs and InstaSlice on it, and follow some pods to their end.

    One pod asks for more than is free and waits until another ends; one has a typo. On a terminal the GPUs are bars
    that change as the cluster does, otherwise each change is a line. The emulated GPUs take as long as real ones.
    """
    cluster = Cluster("demo")
    _refuse_other(cluster)
    _obtain_programs(source)
    try:
        # A cluster that was kept, or that a crash left, holds the pods of its demo.
        cluster.down()
        starting = time.monotonic()
        cluster.up(CLUSTER, source, say=click.echo)
        began = time.monotonic()
        click.echo(f"the cluster is up after {began - starting:.1f} s: two emulated nodes, two A100-40GB each")

        def say(text: str) -> None:
            click.echo(f"{time.monotonic() - began:6.2f} s  {text}")

        asyncio.run(_show(cluster, say, began))
    finally:
        if not keep:
            cluster.down()
    if keep:
        click.echo(f"export KUBECONFIG={cluster.kubeconfig}; `instaslice down demo` ends it")
    else:
        click.echo("the cluster is gone again")


def _refuse_other(cluster: Cluster) -> None:
    """Raise BadInput where a cluster of the demo's name is not from a demo: the demo would remove it."""
    try:
        other = cluster.exists and cluster.record().spec != CLUSTER
    except LocalError:
        other = False  # left by a crash, and of no use to anybody
    if other:
        raise BadInput(f"cluster {cluster.name!r} is not from a demo; `instaslice down {cluster.name}` removes it")


def _obtain_programs(source: Source) -> None:
    """Build or download what is missing, before the demo and its clock begin."""
    needed = binaries.needed(real_node=False, kueue=False)
    missing = binaries.missing(needed, source)
    if not missing:
        return
    how = "built from source, which takes about 10 minutes on two cores"
    if source.download:
        how = "downloaded, or built if their project publishes no checksums, which takes about 2 minutes"
    click.echo(f"First run: the programs of Kubernetes ({', '.join(missing)}) are {how}.", err=True)
    if not source.download:
        click.echo(
            "`make demo DOWNLOAD=1` (`instaslice demo --download`) downloads official binaries instead.", err=True
        )
    began = time.monotonic()
    binaries.locate(needed, source)
    click.echo(f"They are kept for the next time. This took {time.monotonic() - began:.0f} s.", err=True)


async def _show(cluster: Cluster, say: Say, began: float) -> None:
    async with await Client.connect(cluster.kubeconfig) as client:
        watch = ClusterWatch(client, NAMESPACE, lambda: time.monotonic() - began)
        try:
            async with asyncio.timeout(TIMEOUT), watch.running():
                with _display(watch, say) as note:
                    await run_pods(client, watch, note)
        except TimeoutError:
            left = ", ".join(_unfinished(watch))
            raise LocalError(f"not over after {TIMEOUT:.0f} s: {left}; see {cluster.layout.logs}") from None
        waited = watch.timelines.between((TRAIN.key, timeline.ENDED), (WHALE.key, timeline.RUNNING))
        say(f"{WHALE.name} ran {waited:.2f} s after {TRAIN.name} ended; all slices are free again")


async def run_pods(client: Client, watch: ClusterWatch, note: Say) -> None:
    """The demo itself. Each large pod is created once the one before has its slot, so that the result never varies."""
    for pod in LARGE:
        await client.create(PODS, pod.manifest())
        await watch.until({pod.key}, timeline.CREATING)
    await client.create(PODS, WHALE.manifest())
    try:
        await client.create(PODS, TYPO.manifest())
    except KubeError as refused:
        note(f"pod {TYPO.name}: refused: {refused.message.partition('denied the request: ')[2] or refused.message}")
    for pod in SMALL:
        await client.create(PODS, pod.manifest())
    await watch.until(REQUESTS, timeline.RELEASED)


def _unfinished(watch: ClusterWatch) -> Iterator[str]:
    for key in REQUESTS:
        pod = watch.timelines.pods.get(key)
        if pod is None:
            yield f"pod {key.name} does not exist"
        elif pod.state != timeline.RELEASED:
            yield f"pod {key.name} is {pod.state}" + (f" ({pod.waits})" if pod.waits else "")


@contextmanager
def _display(watch: ClusterWatch, say: Say) -> Iterator[Say]:
    """Show every change while inside: a picture on a terminal, otherwise a line. Yields a function that adds a note."""
    console = Console()
    if console.is_terminal:
        with _live_picture(watch, console) as note:
            yield note
        return

    def print_lines(transitions: list[Transition]) -> None:
        for each in transitions:
            request = f", asks for {REQUESTS.get(each.timeline.key)}" if each.state == timeline.GATED else ""
            click.echo(f"{each.at:6.2f} s  {each}{request}")

    watch.on_change = print_lines
    yield say


@contextmanager
def _live_picture(watch: ClusterWatch, console: Console) -> Iterator[Say]:
    notes: list[str] = []
    # Drawn when something changed, never by a clock.
    with Live(picture(watch, notes, console.width), console=console, auto_refresh=False) as live:

        def draw() -> None:
            live.update(picture(watch, notes, console.width), refresh=True)

        def note(text: str) -> None:
            notes.append(text)
            draw()

        watch.on_change = lambda _: draw()
        yield note


def picture(watch: ClusterWatch, notes: Sequence[str], width: int) -> Group:
    """The GPUs as bars, the states of each pod, and why pods wait or were refused."""
    pods = [watch.timelines.pods[key] for key in REQUESTS if key in watch.timelines.pods]
    drawn = bars(watch.instaslices, COLOURS, width=width)
    refused = [Text(note, style="red") for note in notes]
    return Group(drawn, Text(), table(pods, REQUESTS, COLOURS), Text(), *refused, *waiting(pods))
