"""`instaslice status`: the fleet of a cluster: GPUs as bars, what still fits, and who waits in which position."""

import asyncio
import difflib
import logging
import os
import sys
from collections.abc import Collection
from pathlib import Path

import click
from rich.console import Console

from instaslice.api.instaslice import INSTASLICES
from instaslice.api.live_snapshot import LiveSnapshot
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.cli.terminal import completions
from instaslice.cli.terminal.cluster_options import cluster_options
from instaslice.cli.terminal.documents import print_document
from instaslice.cli.terminal.fleet_picture import Detail, fitting_detail, fleet_picture
from instaslice.cli.terminal.fleet_watch import follow
from instaslice.cli.terminal.held_workloads import read_holds
from instaslice.cli.terminal.missing_grant import in_cluster
from instaslice.cli.terminal.signals import run_until_signalled
from instaslice.controller.fleet_status import FleetStatus, fleet_status
from instaslice.errors import BadInput
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.errors import Forbidden
from instaslice.kube.transport import INTERACTIVE
from instaslice.kueue.hold import KueueHolds
from instaslice.placement import policies

WIDTH_OF_LOGS = 120
"""Characters per line where nothing says how wide the output is."""
EXAMPLES = """\b
Examples:
  instaslice status                      the fleet of the kubeconfig's cluster
  instaslice status --watch              drawn again whenever it changes; Ctrl-C ends it
  instaslice status --watch | tee log    each change as a line
  instaslice status -o wide              every GPU, slice and waiting pod, with MIG UUIDs
  instaslice status --node gpu-3         one node, in full
  instaslice status -o json              for programs; also yaml
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    shell_complete=completions.nodes,
    help="Only this node, in full; may be repeated.",
)
@click.option("-w", "--watch", is_flag=True, help="Go on, and show every change.")
@click.option("-o", "--output", type=click.Choice(["text", "wide", "json", "yaml"]), default="text", show_default=True)
@cluster_options
@click.option(
    "--policy",
    type=click.Choice(policies.names()),
    default=policies.DEFAULT,
    show_default=True,
    help="The policy that the controller runs with.",
)
def command(
    nodes: tuple[str, ...], watch: bool, output: str, kubeconfig: Path | None, context: str | None, policy: str
) -> None:
    """Show the fleet: who holds which slice of each GPU, the largest profile that still fits, memory that is free and
    unusable, and who waits in which position. Changes nothing. A large fleet is summarised: -o wide shows all of it."""
    logging.getLogger("instaslice").addHandler(logging.NullHandler())  # what it would log is part of what is shown

    detail = Detail.EVERYTHING if output == "wide" or nodes else None

    def observe(cluster: ClusterSnapshot, holds: KueueHolds | None = None) -> FleetStatus:
        status = fleet_status(cluster, policies.named(policy), holds)
        return status.only(nodes) if nodes else status

    async def run() -> None:
        async with await Client.connect(kubeconfig, context=context, persistence=INTERACTIVE) as client:
            clock = SystemClock()
            try:
                first = await ClusterSnapshot.read(client, clock, scheduling=True, partial=True)
            except Forbidden as error:
                raise in_cluster(error) from None
            _check_names(first, nodes)
            if not watch:
                _, holds = await read_holds(client, first, "")
                _print(observe(first, holds), output, detail)
            else:
                await run_until_signalled(follow(LiveSnapshot(client, clock, first), observe, output, detail))

    asyncio.run(run())


def _check_names(cluster: ClusterSnapshot, nodes: Collection[str]) -> None:
    """Raises BadInput where there is no such node."""
    if nodes and INSTASLICES.plural in cluster.forbidden:
        raise BadInput(f"--node needs the Instaslice objects: grant `list` on {INSTASLICES.plural}.{INSTASLICES.group}")
    there = [each.metadata.name for each in cluster.instaslices]
    for name in nodes:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise BadInput(f"no node {name} has an Instaslice object{hint}; `kubectl get instaslices` lists them")


def _print(status: FleetStatus, output: str, detail: Detail | None) -> None:
    if output in ("json", "yaml"):
        print_document(status, output)
        return
    console, cut = Console(), sys.stdout.isatty()
    width = console.width if cut or os.environ.get("COLUMNS") else WIDTH_OF_LOGS
    shown = fitting_detail(status) if detail is None else detail
    console.print(fleet_picture(status, shown, width, cut=cut), crop=cut)
