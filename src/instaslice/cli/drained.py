"""`instaslice drained`: whether any pod holds a slice or waits for one, before an uninstall or the end of a node."""

import asyncio
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import click

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, Allocation, Instaslice, SliceState
from instaslice.api.pods import gated
from instaslice.cli.terminal.missing_grant import in_cluster
from instaslice.cli.terminal.plain_text import echo
from instaslice.errors import BadInput
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import PODS, Pod
from instaslice.kube.errors import Forbidden, NotFound
from instaslice.kube.meta import Key, key_of
from instaslice.kube.transport import INTERACTIVE

HELD = 1
"""Exit code: pods hold slices, or wait for them."""
UNBOUND = Selector(fields="spec.nodeName=")
DELETE_WAITING = (
    "scale down what owns them, or delete them after the uninstall, so that their owners create others "
    "(docs/operations.md has the command)"
)
WITHOUT_US = ", or skip this check: helm uninstall … --no-hooks"
"""What else helps before an uninstall; for the end of a node nothing does."""
GONE = "; the pod is gone, and its slices are released while the controller and the agent of that node run"
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
    """Say which pods hold slices, and without --node which ones wait for slices: after an uninstall nobody would remove
    their gate. Exits with 0 when none does, and with 1 otherwise. Changes nothing."""

    async def read() -> tuple[list[tuple[str, Allocation]], list[str], set[str]]:
        async with await Client.connect(kubeconfig, context=context, persistence=INTERACTIVE) as client:
            try:
                pods = await client.list(PODS, UNBOUND) if node is None else []
                found = chosen(await client.list(INSTASLICES), node)
            except NotFound:
                found = []  # its definition is gone, so nobody holds anything of ours
            except Forbidden as error:
                raise in_cluster(error) from None
            held = [
                (each.metadata.name, allocation)
                for each in found
                for allocation in each.spec.allocations
                if holds(allocation, each)
            ]
            return held, waiting(pods, held), await gone(client, held)

    held, waits, without_pod = asyncio.run(read())
    if not (held or waits):
        click.echo("no pod holds a slice" if node else "no pod holds a slice or waits for one")
        return
    holding = lines(held, "" if node else WITHOUT_US, without_pod) if held else ()
    for line in (*holding, *(waiting_lines(waits) if waits else ())):
        echo(line, err=True)
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


async def gone(client: Client, held: Iterable[tuple[str, Allocation]]) -> set[str]:
    """The uids of holders that are no more, of those that are named: nobody can delete them, and without controller and
    agent nobody gives their slices back."""
    found: set[str] = set()
    named = {_holder(node, allocation): allocation.pod for node, allocation in held}
    for _, ref in sorted(named.items())[:MOST_PODS]:
        try:
            pod = await client.get(PODS, Key(ref.namespace, ref.name))
        except NotFound:
            found.add(ref.uid)
        except Forbidden:
            return found
        else:
            if pod.metadata.uid != ref.uid:
                found.add(ref.uid)
    return found


def waiting(pods: Iterable[Pod], held: Iterable[tuple[str, Allocation]]) -> list[str]:
    """The pods that our gate holds back, without those that are named as holders."""
    named = {allocation.pod.uid for _, allocation in held}
    return sorted(str(key_of(pod)) for pod in pods if gated(pod) and not pod.ended and pod.metadata.uid not in named)


def waiting_lines(waits: Sequence[str]) -> list[str]:
    """One line for each of the first pods, then how many more, then the remedy."""
    shown = [f"pod {each}: waits for slices" for each in waits[:MOST_PODS]]
    more = [f"and {len(waits) - MOST_PODS} more"] if len(waits) > MOST_PODS else []
    remedy = (
        f"{len(waits)} pods wait" if len(waits) > 1 else "1 pod waits"
    ) + f" behind the gate {names.GATE}, which nobody removes after an uninstall; {DELETE_WAITING}"
    return [*shown, *more, remedy]


def lines(held: Iterable[tuple[str, Allocation]], otherwise: str = "", without_pod: Collection[str] = ()) -> list[str]:
    """One line for each of the first pods, with its slices, then how many more, then the remedy and its alternative."""
    pods: dict[str, list[str]] = {}
    no_more: set[str] = set()
    for node, allocation in held:
        pods.setdefault(_holder(node, allocation), []).append(allocation.profile)
        if allocation.pod.uid in without_pod:
            no_more.add(_holder(node, allocation))
    shown = [f"{pod}: {', '.join(profiles)}{GONE if pod in no_more else ''}" for pod, profiles in sorted(pods.items())]
    more = [f"and {len(shown) - MOST_PODS} more"] if len(shown) > MOST_PODS else []
    count = f"{len(pods)} pods hold slices; delete them" if len(pods) > 1 else "1 pod holds slices; delete it"
    return [*shown[:MOST_PODS], *more, f"{count}{otherwise}"]


def _holder(node: str, allocation: Allocation) -> str:
    return f"pod {allocation.pod.namespace}/{allocation.pod.name} on node {node}"
