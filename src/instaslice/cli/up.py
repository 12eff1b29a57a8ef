"""`instaslice up`: a real Kubernetes on this machine."""

import time
from pathlib import Path

import click

from instaslice.cli.terminal import completions
from instaslice.cli.terminal.program_source import source_options
from instaslice.local.binaries import Source
from instaslice.local.cluster import LATENCIES, Cluster, ClusterSpec

NEW = ClusterSpec()
EXAMPLES = """\b
Examples:
  instaslice up                                    one emulated node with two A100-40GB
  instaslice up --nodes 4 --gpus 8 --model H200    four nodes of eight
  instaslice up --real-node --nodes 0              a real kubelet with containerd (Linux, root)
  instaslice up second --port 6443                 another cluster beside the first
  instaslice up --bare                             without InstaSlice
  instaslice up --download                         official binaries instead of a build
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", default="default", shell_complete=completions.clusters)
@click.option("--nodes", type=int, help=f"Emulated GPU nodes.  [default: {NEW.nodes}]")
@click.option("--gpus", type=int, help=f"GPUs on each of them.  [default: {NEW.gpus}]")
@click.option("--model", shell_complete=completions.models, help=f"Their model.  [default: {NEW.model}]")
@click.option("--real-node", is_flag=True, default=None, help="Add a real kubelet with containerd on this machine.")
@click.option("--kueue", is_flag=True, default=None, help="Add Kueue.")
@click.option("--bare/--no-bare", default=None, help="Kubernetes alone, without InstaSlice.  [default: no-bare]")
@click.option("--latency", type=click.Choice(LATENCIES), help=f"How long emulated GPUs take.  [default: {NEW.latency}]")
@click.option("--port", default=0, metavar="PORT", help="Port of the API server; by default a free one.")
@click.option("--kubernetes", metavar="VERSION", help=f"Version of Kubernetes.  [default: {NEW.kubernetes}]")
@source_options
def command(name: str, port: int, source: Source, **changes: int | str | bool | None) -> None:
    """Start a real Kubernetes on this machine with emulated GPU nodes, and InstaSlice on it.

    The first time, its programs are built from pinned Go modules (about eight minutes on two cores) and kept. Repeat
    it at any time: what runs is left alone, what is missing is started, and options that you omit stay as they were.
    """
    began = time.monotonic()
    cluster = Cluster(name)
    spec = cluster.spec(**changes)
    cluster.up(spec, source, port=port, say=lambda text: click.echo(text, err=True))
    suffix = "" if name == "default" else f" {name}"
    click.echo(
        f"""Cluster {name!r} is up after {time.monotonic() - began:.1f} s. Next:

  export KUBECONFIG={cluster.kubeconfig}
  export PATH={Path(cluster.record().programs["kubectl"]).parent}:$PATH
  kubectl get {"nodes" if spec.bare else "nodes,instaslices"}

  instaslice clusters{suffix}
  instaslice down{suffix}"""
    )
