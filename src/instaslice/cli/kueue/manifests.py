"""`instaslice kueue manifests`: queues that count GPU memory, and Kueue's own configuration for them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import click
import yaml

from instaslice.api import names
from instaslice.cli.terminal import completions
from instaslice.cli.terminal.cluster_options import cluster_options
from instaslice.cli.terminal.documents import print_document
from instaslice.cli.terminal.given_flags import refuse_void
from instaslice.cli.terminal.gpu_model import GpuModel
from instaslice.cli.terminal.object_name import ObjectName
from instaslice.cli.terminal.quantity import Quantity
from instaslice.errors import BadInput
from instaslice.geometry import Model
from instaslice.kube.client import Client
from instaslice.kube.core import NODES, Node
from instaslice.kube.errors import Forbidden
from instaslice.kube.quantities import counted, humanized, nano
from instaslice.kube.transport import INTERACTIVE
from instaslice.kueue.configuration import configuration, merged
from instaslice.kueue.queues import NominalQuota, QueueNames, job_policy, queue_manifests

DEFAULT = QueueNames()
OF_QUEUES = (
    *("--gb", "--cpu", "--memory"),
    *("--queue", "--local-queue", "--flavor", "--namespace", "--cohort", "--admission-check"),
)
"""Flags that say what queues there are: Kueue's configuration does not."""
OF_CLUSTERS = ("--kubeconfig", "--context")

EXAMPLES = """\b
Examples:
  instaslice kueue manifests | kubectl apply -f -   a queue for all that the nodes with slices have
  instaslice kueue manifests --gb 50 --cpu 64 --memory 256Gi -n team-a -n team-b
  instaslice kueue manifests --queue team-a --gb 80 -n team-a --cohort gpus
  instaslice kueue manifests --admission-check slices   a queue that admits only what can be placed
  instaslice kueue manifests --config               what to add to Kueue's configuration
  instaslice kueue manifests --merge config.yaml    Kueue's whole configuration, with that in it
"""


