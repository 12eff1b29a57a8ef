"""`instaslice status`: the fleet of a cluster: GPUs as bars, what still fits, and who waits in which position."""

import asyncio
import difflib
import logging
import os
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from instaslice.api.live_snapshot import LiveSnapshot
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.cli.terminal import completions
from instaslice.cli.terminal.cluster_options import cluster_options
from instaslice.cli.terminal.documents import print_document
from instaslice.cli.terminal.fleet_changes import changes
from instaslice.cli.terminal.fleet_picture import Detail, fitting_detail, fleet_picture
from instaslice.cli.terminal.signals import run_until_signalled
from instaslice.controller.fleet_status import FleetStatus, fleet_status
from instaslice.errors import BadInput
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.transport import INTERACTIVE
from instaslice.placement import policies

WIDTH_OF_LOGS = 120
"""Characters per line where nothing says how wide the output is."""
REDRAW_SECONDS = 10.0
"""Ages go on where nothing changes; nothing is read for that."""
SHARE_OF_DRAWING = 0.5
"""Of the time, at most: a fleet of thousands that changes all the time must not take a whole core."""
EXAMPLES = """\b
Examples:
  instaslice status                      the fleet of the kubeconfig's cluster
  instaslice status --watch              drawn again whenever it changes; Ctrl-C ends it
  instaslice status --watch | tee log    each change as a line
  instaslice status -o wide              every GPU, slice and waiting pod, with MIG UUIDs
  instaslice status --node gpu-3         one node, in full
  instaslice status -o json              for programs; also yaml
"""

Show = Callable[[FleetStatus, str], None]
"""Gets the fleet, and why it may be out of date; "" where it is not."""


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

    def observe(cluster: ClusterSnapshot) -> FleetStatus:
        return _only(fleet_status(cluster, policies.named(policy)), nodes)

    async def run() -> None:
        async with await Client.connect(kubeconfig, context=context, persistence=INTERACTIVE) as client:
            clock = SystemClock()
            first = await ClusterSnapshot.read(client, clock, scheduling=True, partial=True)
            if not watch:
                _print(observe(first), output, detailed=bool(nodes))
            else:
                live = LiveSnapshot(client, clock, first)
                await run_until_signalled(_follow(live, observe, output, detailed=bool(nodes)))

    asyncio.run(run())


def _only(status: FleetStatus, names: Collection[str]) -> FleetStatus:
    """The fleet without other nodes. Raises BadInput where there is no such node."""
    if not names:
        return status
    if why := status.missing.get("instaslices"):
        raise BadInput(f"nodes cannot be chosen: {why}")
    there = {node.name for node in status.nodes}
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise BadInput(f"no node {name} has an Instaslice object{hint}; `kubectl get instaslices` lists them")
    return status.only(names)


def _print(status: FleetStatus, output: str, *, detailed: bool) -> None:
    if output in ("json", "yaml"):
        print_document(status, output)
        return
    console, cut = Console(), sys.stdout.isatty()
    width = console.width if cut or os.environ.get("COLUMNS") else WIDTH_OF_LOGS
    console.print(fleet_picture(status, _detail(status, output, detailed=detailed), width, cut=cut), crop=cut)


def _detail(status: FleetStatus, output: str, *, detailed: bool) -> Detail:
    return Detail.EVERYTHING if output == "wide" or detailed else fitting_detail(status)


async def _follow(
    live: LiveSnapshot, observe: Callable[[ClusterSnapshot], FleetStatus], output: str, *, detailed: bool
) -> None:
    async with live.running():
        if output in ("json", "yaml"):
            await _redraw(live, observe, _Documents(output).show)
        elif not sys.stdout.isatty():
            await _redraw(live, observe, _Lines().show)
        else:
            with Live(console=Console(), auto_refresh=False, vertical_overflow="crop") as screen:
                await _redraw(live, observe, _Picture(screen, output, detailed=detailed).show)


async def _redraw(live: LiveSnapshot, observe: Callable[[ClusterSnapshot], FleetStatus], show: Show) -> None:
    """Show the fleet at every change, until cancelled."""
    while True:
        live.changed.clear()
        began = time.monotonic()
        show(observe(live.read()), live.failure())
        await asyncio.sleep((time.monotonic() - began) * (1 / SHARE_OF_DRAWING - 1))
        try:
            async with asyncio.timeout(REDRAW_SECONDS):
                await live.changed.wait()
        except TimeoutError:
            continue


class _Documents:
    """A document at every change: JSON on one line, or YAML."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._before: FleetStatus | None = None

    def show(self, status: FleetStatus, _failure: str) -> None:
        if self._before is not None and msgspec.structs.replace(status, now=self._before.now) == self._before:
            return
        self._before = status
        if self._form == "json":
            click.echo(msgspec.json.encode(status).decode())
        else:
            click.echo("---")
            print_document(status, self._form)


class _Lines:
    """A line for each thing that changed."""

    def __init__(self) -> None:
        self._before: FleetStatus | None = None
        self._stale = False

    def show(self, status: FleetStatus, failure: str) -> None:
        at = status.now.astimezone().strftime("%H:%M:%S")
        for line in changes(self._before, status):
            click.echo(f"{at}  {line}")
        if failure and not self._stale:
            click.echo(f"{at}  not up to date: {failure}")
        elif self._stale and not failure:
            click.echo(f"{at}  up to date again")
        self._before, self._stale = status, bool(failure)
        sys.stdout.flush()


class _Picture:
    """The picture again, as detailed as the terminal is high."""

    def __init__(self, screen: Live, output: str, *, detailed: bool) -> None:
        self._screen = screen
        self._output = output
        self._detailed = detailed

    def show(self, status: FleetStatus, failure: str) -> None:
        console = self._screen.console
        stale = [Text(f"not up to date: {failure}", style="red")] if failure else []
        most = _detail(status, self._output, detailed=self._detailed)
        for detail in sorted(Detail, reverse=True):
            picture = Group(*stale, fleet_picture(status, detail, console.width))
            if detail <= most and len(console.render_lines(picture)) < console.height:
                break
        self._screen.update(picture, refresh=True)
