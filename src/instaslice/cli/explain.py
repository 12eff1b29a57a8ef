"""`instaslice explain pod/NAME`: why a pod waits and what would make it fit, or where its slices are."""

import asyncio
import difflib
from datetime import datetime
from pathlib import Path

import click
import msgspec

from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.explain import Explanation, Stage, explain
from instaslice.errors import BadInput
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import Pod
from instaslice.placement import policies

MOST_NODES = 4
"""Nodes named on one line."""
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
    help="The policy that the controller runs with.",
)
def command(name: str, namespace: str, output: str, kubeconfig: Path | None, policy: str) -> None:
    """Explain what state a pod is in, since when and why. Changes nothing."""
    kind, _, own = name.rpartition("/")
    if kind not in ("", "pod", "pods", "po"):
        raise BadInput(f"{name}: only pods can be explained; write pod/{own}")

    async def run() -> ClusterSnapshot:
        async with await Client.connect(kubeconfig) as client:
            return await ClusterSnapshot.read(client, SystemClock(), scheduling=True)

    cluster = asyncio.run(run())
    explanation = explain(cluster, _find(cluster, namespace, own), policies.named(policy))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(explanation)).decode())
    else:
        _print_text(explanation, cluster.now)


def _find(cluster: ClusterSnapshot, namespace: str, name: str) -> Pod:
    there = {pod.metadata.name: pod for pod in cluster.pods if pod.metadata.namespace == namespace}
    if name in there:
        return there[name]
    near = difflib.get_close_matches(name, there, n=3)
    elsewhere = sorted({pod.metadata.namespace for pod in cluster.pods if pod.metadata.name == name})
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    if elsewhere:
        hint = f"; there is one in {', '.join(elsewhere)}: -n {elsewhere[0]}"
    raise BadInput(f"no pod {name} in namespace {namespace}{hint}")


def _print_text(explanation: Explanation, now: datetime) -> None:
    asks = ", ".join(f"{count} x {profile}" for profile, count in explanation.asks.items())
    click.echo(f"pod {explanation.pod}: {explanation.stage}{_for(explanation.since, now)}")
    if asks:
        click.echo(f"  asks for  {asks}")
    click.echo(f"  {explanation.message}")
    for each in explanation.left_out:
        click.echo(f"  left out  {each}")
    for place in explanation.slices:
        gpu = f"GPU {place.index}" if place.index is not None else place.gpu
        uuid = f"  {place.mig_uuid}" if place.mig_uuid else ""
        where = f"{place.profile} at {place.start} of {gpu} on {place.node}"
        click.echo(f"  slice     {where}, for container {place.container}: {place.state}{uuid}")
    if explanation.stage is not Stage.WAITING:
        return
    click.echo(
        f"  queue     {explanation.ahead} {'pod is' if explanation.ahead == 1 else 'pods are'} ahead of it"
        if explanation.ahead
        else "  queue     first"
    )
    for why, nodes in explanation.nodes.items():
        click.echo(f"  not on    {_some(nodes)}: {why}")
    if explanation.could:
        click.echo(f"  could     {_some(explanation.could)} would hold it if nothing else ran there")
    else:
        click.echo("  could     no node would hold it, even if empty: add a node, or ask for less")


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
