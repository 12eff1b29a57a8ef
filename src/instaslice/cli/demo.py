"""`instaslice demo`: the main job, shown on a cluster that comes and goes with it.

Everything shown is what the API server says by its watches; the only times that are made up are how long the sample
pods run.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from instaslice.api import names
from instaslice.cli import story
from instaslice.cli.bars import bars, colours
from instaslice.cli.scene import Scene
from instaslice.cli.story import News, timetable, waiting
from instaslice.kube.client import Client
from instaslice.kube.core import PODS
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import Key
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, Say, Spec
from instaslice.local.errors import LocalError

NAMESPACE: Final = "default"
PATIENCE: Final = 90.0
EXAMPLES = """\b
Examples:
  instaslice demo           start a cluster, show it, remove it
  instaslice demo --keep    leave it running, to look around
"""


@dataclass(frozen=True)
class Sample:
    """A pod of the demo: what it asks for, and how many seconds it runs."""

    name: str
    profile: str
    seconds: int
    count: int = 1

    @property
    def key(self) -> Key:
        return Key(NAMESPACE, self.name)

    @property
    def asks(self) -> str:
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
TRAIN: Final = Sample("train", "7g.40gb", 6)
WHALE: Final = Sample("whale", "7g.40gb", 2)
BEFORE: Final = (
    TRAIN,
    Sample("tune", "4g.20gb", 13),
    Sample("distill", "4g.20gb", 12),
    Sample("eval", "4g.20gb", 11),
    Sample("serve", "3g.20gb", 7),
)
AFTER: Final = (Sample("embed", "2g.10gb", 6), Sample("notebooks", "1g.5gb", 5, count=2))
ALL: Final = (*BEFORE, WHALE, *AFTER)
TYPO: Final = Sample("typo", "3g.21gb", 1)

ASKED: Final = {sample.key: sample.asks for sample in ALL}
SHADES: Final = colours(ASKED)


@click.command(epilog=EXAMPLES)
@click.option("--keep", is_flag=True, help="Leave the cluster running.")
def command(keep: bool) -> None:
    """Start a real Kubernetes with four emulated GPUs and InstaSlice on it, and follow some pods to their end.

    One asks for more than is free and waits until another ends; one has a typo. On a terminal the GPUs are bars that
    change as the cluster does, otherwise each change is a line. The emulated GPUs take as long as real ones.
    """
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:6.2f} s  {text}")

    cluster = Cluster("demo")
    try:
        # One that was kept, or that a crash left, has the pods of the last time.
        cluster.down()
        cluster.up(Spec(nodes=2, gpus=2, latency="h200"), Source(), say=say)
        say("two emulated nodes are ready, with two A100-40GB each")
        asyncio.run(_show(cluster, say, began))
    finally:
        if not keep:
            cluster.down()
    if keep:
        say(f"export KUBECONFIG={cluster.kubeconfig}; `instaslice down demo` ends it")
    else:
        say("the cluster is gone again")


async def _show(cluster: Cluster, say: Say, began: float) -> None:
    async with await Client.connect(cluster.kubeconfig) as client:
        scene = Scene(client, NAMESPACE, lambda: time.monotonic() - began)
        try:
            async with asyncio.timeout(PATIENCE), scene.watched():
                with _shown(scene, say) as tell:
                    await _play(client, scene, tell)
        except TimeoutError:
            left = ", ".join(_left(scene))
            raise LocalError(f"not over after {PATIENCE:.0f} s: {left}; see {cluster.layout.logs}") from None
        waited = scene.story.between((TRAIN.key, story.ENDED), (WHALE.key, story.RUNNING))
        say(f"{WHALE.name} ran {waited:.2f} s after {TRAIN.name} ended; all slices are free again")


async def _play(client: Client, scene: Scene, tell: Say) -> None:
    """The demo itself. The large pods come one by one, each when the one before has its place: always one story."""
    for sample in BEFORE:
        await client.create(PODS, sample.manifest())
        await scene.until({sample.key}, story.CREATING)
    await client.create(PODS, WHALE.manifest())
    try:
        await client.create(PODS, TYPO.manifest())
    except KubeError as refused:
        tell(f"pod {TYPO.name}: refused: {refused.message.partition('denied the request: ')[2] or refused.message}")
    for sample in AFTER:
        await client.create(PODS, sample.manifest())
    await scene.until(ASKED, story.RELEASED)


def _left(scene: Scene) -> Iterator[str]:
    """The pods that are not at their end, in words."""
    for key in ASKED:
        life = scene.story.lives.get(key)
        if life is None:
            yield f"pod {key.name} is not there"
        elif life.state != story.RELEASED:
            yield f"pod {key.name} is {life.state}" + (f" ({life.waits})" if life.waits else "")


@contextmanager
def _shown(scene: Scene, say: Say) -> Iterator[Say]:
    """Every change while inside: a picture on a terminal, otherwise a line. Yields what tells a line of its own."""
    console = Console()
    if console.is_terminal:
        with _pictured(scene, console) as tell:
            yield tell
        return

    def lines(news: list[News]) -> None:
        for each in news:
            asks = f", asks for {ASKED.get(each.life.key)}" if each.state == story.GATED else ""
            click.echo(f"{each.at:6.2f} s  {each}{asks}")

    scene.on_news = lines
    yield say


@contextmanager
def _pictured(scene: Scene, console: Console) -> Iterator[Say]:
    notes: list[Text] = []

    def picture() -> Group:
        lives = [scene.story.lives[key] for key in ASKED if key in scene.story.lives]
        drawn = bars(scene.instaslices, SHADES, width=console.width)
        return Group(drawn, Text(), timetable(lives, ASKED, SHADES), Text(), *notes, *waiting(lives))

    # Drawn when something changed, never by a clock.
    with Live(picture(), console=console, auto_refresh=False) as live:

        def draw() -> None:
            live.update(picture(), refresh=True)

        def tell(text: str) -> None:
            notes.append(Text(text, style="red"))
            draw()

        scene.on_news = lambda _: draw()
        yield tell
