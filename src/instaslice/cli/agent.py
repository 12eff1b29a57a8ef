"""`instaslice agent`: the agent of one node, or of many emulated ones, as a process."""

import asyncio
import logging
import random
import signal
from pathlib import Path

import click

from instaslice.agent.emulation import Emulation
from instaslice.agent.fleet import Fleet
from instaslice.agent.worker import Habits
from instaslice.api import names
from instaslice.drivers.lanes import Lanes
from instaslice.drivers.latencies import H200, INSTANT
from instaslice.kube.cache import freeze_heap
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock

LATENCIES = {"none": INSTANT, "h200": H200}

EXAMPLES = """\b
Examples:
  instaslice agent --emulated --state-dir /tmp/gpus     play every node that has the label
  instaslice agent --emulated --latency h200            as slow as real GPUs
  kubectl annotate node gpu-0 local.gpu.das.com/fault='0 lost'    break GPU 0 of a node
"""


@click.command(epilog=EXAMPLES)
@click.option("--emulated", is_flag=True, help="Play the GPUs of nodes that have none.")
@click.option(
    "--nodes",
    default=names.EMULATED,
    show_default=True,
    metavar="SELECTOR",
    help=f"With --emulated: which nodes, by labels. Label {names.EMULATED} names their GPU model, {names.GPU_COUNT} "
    "says how many they have.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --emulated: where slices are remembered when this process is killed.  [default: nowhere]",
)
@click.option(
    "--latency",
    type=click.Choice(list(LATENCIES)),
    default="none",
    show_default=True,
    help="With --emulated: how long a slice takes to make and to destroy.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds before a slice that no pod was promised is destroyed.",
)
@click.option("--keep-foreign", is_flag=True, help="Leave slices alone that are not ours.")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds after which a GPU that does not answer is given up.",
)
@click.option("--rate", type=click.FloatRange(1), default=1000.0, show_default=True, help="Requests a second.")
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
def command(
    emulated: bool,
    nodes: str,
    state_dir: Path | None,
    latency: str,
    grace: float,
    keep_foreign: bool,
    deadline: float,
    rate: float,
    kubeconfig: Path | None,
) -> None:
    """Make the slices that pods were promised, destroy those that they leave, and report what is."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    if not emulated:
        raise click.UsageError("only emulated GPUs can be served so far: give --emulated")
    clock = SystemClock()

    async def run() -> None:
        freeze_heap()
        async with await Client.connect(kubeconfig, clock=clock, rate=rate, burst=int(2 * rate)) as client:
            fleet = Fleet(
                client,
                Emulation(state_dir, LATENCIES[latency]),
                selector=nodes,
                clock=clock,
                rng=random.Random(),
                habits=Habits(grace, keep_foreign),
                lanes=Lanes(deadline),
            )
            await _until_asked(fleet)

    asyncio.run(run())


async def _until_asked(fleet: Fleet) -> None:
    """Until SIGTERM or SIGINT; a failing task ends it too."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(fleet.run())
        await asked.wait()
        running.cancel()
