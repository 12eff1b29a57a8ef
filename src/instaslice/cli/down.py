"""`instaslice down`: a local cluster goes without a trace."""

import click

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
@click.argument("name", default="default")
@click.option("--all", "everything", is_flag=True, help="Every local cluster of this user.")
def command(name: str, everything: bool) -> None:
    """Stop a local cluster and remove all it left: processes, mounts, bridge, cgroups, files.

    Works whatever state it is in, also after its processes were killed. The programs stay in the cache.
    """
    targets = clusters.every() if everything else [Cluster(name)]
    for cluster in targets:
        if not cluster.down():
            raise LocalError(f"no cluster {cluster.name!r}; `instaslice status` lists them")
        click.echo(f"Cluster {cluster.name!r} is gone.")
