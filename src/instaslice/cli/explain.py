"""`instaslice explain`: why a pod waits and what would make it fit, or where its slices are; or all pods that wait."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

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
from instaslice.cli.terminal.held_workloads import (
    KUEUES_KINDS,
    find_workload,
    held_without_pods,
    hold_of_owner,
    pods_of_workload,
    read_holds,
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
from instaslice.kube.core import Pod
from instaslice.kube.errors import Forbidden
from instaslice.kube.transport import INTERACTIVE
from instaslice.kueue.hold import KueueHolds
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.placement import policies

PODS = ("", "pod", "pods", "po")
NODE_KINDS = ("node", "nodes", "no", "instaslice", "instaslices")
MOST_NAMED = 5
"""Jobs on one line."""
EXAMPLES = """\b
Examples:
  instaslice explain                       all pods that wait, in the namespace of the kubeconfig's context
  instaslice explain -A                    in all namespaces
  instaslice explain pod/train -n team-a   one pod
  instaslice explain deploy/web            the pods of a Deployment (job/, sts/, ds/ or rs/NAME), or why it has none
  instaslice explain job/train             a Job that Kueue holds: why, its position in the queue, the quota
  instaslice explain workload/job-train-1  the same by the name of Kueue's Workload
  instaslice explain train -o yaml         for programs
