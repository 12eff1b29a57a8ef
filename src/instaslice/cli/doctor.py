"""`instaslice doctor`: whether everything in a cluster is as it must be."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from instaslice.cli.terminal.finite_range import FiniteRange
from instaslice.controller.doctor import Finding, settled
from instaslice.kube.client import Client

EXAMPLES = """\b
Examples:
  instaslice doctor              one look
  instaslice doctor --wait 90    look until all is well and nothing moves, at most 90 seconds; finds what is stuck
  instaslice doctor -o json      for programs
"""


@click.command(epilog=EXAMPLES)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--wait",
    type=FiniteRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Look again until all is well, at most so long: a cluster in motion has passing states.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
def command(output: str, wait: float, kubeconfig: Path | None) -> None:
    """Compare what pods, nodes and Instaslice objects say of each other. Changes nothing.

    Exits with 1 when something is wrong.
    """

    async def run() -> list[Finding]:
        async with await Client.connect(kubeconfig) as client:
            with _shown(wait) as told:
                return await settled(client, wait, told=told)

    found = asyncio.run(run())
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        _text(found, wait)
    if found:
        sys.exit(1)


Told = Callable[[list[Finding], int], None]


@contextmanager
def _shown(wait: float) -> Iterator[Told]:
    """A line on a terminal that says what is still awaited; nothing in a log."""
    if not wait or not sys.stderr.isatty():
        yield lambda _found, _moving: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking") as status:
        yield lambda found, moving: status.update(f"{len(found)} findings, {moving} slices being made or destroyed")


def _text(found: list[Finding], wait: float) -> None:
    for finding in found:
        click.echo(f"{finding}{'  (may pass)' if finding.passing and not wait else ''}")
    if not found:
        click.echo("nothing wrong")
    elif not wait and any(finding.passing for finding in found):
        click.echo("What may pass is worth a second look: instaslice doctor --wait 30", err=True)
