"""What `instaslice explain` reads beside the snapshot: the pod that was named, its Deployment, a workload without pods.

A workload that the user may not read costs its own lines of the answer only.
"""

import difflib
from typing import Any, Final

import msgspec

from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.explain import Explanation
from instaslice.controller.slice_holders import owner_of
from instaslice.errors import BadInput
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import EVENTS, Event, Pod
from instaslice.kube.errors import Forbidden, KubeError, NotFound
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.kube.workloads import DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS, WorkloadResource

KINDS: Final[dict[str, Resource[Any]]] = {
    **dict.fromkeys(("deploy", "deployment", "deployments"), DEPLOYMENTS),
    **dict.fromkeys(("sts", "statefulset", "statefulsets"), STATEFUL_SETS),
    **dict.fromkeys(("job", "jobs"), JOBS),
}
"""What users write before the slash."""
MOST_PAGES: Final = 20
"""Of Events: those of a namespace with more are not all looked at."""


class WorkloadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed for programs."""

    workload: str
    message: str
    """Why pods are missing; "" where none are."""
    pods: list[Explanation]


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
    client: Client, resource: Resource[WorkloadResource], namespace: str, name: str, *, has_pods: bool
) -> tuple[WorkloadResource | None, str]:
    """A workload, and why pods of it are missing. Raises BadInput where there is none."""
    try:
        workload = await client.get(resource, Key(namespace, name))
    except NotFound:
        raise BadInput(f"no {resource.kind} {name} in namespace {namespace}; name another with -n") from None
    except Forbidden as error:
        return None, "" if has_pods else f"has no pods, and may not be read to say why ({error.message})"
    said = _conditions(workload)
    if has_pods:
        return workload, f"pods are missing: {said}" if said and _failing(workload) else ""
    why = said or _asks_for_none(resource, workload) or await _failed_create(client, resource, workload)
    remedy = f"see `kubectl describe {resource.kind.lower()} {name} -n {namespace}`"
    return workload, f"has no pods: {why or f'nothing says why; {remedy}'}"


def _failing(workload: WorkloadResource) -> bool:
    return any(each.type == "ReplicaFailure" and each.status == "True" for each in workload.status.conditions or ())


def _conditions(workload: WorkloadResource) -> str:
    """What its conditions say of pods that are missing or have ended."""
    told = {each.type: each for each in workload.status.conditions or () if each.status == "True"}
    for kind in ("ReplicaFailure", "Failed", "Suspended", "Complete"):
        if kind in told:
            found = told[kind]
            return f"{found.type} ({found.reason}){f': {found.message}' if found.message else ''}"
    return ""


def _asks_for_none(resource: Resource[WorkloadResource], workload: WorkloadResource) -> str:
    if workload.spec.suspend:
        return "it is suspended"
    if resource is not JOBS and workload.spec.replicas == 0:
        return "it asks for 0 replicas: scale it up"
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