"""


@click.command(epilog=EXAMPLES)
@click.argument(
    "name",
    metavar="[pod/NAME | deploy/NAME | job/NAME | sts/NAME | ds/NAME | rs/NAME | workload/NAME]",
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
        if kind not in (*PODS, *KINDS, *KUEUES_KINDS):
            kinds = ", ".join(f"{each}/{own}" for each in ("pod", "deploy", "job", "sts", "ds", "rs"))
            of_a_node = f"; of a node: instaslice status --node {own}" if kind in NODE_KINDS else ""
            raise BadInput(f"{name}: only pods and what owns them are explained: {kinds} or workload/{own}{of_a_node}")
        ObjectName().convert(own, None, None)

    async def run() -> None:
        async with await Client.connect(kubeconfig, context=context, persistence=INTERACTIVE) as client:
            chosen = namespace or client.namespace
            named = kind not in PODS or name is None
            seen = await look(client, None if everywhere else chosen, policy, named=named)
            if name is None:
                _list(seen, None if everywhere else chosen, output)
            elif kind in PODS:
                pod = find_pod(seen.cluster, chosen, own)
                explanation = seen.explainer.explain(pod, await deployment_of(client, pod))
                _print([explanation], seen.cluster, output, single=True)
            elif kind in KUEUES_KINDS:
                _kueue_workload(seen, chosen, own, output)
            else:
                await _workload(client, seen, kind, chosen, own, output)

    asyncio.run(run())


class Seen(NamedTuple):
    """What is there, who explains it, and what Kueue says where it was asked."""

    cluster: ClusterSnapshot
    explainer: Explainer | QuotedConditions
    kueue: KueueSnapshot | None
    holds: KueueHolds | None


async def look(client: Client, namespace: str | None, policy: str, *, named: bool = False) -> Seen:
    """For a user who may read one namespace only, the conditions of its pods. `named`: not a pod is asked for but what
    Kueue may hold before it has pods, or all that waits."""
    try:
        cluster = await ClusterSnapshot.read(client, SystemClock(), scheduling=True)
        kueue, holds = await read_holds(client, cluster, namespace or "", named=named)
        return Seen(cluster, Explainer(cluster, policies.named(policy), holds), kueue, holds)
    except Forbidden as error:
        if namespace is None:
            raise InstasliceError(f"{in_cluster(error)}; or leave out -A") from None
        why = f"{error.message}; grant `list` on pods, nodes and instaslices.{names.GROUP} in the whole cluster"
    try:
        cluster = await ClusterSnapshot.of_namespace(client, SystemClock(), namespace)
    except Forbidden as error:
        raise in_namespace(error, namespace) from None
    kueue, holds = await read_holds(client, cluster, namespace, named=named)
    left_out = f"all but what the controller wrote into the pod: {why}"
    return Seen(cluster, QuotedConditions(cluster, left_out, holds), kueue, holds)


def _list(seen: Seen, namespace: str | None, output: str) -> None:
    waiting = seen.explainer.waiting()
    shown = [each for each in waiting if namespace is None or each.pod.startswith(f"{namespace}/")]
    if output != "text":
        print_document(shown, output)
    elif shown:
        explanations.table(shown, seen.cluster.now)
    else:
        count = "1 pod waits" if len(waiting) == 1 else f"{len(waiting)} pods wait"
        others = f"; {count} in other namespaces: -A" if waiting else ""
        click.echo(f"no pod waits for slices{f' in namespace {namespace}' if namespace else ''}{others}")
    if output == "text":
        if suspended := held_without_pods(seen.kueue, namespace):
            more = f" and {len(suspended) - MOST_NAMED} more" if len(suspended) > MOST_NAMED else ""
            echo(f"held by Kueue, without pods: {', '.join(suspended[:MOST_NAMED])}{more}")
        # What holds a pod is said in its row; of what has no pods yet nothing else would tell.
        unread = seen.kueue.not_read if seen.kueue is not None and seen.kueue.workloads is None else ()
        for each in (*unread, *seen.explainer.left_out):
            echo(f"left out  {each}")


async def _workload(client: Client, seen: Seen, kind: str, namespace: str, name: str, output: str) -> None:
    resource = KINDS[kind]
    pods = pods_of(seen.cluster, resource.kind, namespace, name)
    present = [pod for pod in pods if not pod.ended]
    workload, message = await read_workload(client, resource, namespace, name, present=len(present))
    hold = None
    if workload is not None and seen.holds is not None:
        suspended = workload.spec.suspend
        hold = hold_of_owner(seen.kueue, seen.holds, workload.metadata, resource.kind, suspended=suspended)
        if hold is not None and hold.holds and suspended:
            message = hold.headline if present else f"has no pods: {hold.headline}"
        elif hold is not None and not hold.holds:
            hold = None
    deployment = workload if resource.kind == "Deployment" else None
    if resource.kind == "ReplicaSet" and pods:
        deployment = await deployment_of(client, pods[0])
    explained = [seen.explainer.explain(pod, deployment) for pod in pods]
    title = f"{resource.kind.lower()} {namespace}/{name}"
    _answer(WorkloadAnswer(workload=title, message=message, kueue=hold, pods=explained), pods, seen.cluster, output)


def _kueue_workload(seen: Seen, namespace: str, name: str, output: str) -> None:
    workload = find_workload(seen.kueue, namespace, name)
    assert seen.holds is not None
    hold = seen.holds.of(workload)
    pods = pods_of_workload(seen.cluster, workload)
    explained = [seen.explainer.explain(pod) for pod in pods]
    title = f"workload {namespace}/{name}"
    answer = WorkloadAnswer(workload=title, message=hold.headline, kueue=hold, pods=explained)
    _answer(answer, pods, seen.cluster, output)


def _answer(answer: WorkloadAnswer, pods: Sequence[Pod], cluster: ClusterSnapshot, output: str) -> None:
    if output != "text":
        print_document(answer, output)
        return
    if message := answer.message or (answer.kueue.headline if answer.kueue is not None else ""):
        echo(f"{answer.workload}: {message}")
    if answer.kueue is not None:
        explanations.hold(answer.kueue, cluster.now)
        # Its pods need not say it again.
        told = answer.kueue.workload
        answer = msgspec.structs.replace(answer, pods=[_without_hold(each, told) for each in answer.pods])
    present = [each for each, pod in zip(answer.pods, pods, strict=True) if not pod.ended]
    _print(present, cluster, output)
    explanations.ended([pod for pod in pods if pod.ended])


def _without_hold(explanation: Explanation, workload: str) -> Explanation:
    told = explanation.kueue is not None and explanation.kueue.workload == workload
    return msgspec.structs.replace(explanation, kueue=None) if told else explanation


def _print(explained: list[Explanation], cluster: ClusterSnapshot, output: str, *, single: bool = False) -> None:
    if output != "text":
        print_document(explained[0] if single else explained, output)
        return
    for each in explained:
        explanations.text(each, cluster.now)
