"""`instaslice doctor`: check the invariants of a cluster, and what the installation stands on."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from instaslice.api import names
from instaslice.cli.terminal.cluster_options import cluster_options
from instaslice.cli.terminal.documents import print_document
from instaslice.cli.terminal.finite_range import FiniteRange
from instaslice.cli.terminal.plain_text import echo
from instaslice.doctor import (
    Finding,
    Installation,
    Invariant,
    KueueQuota,
    ObservedKueue,
    Serving,
    dry_run,
    examine_installation,
    examine_kueue,
    examine_queues,
    examine_serving,
    wait_until_reported,
    wait_until_settled,
)
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.errors import Forbidden
from instaslice.kube.transport import INTERACTIVE

WRONG, NOT_ALL_CHECKED = 1, 3
"""Exit codes: something is wrong; nothing is, but not everything could be looked at."""
QUEUES_SETTLE_SECONDS = 2.0
"""Within which Kueue's status follows what it has admitted."""
NOTHING_READ = (
    "nothing could be looked at, so nothing is known of this cluster: grant this account what is named above, or name "
    "another one (--context)"
)

EXAMPLES = """\b
Examples:
  instaslice doctor              check once
  instaslice doctor --wait 90    check until all is well and no slice is in transition, at most 90 s; finds stuck slices
  instaslice doctor -o json      for programs; also yaml
"""


@click.command(epilog=EXAMPLES)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
@click.option("-n", "--namespace", default=names.NAMESPACE, show_default=True, help="Where the controller's Lease is.")
@click.option(
    "--wait",
    type=FiniteRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Check repeatedly until nothing is wrong, for at most this long. A busy cluster has transient findings.",
)
@cluster_options
def command(output: str, namespace: str, wait: float, kubeconfig: Path | None, context: str | None) -> None:
    """Check that pods, nodes and Instaslice objects agree with each other, whether the nodes serve, and what they stand
    on: webhook, policies, controller, definition, quotas; and that Kueue, where there is one, can admit what asks for
    slices and charges every slice once. Changes nothing: the pods that it creates are dry runs.

    Exits with 0 when nothing is wrong, with 1 when something is, and with 3 when nothing is but not everything could be
    looked at.
    """

    async def run() -> Examined:
        async with await Client.connect(kubeconfig, context=context, persistence=INTERACTIVE) as client:
            return await _examine(client, namespace, wait)

    found, nothing_read = asyncio.run(run())
    if output == "text":
        _text(found, wait, nothing_read=nothing_read)
    else:
        print_document(found, output)
    if found:
        sys.exit(WRONG if _wrong(found) else NOT_ALL_CHECKED)


class Examined(NamedTuple):
    found: list[Finding]
    nothing_read: bool = False
    """Whether the caller may read nothing at all, so that nothing is known of the cluster."""


async def _examine(client: Client, namespace: str, wait: float) -> Examined:
    clock = SystemClock()
    deadline = clock.monotonic() + wait
    installation = await Installation.read(client, clock, dry_run, namespace)
    if installation.definitions == []:
        return Examined(examine_installation(installation))  # there is nothing else to look at
    try:
        with _progress(wait) as on_progress:
            found = await wait_until_settled(client, wait, on_progress=on_progress)
        serving = await Serving.read(client, clock)
        quota = await KueueQuota.read(client)
        queues = examine_queues(quota, serving.cluster)
        if wait and any(each.transient for each in queues):
            await clock.sleep(QUEUES_SETTLE_SECONDS)
            serving = await Serving.read(client, clock)
            quota = await KueueQuota.read(client)
            queues = examine_queues(quota, serving.cluster)
        serving, unreported = await wait_until_reported(client, installation, serving, deadline=deadline, clock=clock)
    except Forbidden as error:
        missing = f"pods, nodes and instaslices.{names.GROUP}"
        message = f"may not all be read ({error.status} {error.reason}); grant `list` on {missing}"
        unread = Finding(Invariant.NOT_CHECKED, "pods, nodes and instaslices", message)
        kueue = await KueueQuota.read(client)
        found = [*examine_installation(installation), unread, *kueue.not_checked]
        return Examined(sorted(found), installation.unread)
    if wait and any(each.transient for each in examine_installation(installation)):
        installation = await Installation.read(client, clock, dry_run, namespace)
    cluster = serving.cluster
    found += [
        *queues,
        *unreported,
        *examine_serving(serving),
        *examine_installation(installation, cluster.pods, cluster.nodes),
    ]
    found += examine_kueue(await ObservedKueue.read(client, quota), cluster.instaslices)
    return Examined(sorted(found))


def _wrong(found: list[Finding]) -> bool:
    return any(each.invariant is not Invariant.NOT_CHECKED for each in found)


@contextmanager
def _progress(wait: float) -> Iterator[Callable[[list[Finding], int], None]]:
    """A status line on a terminal that says what is still awaited; nothing in a log."""
    if not wait or not sys.stderr.isatty():
        yield lambda _found, _moving: None
        return
    from rich.console import Console

    with Console(stderr=True).status("checking") as status:
        yield lambda found, moving: status.update(f"{len(found)} findings, {moving} slices being created or destroyed")


def _text(found: list[Finding], wait: float, *, nothing_read: bool) -> None:
    for finding in found:
        echo(f"{finding}{'  (may pass)' if finding.transient and not wait else ''}")
    if not _wrong(found):
        some = NOTHING_READ if nothing_read else "nothing wrong in what could be looked at"
        click.echo(some if found else "nothing wrong")
    elif not wait and any(finding.transient for finding in found):
        click.echo("Findings that may pass are worth a second check: instaslice doctor --wait 30", err=True)
