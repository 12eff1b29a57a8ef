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
  instaslice up --controller-flag=--taint-nodes --controller-flag=--patience=60
  instaslice up --download                         official binaries instead of a build
"""
KUEUE_NEXT = """\
  instaslice kueue manifests | kubectl apply -f -    # a queue for all GPU memory
  kubectl apply -f samples/kueue-job.yaml            # a Job that waits there for its quota
"""
SET_BY_US = ("--namespace", "--identity", "--kubeconfig", "--observe", "--metrics-auth", "--help")


def _controller_flags(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...] | None:
    """None where the option was omitted. Read as the controller will, before anything is started."""
    if not given:
        return None
    from instaslice.cli import controller

    flags = tuple(flag for flag in given if flag)
    for flag in flags:
        name = flag.partition("=")[0]
        if not flag.startswith("--") or name in SET_BY_US:
            why = "`instaslice up` decides it" if name in SET_BY_US else "write it like --taint-nodes or --patience=60"
            raise click.BadParameter(f"{flag}: {why}", param_hint="--controller-flag")
    try:
        controller.command.make_context("instaslice controller", list(flags))
    except click.UsageError as error:
        raise click.BadParameter(error.format_message(), param_hint="--controller-flag") from None
    return flags


@click.command(epilog=EXAMPLES)
@click.argument("name", default="default", shell_complete=completions.clusters)
@click.option("--nodes", type=int, help=f"Emulated GPU nodes.  [default: {NEW.nodes}]")
@click.option("--gpus", type=int, help=f"GPUs on each of them.  [default: {NEW.gpus}]")
@click.option("--model", shell_complete=completions.models, help=f"Their model.  [default: {NEW.model}]")
@click.option("--real-node", is_flag=True, default=None, help="Add a real kubelet with containerd on this machine.")
@click.option("--kueue", is_flag=True, default=None, help="Add Kueue.")
@click.option("--bare/--no-bare", default=None, help="Kubernetes alone, without InstaSlice.  [default: no-bare]")
@click.option("--latency", type=click.Choice(LATENCIES), help=f"How long emulated GPUs take.  [default: {NEW.latency}]")
@click.option(
    "--controller-flag",
    "controller_flags",
    multiple=True,
    metavar="FLAG",
    callback=_controller_flags,
    help="A further flag of `instaslice controller`, like --controller-flag=--taint-nodes, with the permissions that "
    "it needs; repeatable. An empty one removes all.",
)
@click.option("--port", default=0, metavar="PORT", help="Port of the API server; by default a free one.")
@click.option("--kubernetes", metavar="VERSION", help=f"Version of Kubernetes.  [default: {NEW.kubernetes}]")
@source_options
def command(name: str, port: int, source: Source, **changes: int | str | bool | tuple[str, ...] | None) -> None:
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
{KUEUE_NEXT if spec.kueue and not spec.bare else ""}
  instaslice clusters{suffix}
  instaslice down{suffix}"""
    )
