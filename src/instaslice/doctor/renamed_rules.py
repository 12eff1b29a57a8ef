"""Rules about `nvidia.com/mig-*`, which the webhook renames: quotas and pods that the new names pass by.

Pure.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from instaslice.api import names
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.installation import Installation
from instaslice.doctor.installation_kinds import Quota
from instaslice.doctor.observed_cluster import object_name
from instaslice.kube.core import LabelSelector, Node, Pod, Requirement
from instaslice.kube.meta import key_of

COUNTED: Final = "requests."
"""What a quota on an extended resource begins with."""


def quota_counts(installation: Installation) -> Iterator[Finding]:
    """A quota on the names that users write counts nothing: the webhook renames them before quotas count. One on the
    new names in the same namespace makes up for it."""
    by_namespace: dict[str, list[Quota]] = {}
    for quota in installation.quotas or ():
        by_namespace.setdefault(quota.metadata.namespace, []).append(quota)
    for namespace, quotas in sorted(by_namespace.items()):
        if not _served(installation, namespace):
            continue
        counted = {name for quota in quotas for name in quota.spec.hard}
        for quota in quotas:
            if message := "; ".join(_idle(quota, counted)):
                yield Finding(Invariant.QUOTA_COUNTS, f"resourcequota {key_of(quota)}", message)


def _idle(quota: Quota, counted: Set[str]) -> Iterator[str]:
    """What its items on the old names come to, unless `counted` has the new ones."""
    old = [name for name in quota.spec.hard if name.startswith(COUNTED + names.NVIDIA_RESOURCE)]
    renamed = {name: names.renamed_in_quota(name) for name in old}
    if idle := {name: new for name, new in renamed.items() if new is not None and new not in counted}:
        instead = ", ".join(f"{new}: {quota.spec.hard[name]}" for name, new in idle.items())
        yield f"limits {', '.join(idle)}, which no pod has any more when quotas count; limit {instead}"
    if unknown := [name for name, new in renamed.items() if new is None]:
        yield f"limits {', '.join(unknown)}, which names no profile, so it never counts: remove it"


def _served(installation: Installation, namespace: str) -> bool:
    """Whether the webhook sees the pods of a namespace, as far as that can be told."""
    if installation.namespaces is None:
        return True
    labels = next((each.metadata.labels for each in installation.namespaces if each.metadata.name == namespace), None)
    if labels is None:
        return True
    hooks = [hook for _, hook in installation.hooks]
    if not hooks:
        return labels.get(names.OPT_OUT) != names.OPTED_OUT
    return any(_selects(hook.namespace_selector, labels) for hook in hooks)


def _selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return True
    wanted = (selector.match_labels or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _holds(each, labels) for each in selector.match_expressions or ()
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or []
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
    return value is None


def pod_seen(installation: Installation, pods: Sequence[Pod], nodes: Sequence[Node]) -> Iterator[Finding]:
    """A pod that waits for names that NVIDIA's device plugin serves somewhere is not for us."""
    served = {name for node in nodes for name, amount in node.status.allocatable.items() if str(amount) != "0"}
    for pod in pods:
        if pod.spec.node_name or pod.ended or pod.metadata.deletion_timestamp is not None:
            continue
        scheduled = pod.condition("PodScheduled")
        said = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
        asked = sorted(
            {
                name
                for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
                for name in container.resources.limits
                if name.startswith(names.NVIDIA_RESOURCE) and f"Insufficient {name}" in said
            }
            - served
        )
        if asked:
            why = (
                "it was created before InstaSlice's webhook saw the pods of its namespace; create it again"
                if _served(installation, pod.metadata.namespace)
                else "InstaSlice's webhook is not called for its namespace; take the label "
                f"{names.OPT_OUT}={names.OPTED_OUT} away if it has it, and create the pod again"
            )
            message = f"waits for {', '.join(asked)}, which no node has: {why}"
            yield Finding(Invariant.POD_SEEN, object_name(pod), message)
