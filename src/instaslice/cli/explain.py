"""`instaslice explain pod/NAME`: why a pod waits and what would make it fit, or where its slices are."""

import asyncio
import difflib
from datetime import datetime
from pathlib import Path

import click
import msgspec

from instaslice.controller.explain import Explanation, Stage, explain
from instaslice.doctor import World, look
from instaslice.errors import BadInput
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import Pod
from instaslice.placement import policies

MOST_NODES = 4
"""Nodes that a line names."""
EXAMPLES = """\b
Examples:
  instaslice explain pod/train               in the namespace default
  instaslice explain pod/train -n team-a
  instaslice explain train -n team-a -o json
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="pod/NAME")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--policy",
    type=click.Choice(policies.names()),
    default=policies.DEFAULT,
    show_default=True,
    help="That of the controller.",
)
def command(name: str, namespace: str, output: str, kubeconfig: Path | None, policy: str) -> None:
    """Say in words what state a pod is in, since when and why. Changes nothing."""
    kind, _, own = name.rpartition("/")
    if kind not in ("", "pod", "pods", "po"):
        raise BadInput(f"{name}: only pods can be explained; write pod/{own}")

    async def run() -> World:
        async with await Client.connect(kubeconfig) as client:
            return await look(client, SystemClock(), all_that_schedules=True)

    world = asyncio.run(run())
    told = explain(world, _find(world, namespace, own), policies.named(policy))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        _text(told, world.now)


def _find(world: World, namespace: str, name: str) -> Pod:
    there = {pod.metadata.name: pod for pod in world.pods if pod.metadata.namespace == namespace}
    if name in there:
        return there[name]
    near = difflib.get_close_matches(name, there, n=3)
    elsewhere = sorted({pod.metadata.namespace for pod in world.pods if pod.metadata.name == name})
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    if elsewhere:
        hint = f"; there is one in {', '.join(elsewhere)}: -n {elsewhere[0]}"
    raise BadInput(f"no pod {name} in namespace {namespace}{hint}")


def _text(told: Explanation, now: datetime) -> None:
    asks = ", ".join(f"{count} x {profile}" for profile, count in told.asks.items())
    click.echo(f"pod {told.pod}: {told.stage}{_for(told.since, now)}")
    if asks:
        click.echo(f"  asks for  {asks}")
    click.echo(f"  {told.message}")
    for each in told.left_out:
        click.echo(f"  left out  {each}")
    for place in told.slices:
        gpu = f"GPU {place.index}" if place.index is not None else place.gpu
        uuid = f"  {place.mig_uuid}" if place.mig_uuid else ""
        where = f"{place.profile} at {place.start} of {gpu} on {place.node}"
        click.echo(f"  slice     {where}, for container {place.container}: {place.state}{uuid}")
    if told.stage is not Stage.WAITING:
        return
    click.echo(
        f"  in line   {told.ahead} {'pod is' if told.ahead == 1 else 'pods are'} ahead of it"
        if told.ahead
        else "  in line   first"
    )
    for why, nodes in told.nodes.items():
        click.echo(f"  not on    {_some(nodes)}: {why}")
    if told.could:
        click.echo(f"  could     {_some(told.could)} would hold it if nothing else ran there")
    else:
        click.echo("  could     no node would hold it, even empty: it needs another node, or must ask for less")


def _some(nodes: list[str]) -> str:
    more = len(nodes) - MOST_NODES
    return ", ".join(nodes[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")


def _for(since: datetime | None, now: datetime) -> str:
    if since is None:
        return ""
    seconds = max(0, int((now - since).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f", for {seconds // size} {unit}"
    return f", for {seconds} s"
