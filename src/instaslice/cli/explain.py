"""`instaslice explain`: why a pod waits and what would make it fit, or where its slices are; or all pods that wait."""

import asyncio
from pathlib import Path

import click

from instaslice.api import names
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.cli.terminal import completions, explanations
from instaslice.cli.terminal.cluster_options import cluster_options
from instaslice.cli.terminal.documents import print_document
from instaslice.cli.terminal.explained_workloads import (
    KINDS,
    WorkloadAnswer,
    deployment_of,
    find_pod,
    pods_of,
    read_workload,
)
from instaslice.cli.terminal.missing_grant import in_cluster, in_namespace
from instaslice.cli.terminal.object_name import ObjectName
from instaslice.cli.terminal.plain_text import echo
from instaslice.controller.explain import Explainer
from instaslice.controller.explanation import Explanation
from instaslice.controller.quoted_condition import QuotedConditions
from instaslice.errors import BadInput, InstasliceError
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.errors import Forbidden
from instaslice.kube.transport import INTERACTIVE
from instaslice.placement import policies

PODS = ("", "pod", "pods", "po")
NODE_KINDS = ("node", "nodes", "no", "instaslice", "instaslices")
EXAMPLES = """\b
Examples:
  instaslice explain                       all pods that wait, in the namespace of the kubeconfig's context
  instaslice explain -A                    in all namespaces
  instaslice explain pod/train -n team-a   one pod
  instaslice explain deploy/web            the pods of a Deployment (job/, sts/, ds/ or rs/NAME), or why it has none
  instaslice explain train -o yaml         for programs
"""


@click.command(epilog=EXAMPLES)
@click.argument(
    "name",
    metavar="[pod/NAME | deploy/NAME | job/NAME | sts/NAME | ds/NAME | rs/NAME]",
    required=False,
    shell_complete=completions.workloads,
)
@click.option(
    "-n",
    "--namespace",
    type=ObjectName(namespace=True),
    shell_complete=completions.namespaces,
    help="[default: that of the kubeconfig's context]",
)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All that waits, in all namespaces.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
@cluster_options
@click.option(
    "--policy",
    type=click.Choice(policies.names()),
    default=policies.DEFAULT,
    show_default=True,
    help="The policy that the controller runs with.",
)
def command(
    name: str | None,
    namespace: str | None,
    everywhere: bool,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    policy: str,
) -> None:
    """Explain what state a pod is in, since when and why; without a name, list all pods that wait. Changes nothing."""
    if everywhere and (name is not None or namespace):
        raise BadInput("-A lists what waits in all namespaces: leave out the name and -n, or leave out -A")
    kind, _, own = (name or "").rpartition("/")
    if name is not None:
        if kind not in PODS and kind not in KINDS:
            of_a_node = f"; of a node: instaslice status --node {own}" if kind in NODE_KINDS else ""
            raise BadInput(
                f"{name}: only pods and what owns them are explained: "
                f"pod/{own}, deploy/{own}, job/{own}, sts/{own}, ds/{own} or rs/{own}{of_a_node}"
            )
        ObjectName().convert(own, None, None)

    async def run() -> None:
        async with await Client.connect(kubeconfig, context=context, persistence=INTERACTIVE) as client:
            chosen = namespace or client.namespace
            cluster, explainer = await look(client, None if everywhere else chosen, policy)
            if name is None:
                _list(explainer, cluster, None if everywhere else chosen, output)
            elif kind in PODS:
                pod = find_pod(cluster, chosen, own)
                explanation = explainer.explain(pod, await deployment_of(client, pod))
                _print([explanation], cluster, output, single=True)
            else:
                await _workload(client, explainer, cluster, kind, chosen, own, output)

    asyncio.run(run())


async def look(
    client: Client, namespace: str | None, policy: str
) -> tuple[ClusterSnapshot, Explainer | QuotedConditions]:
    """What is there, and who explains it: for a user who may read one namespace only, the conditions of its pods."""
    try:
        cluster = await ClusterSnapshot.read(client, SystemClock(), scheduling=True)
        return cluster, Explainer(cluster, policies.named(policy))
    except Forbidden as error:
        if namespace is None:
            raise InstasliceError(f"{in_cluster(error)}; or leave out -A") from None
        why = f"{error.message}; grant `list` on pods, nodes and instaslices.{names.GROUP} in the whole cluster"
    try:
        cluster = await ClusterSnapshot.of_namespace(client, SystemClock(), namespace)
    except Forbidden as error:
        raise in_namespace(error, namespace) from None
    return cluster, QuotedConditions(cluster, f"all but what the controller wrote into the pod: {why}")


def _list(
    explainer: Explainer | QuotedConditions, cluster: ClusterSnapshot, namespace: str | None, output: str
) -> None:
    waiting = explainer.waiting()
    shown = [each for each in waiting if namespace is None or each.pod.startswith(f"{namespace}/")]
    if output != "text":
        print_document(shown, output)
    elif shown:
        explanations.table(shown, cluster.now)
    else:
        count = "1 pod waits" if len(waiting) == 1 else f"{len(waiting)} pods wait"
        others = f"; {count} in other namespaces: -A" if waiting else ""
        click.echo(f"no pod waits for slices{f' in namespace {namespace}' if namespace else ''}{others}")
    if output == "text":
        for each in explainer.left_out:
            echo(f"left out  {each}")


async def _workload(
    client: Client,
    explainer: Explainer | QuotedConditions,
    cluster: ClusterSnapshot,
    kind: str,
    namespace: str,
    name: str,
    output: str,
) -> None:
    resource = KINDS[kind]
    pods = pods_of(cluster, resource.kind, namespace, name)
    present = [pod for pod in pods if not pod.ended]
    workload, message = await read_workload(client, resource, namespace, name, present=len(present))
    deployment = workload if resource.kind == "Deployment" else None
    if resource.kind == "ReplicaSet" and pods:
        deployment = await deployment_of(client, pods[0])
    title = f"{resource.kind.lower()} {namespace}/{name}"
    if output != "text":
        explained = [explainer.explain(pod, deployment) for pod in pods]
        print_document(WorkloadAnswer(workload=title, message=message, pods=explained), output)
        return
    if message:
        echo(f"{title}: {message}")
    _print([explainer.explain(pod, deployment) for pod in present], cluster, output)
    explanations.ended([pod for pod in pods if pod.ended])


def _print(explained: list[Explanation], cluster: ClusterSnapshot, output: str, *, single: bool = False) -> None:
    if output != "text":
        print_document(explained[0] if single else explained, output)
        return
    for each in explained:
        explanations.text(each, cluster.now)
