"""`instaslice clusters`: local clusters and their components."""

import asyncio
import difflib
import sys

import click
import msgspec

from instaslice.cli.terminal import completions
from instaslice.kube.errors import KubeError, Unreachable
from instaslice.local.cluster import Cluster, all_clusters
from instaslice.local.errors import LocalError

ANSWER_SECONDS = 5.0

EXAMPLES = """\b
Examples:
  instaslice clusters                  every local cluster
  instaslice clusters second -o json   one of them, for programs
"""


class ClusterStatus(msgspec.Struct):
    name: str
    kubernetes: str
    server: str
    kubeconfig: str
    nodes: int
    gpus_per_node: int
    model: str
    real_node: bool
    bare: bool
    components: dict[str, bool]
    nodes_ready: int | None = None
    """None while the API server does not answer."""


@click.command(epilog=EXAMPLES)
@click.argument("name", required=False, shell_complete=completions.clusters)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(name: str | None, output: str) -> None:
    """Show local clusters and whether their components run. Exits with 1 when one of them does not, and where there is
    no cluster of that name."""
    if name is not None and not Cluster(name).exists:
        raise LocalError(_unknown(name))
    rows: list[ClusterStatus] = []
    unreadable: list[Exception] = []
    for cluster in all_clusters() if name is None else [Cluster(name)]:
        try:
            rows.append(_row(cluster))
        except (LocalError, KubeError) as error:
            unreadable.append(error)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
    elif not (rows or unreadable):
        click.echo("No local cluster. `instaslice up` starts one.")
    else:
        _table(rows)
    for why in unreadable:
        click.echo(f"error: {why}", err=True)
    if unreadable or not all(running for row in rows for running in row.components.values()):
        sys.exit(1)


def _unknown(name: str) -> str:
    there = sorted(each.name for each in all_clusters())
    near = difflib.get_close_matches(name, there, n=3) or there
    known = f"there is {', '.join(near)}" if near else "there is none: `instaslice up` starts one"
    return f"no cluster {name!r}; {known}"


def _row(cluster: Cluster) -> ClusterStatus:
    record = cluster.record()
    spec = record.spec
    return ClusterStatus(
        name=cluster.name,
        kubernetes=spec.kubernetes,
        server=cluster.plane().server,
        kubeconfig=str(cluster.kubeconfig),
        nodes=spec.nodes,
        gpus_per_node=spec.gpus,
        model=spec.model,
        real_node=spec.real_node,
        bare=spec.bare,
        components=cluster.components(),
        nodes_ready=_nodes_ready(cluster) if cluster.processes.find("kube-apiserver") else None,
    )


def _nodes_ready(cluster: Cluster) -> int | None:
    async def count() -> int:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await cluster.count_ready()

    try:
        return asyncio.run(count())
    except (TimeoutError, Unreachable):
        return None


def _table(rows: list[ClusterStatus]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True)
    for row in rows:
        table = Table("COMPONENT", "STATE", box=None, pad_edge=False)
        for component, running in row.components.items():
            table.add_row(component, "running" if running else "[red]not running[/red]")
        real = " and a real one" if row.real_node else ""
        bare = ", without InstaSlice" if row.bare else ""
        ready = ", the API server does not answer" if row.nodes_ready is None else f", {row.nodes_ready} ready"
        console.print(f"[bold]{row.name}[/bold]  Kubernetes {row.kubernetes}  {row.server}")
        console.print(f"{row.nodes} emulated nodes of {row.gpus_per_node} {row.model}{real}{ready}{bare}")
        console.print(f"export KUBECONFIG={row.kubeconfig}", highlight=False)
        console.print(table)
        if not all(row.components.values()):
            console.print(
                f"`instaslice up {row.name}` starts what is missing; `instaslice down {row.name}` removes the cluster."
            )
