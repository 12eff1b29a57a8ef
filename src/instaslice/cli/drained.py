"""`instaslice drained`: whether any pod still holds a slice. The chart asks it before it is uninstalled."""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from instaslice.api.instaslice import INSTASLICES, Allocation, Instaslice, SliceState
from instaslice.errors import BadInput
from instaslice.kube.client import Client
from instaslice.kube.errors import NotFound
from instaslice.kube.transport import INTERACTIVE

HELD = 1
"""Exit code: pods hold slices."""
MOST_PODS = 10
"""More are counted, not named."""

EXAMPLES = """\b
Examples:
  instaslice drained && helm uninstall instaslice -n instaslice-system
  kubectl drain NODE --ignore-daemonsets && instaslice drained --node NODE
"""


@click.command(epilog=EXAMPLES)
@click.option("--node", help="Only this node.")
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--context", help="The context of the kubeconfig.  [default: its current one]")
def command(node: str | None, kubeconfig: Path | None, context: str | None) -> None:
    """Say which pods hold slices. Exits with 0 when none does, and with 1 otherwise. Changes nothing."""

    async def read() -> list[tuple[str, Allocation]]:
        async with await Client.connect(kubeconfig, context=context, persistence=INTERACTIVE) as client:
            try:
                objects = await client.list(INSTASLICES)
            except NotFound:
                return []  # its definition is gone, so nobody holds anything of ours
        return [
            (each.metadata.name, allocation)
            for each in chosen(objects, node)
            for allocation in each.spec.allocations
            if holds(allocation, each)
        ]

    held = asyncio.run(read())
    if not held:
        click.echo("no pod holds a slice")
        return
    for line in lines(held):
        click.echo(line, err=True)
    sys.exit(HELD)


def chosen(objects: Sequence[Instaslice], node: str | None) -> Sequence[Instaslice]:
    """All, or that of one node. Raises BadInput where it has none: a name misspelt is no proof that nothing runs."""
    found = [each for each in objects if node in (None, each.metadata.name)]
    if node is not None and not found:
        known = ", ".join(sorted(each.metadata.name for each in objects)) or "none at all"
        raise BadInput(f"--node {node}: there is no Instaslice object of that node, but of {known}")
    return found


def holds(allocation: Allocation, node: Instaslice) -> bool:
    """Whether its slice is needed, or is yet to be destroyed. The entry of one that is gone stays for some seconds."""
    left = any(each.id == allocation.id and each.state is not SliceState.DELETED for each in node.status.slices)
    return allocation.wanted or left


def lines(held: Iterable[tuple[str, Allocation]]) -> list[str]:
    """One line for each of the first pods, with its slices, then how many more, then the remedy."""
    pods: dict[str, list[str]] = {}
    for node, allocation in held:
        pod = f"pod {allocation.pod.namespace}/{allocation.pod.name} on node {node}"
        pods.setdefault(pod, []).append(allocation.profile)
    shown = [f"{pod}: {', '.join(profiles)}" for pod, profiles in sorted(pods.items())]
    more = [f"and {len(shown) - MOST_PODS} more"] if len(shown) > MOST_PODS else []
    count = f"{len(pods)} pods hold slices; delete them" if len(pods) > 1 else "1 pod holds slices; delete it"
    remedy = f"{count}, or skip this check: helm uninstall … --no-hooks"
    return [*shown[:MOST_PODS], *more, remedy]
