"""What `instaslice explain` reads beside the snapshot: the pod that was named, its Deployment, a workload without pods.

A workload that the user may not read costs its own lines of the answer only.
"""

import difflib
from typing import Any, Final

import msgspec

from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.explanation import Explanation
from instaslice.controller.slice_holders import owner_of
from instaslice.errors import BadInput
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import EVENTS, Condition, Event, Pod
from instaslice.kube.errors import Forbidden, KubeError, NotFound
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.kube.workloads import DAEMON_SETS, DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS, WorkloadResource
from instaslice.kueue.hold import KueueHold

KINDS: Final[dict[str, Resource[Any]]] = {
    **dict.fromkeys(("deploy", "deployment", "deployments"), DEPLOYMENTS),
    **dict.fromkeys(("sts", "statefulset", "statefulsets"), STATEFUL_SETS),
    **dict.fromkeys(("ds", "daemonset", "daemonsets"), DAEMON_SETS),
    **dict.fromkeys(("rs", "replicaset", "replicasets"), REPLICA_SETS),
    **dict.fromkeys(("job", "jobs"), JOBS),
}
"""What users write before the slash."""
MOST_PAGES: Final = 20
"""Of Events: those of a namespace with more are not all looked at."""


class WorkloadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed for programs."""

    workload: str
    message: str
    """Why pods are missing, or how it has ended; "" where all are there."""
    kueue: KueueHold | None = None
    """What Kueue says, if it holds it."""
    pods: list[Explanation]
    """With those that have ended."""


def find_pod(cluster: ClusterSnapshot, namespace: str, name: str) -> Pod:
    """Raises BadInput with what could be meant."""
    there = {pod.metadata.name: pod for pod in cluster.pods if pod.metadata.namespace == namespace}
    if name in there:
        return there[name]
    near = difflib.get_close_matches(name, there, n=3)
    elsewhere = sorted({pod.metadata.namespace for pod in cluster.pods if pod.metadata.name == name})
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    if elsewhere:
        hint = f"; there is one in {', '.join(elsewhere)}: -n {elsewhere[0]}"
    raise BadInput(f"no pod {name} in namespace {namespace}{hint}")


def pods_of(cluster: ClusterSnapshot, kind: str, namespace: str, name: str) -> list[Pod]:
    """The pods of a workload, oldest first."""
    found = [pod for pod in cluster.pods if pod.metadata.namespace == namespace and (kind, name) in _owners(pod)]
    return sorted(found, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.name))


def _owners(pod: Pod) -> set[tuple[str, str] | None]:
    """What created it: of a pod of a Deployment its ReplicaSet too."""
    return {owner_of(pod), *((each.kind, each.name) for each in pod.metadata.owner_references if each.controller)}


async def deployment_of(client: Client, pod: Pod) -> WorkloadResource | None:
    """The Deployment that a pod belongs to, if it can be read: it says how a rollout goes."""
    owner = owner_of(pod)
    if owner is None or owner[0] != DEPLOYMENTS.kind:
        return None
    try:
        return await client.get(DEPLOYMENTS, Key(pod.metadata.namespace, owner[1]))
    except KubeError:
        return None


async def read_workload(
    client: Client, resource: Resource[WorkloadResource], namespace: str, name: str, *, present: int
) -> tuple[WorkloadResource | None, str]:
    """A workload, and why pods of it are missing, or how it has ended; `present` pods have not. Raises BadInput where
    there is none."""
    try:
        workload = await client.get(resource, Key(namespace, name))
    except NotFound:
        raise BadInput(f"no {resource.kind} {name} in namespace {namespace}; name another with -n") from None
    except Forbidden as error:
        return None, "" if present else f"has no pods, and may not be read to say why ({error.message})"
    told = _conditions(workload)
    if end := told.get("Complete") or told.get("Failed"):
        status = workload.status
        return workload, f"{_said(end)}; {status.succeeded} pods have succeeded, {status.failed} have failed"
    failure = told.get("ReplicaFailure")
    wanted = _wanted(resource, workload)
    missing = wanted - present
    if present and missing <= 0:
        # Of a rollout, which needs one more for a while.
        return workload, f"pods are missing: {_said(failure)}" if failure else ""
    why = (
        (_said(failure) if failure else _asks_for_none(resource, workload))
        or await _failed_create(client, resource, workload)
        or (_comes_later(resource, workload, present) if missing > 0 else "")
        or f"nothing says why; see `kubectl describe {resource.kind.lower()} {name} -n {namespace}`"
    )
    return workload, f"{missing} of {wanted} pods are missing: {why}" if present else f"has no pods: {why}"


def _conditions(workload: WorkloadResource) -> dict[str, Condition]:
    """What holds of it, by type."""
    return {each.type: each for each in workload.status.conditions or () if each.status == "True"}


def _said(found: Condition) -> str:
    return f"{found.type} ({found.reason}){f': {found.message}' if found.message else ''}"


def _wanted(resource: Resource[WorkloadResource], workload: WorkloadResource) -> int:
    """How many pods it is to have now."""
    spec, succeeded = workload.spec, workload.status.succeeded
    if resource is DAEMON_SETS:
        return workload.status.desired_number_scheduled
    if resource is not JOBS:
        return spec.replicas
    if spec.suspend:
        return 0
    if spec.completions is None:
        return 0 if succeeded else spec.parallelism  # they share one queue: who is done ends them all
    return min(spec.parallelism, spec.completions - succeeded)


def _asks_for_none(resource: Resource[WorkloadResource], workload: WorkloadResource) -> str:
    if workload.spec.suspend:
        return "it is suspended"
    if resource is DAEMON_SETS and not workload.status.desired_number_scheduled:
        return "no node is one that it selects and whose taints it tolerates"
    if resource is not JOBS and workload.spec.replicas == 0:
        return "it asks for 0 replicas: scale it up"
    return ""


def _comes_later(resource: Resource[WorkloadResource], workload: WorkloadResource, present: int) -> str:
    """Where its controller creates the next pod only after something else."""
    if resource is JOBS and workload.status.failed:
        return f"{workload.status.failed} have failed, and a Job waits before it creates the next, longer each time"
    if resource is STATEFUL_SETS and present and workload.spec.pod_management_policy == "OrderedReady":
        return "a StatefulSet creates the next when those before it are ready"
    return ""


async def _failed_create(client: Client, resource: Resource[WorkloadResource], workload: WorkloadResource) -> str:
    """The latest Event that says why its pods are refused: a quota, a webhook, a policy."""
    found: list[Event] = []
    pages = 0
    try:
        async for page in client.pages(EVENTS, Selector(namespace=workload.metadata.namespace)):
            found += [
                each
                for each in page.items or ()
                if each.reason == "FailedCreate" and _is_about(each, resource, workload)
            ]
            pages += 1
            if pages >= MOST_PAGES:
                break
    except Forbidden as error:
        return f"its Events may not be read to say why ({error.message})"
    latest = max(found, key=lambda each: str(each.event_time or each.metadata.creation_timestamp or ""), default=None)
    return latest.note if latest is not None else ""


def _is_about(event: Event, resource: Resource[WorkloadResource], workload: WorkloadResource) -> bool:
    """Those of a Deployment are about its ReplicaSets, whose names have a hash without dashes behind its own. An Event
    outlives what it is about: one from before the workload was about an earlier one of that name."""
    kind, name = resource.kind, event.regarding.name
    if resource is DEPLOYMENTS:
        kind, name = REPLICA_SETS.kind, name.rpartition("-")[0]
    written, created = event.metadata.creation_timestamp, workload.metadata.creation_timestamp
    earlier = written is not None and created is not None and written < created
    return event.regarding.kind == kind and name == workload.metadata.name and not earlier