@click.command(epilog=EXAMPLES)
@click.option("--gb", type=click.IntRange(0), metavar="GB", help="Quota of GPU memory.  [default: what the nodes have]")
@click.option("--cpu", type=Quantity(), metavar="CPUS", help="Quota of CPU.  [default: what those nodes have]")
@click.option("--memory", type=Quantity(), metavar="AMOUNT", help="Quota of memory.  [default: what those nodes have]")
@click.option(
    "--queue", type=ObjectName(), default=DEFAULT.cluster_queue, show_default=True, help="Name of the ClusterQueue."
)
@click.option(
    "--local-queue",
    type=ObjectName(),
    default=DEFAULT.local_queue,
    show_default=True,
    help="Name of the LocalQueues, which Jobs and pods name in the label kueue.x-k8s.io/queue-name.",
)
@click.option(
    "--flavor", type=ObjectName(), default=DEFAULT.flavor, show_default=True, help="Name of the ResourceFlavor."
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    type=ObjectName(namespace=True),
    shell_complete=completions.namespaces,
    help="A namespace with a LocalQueue; may be repeated.  [default: default]",
)
@click.option(
    "--cohort",
    type=ObjectName(),
    help="The cohort of the ClusterQueue: it lends and borrows what is not used, and takes back what it lent.",
)
@click.option(
    "--admission-check",
    type=ObjectName(),
    help="Name of an AdmissionCheck, by which the ClusterQueue admits only what can be placed. The controller has to "
    "run with --admission-check.",
)
@click.option("--config", is_flag=True, help="Print what Kueue's own configuration needs instead.")
@click.option(
    "--merge",
    type=click.File(),
    metavar="FILE",
    help="Print Kueue's configuration of this file with that merged in; - reads it from the standard input.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    type=GpuModel(),
    help="With --config or --merge: only the profiles of this GPU model; may be repeated.  [default: all models]",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@cluster_options
@click.pass_context
def command(
    ctx: click.Context,
    gb: int | None,
    cpu: str | None,
    memory: str | None,
    queue: str,
    local_queue: str,
    flavor: str,
    namespaces: tuple[str, ...],
    cohort: str | None,
    admission_check: str | None,
    config: bool,
    merge: TextIO | None,
    models: tuple[Model, ...],
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Print what makes Kueue count GPU memory in GB (gpu.das.com/mem), by the names of the profiles. Changes nothing.

    Without --config: a ResourceFlavor, a ClusterQueue for CPU, memory and GPU memory, a LocalQueue in each namespace,
    and a policy that refuses Jobs which would be charged twice or not at all. Quotas that are omitted are read from the
    cluster: what the nodes that have slices can give to pods.

    With --config: the part of Kueue's own configuration by which every slice is charged exactly once. Kueue reads it
    when it starts.
    """
    void = (*OF_QUEUES, *OF_CLUSTERS)
    refuse_void(ctx, beside={"--config": void, "--merge": (*void, "--config")}, without={})
    if models and not (config or merge):
        raise click.UsageError("--model would have no effect without --config or --merge: queues count GB of any model")
    if merge:
        print_document(merged(_read(merge), models), output)
    elif config:
        print_document(configuration(models), output)
    else:
        within = namespaces or DEFAULT.namespaces
        called = QueueNames(queue, local_queue, flavor, within, cohort or "", admission_check or "")
        quota = NominalQuota(cpu or "", memory or "", "" if gb is None else str(gb))
        if "" in quota.by_resource.values():
            quota = asyncio.run(_completed(quota, kubeconfig, context))
        _print([*queue_manifests(quota, called), *job_policy()], output)


async def _completed(quota: NominalQuota, kubeconfig: Path | None, context: str | None) -> NominalQuota:
    """With what the cluster's nodes have in place of what is omitted."""
    async with await Client.connect(kubeconfig, context=context, persistence=INTERACTIVE) as client:
        try:
            found = available(await client.list(NODES))
        except Forbidden as error:
            raise BadInput(
                f"{error.message}; grant `list` on nodes, or say --gb, --cpu and --memory yourself"
            ) from None
    given = {field: text for field in quota.__dataclass_fields__ if (text := getattr(quota, field))}
    return replace(found, **given)


def available(nodes: Sequence[Node]) -> NominalQuota:
    """What the nodes that have slices can give to pods. Raises BadInput where there are none."""
    ours = [each.status.allocatable for each in nodes if names.MEMORY in each.status.allocatable]
    if not ours:
        raise BadInput(
            f"no node advertises {names.MEMORY}, so there is nothing to give out: does InstaSlice's agent run? "
            "Or say --gb, --cpu and --memory yourself"
        )
    sums = {
        name: counted(name, sum(nano(each.get(name, 0)) for each in ours)) for name in ("cpu", "memory", names.MEMORY)
    }
    # Rounded down: a queue must not give out what no node has.
    cpu, memory, gb = (humanized(name, amount, up=False) for name, amount in sums.items())
    return NominalQuota(cpu, memory, gb)


def _read(file: TextIO) -> dict[str, Any]:
    """A configuration as it stands in a file. Raises BadInput."""
    try:
        found = yaml.safe_load(file)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{file.name} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or found.get("kind") != "Configuration":
        raise BadInput(
            f"{file.name} is not Kueue's configuration (kind: Configuration); it stands in the ConfigMap "
            "kueue-manager-config of the namespace kueue-system, under controller_manager_config.yaml"
        )
    return found


def _print(documents: list[dict[str, Any]], output: str) -> None:
    """As kubectl reads them: a List in JSON, documents one after the other in YAML."""
    if output == "json":
        print_document({"apiVersion": "v1", "kind": "List", "items": documents}, output)
        return
    for number, document in enumerate(documents):
        if number:
            click.echo("---")
        print_document(document, output)
