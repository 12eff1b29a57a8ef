"""Who holds the slices on the nodes that could hold a pod, and whether that is the pod's own Deployment in a rollout.

Pure. For `explain`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from math import ceil, floor

import msgspec

from instaslice.api import names
from instaslice.controller.cluster_state import ClusterState
from instaslice.kube.core import Pod
from instaslice.kube.meta import Key
from instaslice.kube.workloads import RollingUpdate, WorkloadResource
from instaslice.placement import NodeName

TEMPLATE_HASH = "pod-template-hash"
"""Label: the end of the name of the ReplicaSet, behind the name of its Deployment."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that holds slices on one node; without a pod, slices there that InstaSlice did not create."""

    pod: str
    owner: str
    """`Deployment web`; "" where nobody would replace the pod."""
    node: str
    holds: dict[str, int]
    """Profile → how many slices."""
    since: datetime | None
    ending: str = ""
    """`is being deleted`, `has ended` or `is gone`: its slices are about to be free."""


def owner_of(pod: Pod) -> tuple[str, str] | None:
    """Kind and name of what created the pod; the Deployment in place of its ReplicaSet."""
    controller = next((each for each in pod.metadata.owner_references if each.controller), None)
    if controller is None:
        return None
    suffix = f"-{pod.metadata.labels.get(TEMPLATE_HASH, '')}"
    if controller.kind == "ReplicaSet" and len(suffix) > 1 and controller.name.endswith(suffix):
        return "Deployment", controller.name.removesuffix(suffix)
    return controller.kind, controller.name


def holders(
    state: ClusterState, pods: Mapping[str, Pod], nodes: Iterable[NodeName], profiles: Collection[str]
) -> list[Holder]:
    """Who holds slices on GPUs that have one of these profiles; who has held them longest first. `pods` by uid."""
    found: list[Holder] = []
    for name in nodes:
        record = state.ledger.nodes[name]
        gpus = {gpu for gpu, model in record.gpus.items() if any(map(model.has, profiles))}
        held: dict[Key | None, Counter[str]] = {}
        uids: dict[Key | None, str] = {}
        for tracked in record.allocations.values():
            a = tracked.allocation
            if a.gpu in gpus:
                key = Key(a.pod.namespace, a.pod.name)
                held.setdefault(key, Counter())[a.profile] += 1
                uids[key] = a.pod.uid
        for grant in record.foreign_slices.values():
            if grant.gpu in gpus:
                held.setdefault(None, Counter())[str(grant.want)] += 1
        found += [_holder(name, key, pods.get(uids.get(key, "")), counts) for key, counts in held.items()]
    return sorted(found, key=lambda each: (each.since is None, each.since, each.node, each.pod))


def rollout(pod: Pod, held: Iterable[Holder], others: Iterable[Pod], deployment: WorkloadResource | None) -> str:
    """What to say where older pods of the pod's own Deployment hold slices that it could use; "" where none does."""
    owner = owner_of(pod)
    if owner is None or owner[0] != "Deployment":
        return ""
    mine = pod.metadata.labels.get(TEMPLATE_HASH)
    older = {
        f"{each.metadata.namespace}/{each.metadata.name}"
        for each in others
        if each.metadata.namespace == pod.metadata.namespace
        and owner_of(each) == owner
        and each.metadata.labels.get(TEMPLATE_HASH) != mine
    }
    old = [each for each in held if each.pod in older]
    if not old:
        return ""
    listed = ", ".join(each.pod + (f", which {each.ending}" if each.ending else "") for each in old[:3])
    listed += f" and {len(old) - 3} more" if len(old) > 3 else ""
    return f"its own Deployment {owner[1]} is in a rollout, and its older pods hold slices ({listed}): " + _advice(
        owner[1], pod.metadata.namespace, deployment, ending=any(each.ending for each in old)
    )


def _advice(name: str, namespace: str, deployment: WorkloadResource | None, *, ending: bool) -> str:
    """`ending`: some of the older pods are about to be gone."""
    if deployment is None:
        why = "with maxSurge 1 or more it needs a free slice beside theirs (its strategy may not be read)"
    elif first := _deleted_first(deployment):
        return f"with {first} are deleted first; it is placed when they have ended"
    else:
        surge = _update(deployment).max_surge
        why = f"with maxSurge {surge} these are deleted only when it is ready, so it needs a free slice beside theirs"
    if ending:
        return "those that end make room; wait for them first"
    patch = '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}'
    return f"{why}; to have them deleted first: kubectl patch deployment {name} -n {namespace} -p '{patch}'"


def _deleted_first(deployment: WorkloadResource) -> str:
    """Which older pods go before a newer one is ready, and by which setting; "" where none does."""
    update, replicas = _update(deployment), deployment.spec.replicas
    if deployment.spec.strategy.type == "Recreate":
        return "Recreate these"
    if _pods(update.max_surge, replicas, ceil) == 0:
        return "maxSurge 0 these"
    if missing := _pods(update.max_unavailable, replicas, floor):
        return f"maxUnavailable {update.max_unavailable} up to {missing} of these at a time"
    return ""


def _update(deployment: WorkloadResource) -> RollingUpdate:
    return deployment.spec.strategy.rolling_update or RollingUpdate()


def _pods(amount: int | str, replicas: int, rounded: Callable[[float], int]) -> int:
    """A number, or a percentage of the replicas. Kubernetes rounds `maxSurge` up and `maxUnavailable` down."""
    return amount if isinstance(amount, int) else rounded(int(amount.removesuffix("%")) * replicas / 100)


def _holder(node: NodeName, key: Key | None, pod: Pod | None, counts: Counter[str]) -> Holder:
    owner = owner_of(pod) if pod is not None else None
    return Holder(
        pod=str(key) if key is not None else "",
        owner=" ".join(owner) if owner else "",
        node=node,
        holds=dict(counts),
        since=held_since(pod) if pod is not None else None,
        ending=_ending(pod) if key is not None else "",
    )


def _ending(pod: Pod | None) -> str:
    if pod is None:
        return "is gone"
    if pod.ended:
        return "has ended"
    return "is being deleted" if pod.metadata.deletion_timestamp is not None else ""


def held_since(pod: Pod) -> datetime | None:
    """When the slices of a pod were ready; before, when it was created."""
    ready = pod.condition(names.SLICE_READY)
    if ready is not None and ready.status == "True" and ready.last_transition_time is not None:
        return ready.last_transition_time
    return pod.metadata.creation_timestamp
