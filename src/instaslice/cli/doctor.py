"""`instaslice doctor`: check the invariants of a cluster."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from instaslice.cli.terminal.finite_range import FiniteRange
from instaslice.doctor import Finding, wait_until_settled
from instaslice.kube.client import Client

EXAMPLES = """\b
Examples:
  instaslice doctor              check once
  instaslice doctor --wait 90    check until all is well and no slice is in transition, at most 90 s; finds stuck slices
  instaslice doctor -o json      for programs
"""


@click.command(epilog=EXAMPLES)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--wait",
    type=FiniteRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Check repeatedly until nothing is wrong, for at most this long. A busy cluster has transient findings.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
def command(output: str, wait: float, kubeconfig: Path | None) -> None:
    """Check that pods, nodes and Instaslice objects agree with each other. Changes nothing.

    Exits with 1 when something is wrong.
    """

    async def run() -> list[Finding]:
        async with await Client.connect(kubeconfig) as client:
            with _progress(wait) as on_progress:
                return await wait_until_settled(client, wait, on_progress=on_progress)

    found = asyncio.run(run())
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        _text(found, wait)
    if found:
        sys.exit(1)


@contextmanager
def _progress(wait: float) -> Iterator[Callable[[list[Finding], int], None]]:
    """A status line on a terminal that says what is still awaited; nothing in a log."""
    if not wait or not sys.stderr.isatty():
        yield lambda _found, _moving: None
        return
    from rich.console import Console

    with Console(stderr=True).status("checking") as status:
        yield lambda found, moving: status.update(f"{len(found)} findings, {moving} slices being created or destroyed")


def _text(found: list[Finding], wait: float) -> None:
    for finding in found:
        click.echo(f"{finding}{'  (may pass)' if finding.transient and not wait else ''}")
    if not found:
        click.echo("nothing wrong")
    elif not wait and any(finding.transient for finding in found):
        click.echo("Findings that may pass are worth a second check: instaslice doctor --wait 30", err=True)
