"""`instaslice down`: remove a local cluster without a trace."""

import click

from instaslice.cli.terminal import completions
from instaslice.errors import BadInput
from instaslice.local import cluster as clusters
from instaslice.local.cluster import Cluster
from instaslice.local.errors import LocalError

EXAMPLES = """\b
Examples:
  instaslice down            the cluster named default
  instaslice down second     the cluster named second
  instaslice down --all      every cluster of this user
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", required=False, shell_complete=completions.clusters)
@click.option("--all", "everything", is_flag=True, help="Every local cluster of this user.")
def command(name: str | None, everything: bool) -> None:
    """Stop a local cluster and remove everything it left: processes, mounts, bridge, cgroups, files.

    Works in any state, even after its processes were killed. The programs stay in the cache.
    """
    if name and everything:
        raise BadInput(f"--all removes every cluster, not only {name!r}: leave one of the two out")
    for cluster in clusters.all_clusters() if everything else [Cluster(name or "default")]:
        # Of all, one may have been removed by somebody else meanwhile.
        if not cluster.down() and not everything:
            raise LocalError(f"no cluster {cluster.name!r}; `instaslice clusters` lists them")
        click.echo(f"Cluster {cluster.name!r} is gone.")
