"""Rules about `nvidia.com/mig-*`, which the webhook renames, and names like it: quotas that count nothing, pods that
wait for what no node has.

Pure.
"""

import re
from collections.abc import Iterator, Sequence, Set
from typing import Final

from instaslice.api import names
from instaslice.doctor.called_namespaces import called_for
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.installation import Installation
from instaslice.doctor.installation_kinds import Quota
from instaslice.doctor.observed_cluster import object_name
from instaslice.geometry import ProfileName, UnknownProfile
from instaslice.kube.core import Node, Pod
from instaslice.kube.meta import key_of

COUNTED: Final = "requests."
"""What a quota on an extended resource begins with."""
LIMITS: Final = "limits."
UNCOUNTED: Final = tuple(prefix + name for prefix in ("", LIMITS) for name in (names.NVIDIA_RESOURCE, names.RESOURCE))
"""What quotas on CPU and memory begin with. On an extended resource Kubernetes accepts it, and counts nothing."""
UNCOUNTED_MEMORY: Final = (names.MEMORY, LIMITS + names.MEMORY)
"""The same of GPU memory."""
NVIDIA: Final = "nvidia.com/"
LOOKALIKE: Final = re.compile(r"nvidia\.com/(mig[-_.]?)?(?P<profile>[1-9].*)", re.IGNORECASE)


def quota_counts(installation: Installation) -> Iterator[Finding]:
    """A quota on the names that users write counts nothing: the webhook renames them before quotas count. Nor does one
    without `requests.`. One that counts, in the same namespace, makes up for it."""
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
    """What its items that count nothing come to, unless `counted` has those that would."""
    hard = quota.spec.hard
    renamed = {item: names.renamed_in_quota(item) for item in hard if item.startswith(COUNTED + names.NVIDIA_RESOURCE)}
    never = {item: _requested(item) for item in hard if item.startswith(UNCOUNTED) or item in UNCOUNTED_MEMORY}
    for items, why in (
        (renamed, "which no pod has any more when quotas count"),
        (never, f"which Kubernetes counts only as {COUNTED}*"),
    ):
        if idle := {item: right for item, right in items.items() if right is not None and right not in counted}:
            instead = ", ".join(f"{right}: {hard[item]}" for item, right in idle.items())
            yield f"limits {', '.join(idle)}, {why}; limit {instead}"
    if unknown := [item for item, right in (renamed | never).items() if right is None]:
        yield f"limits {', '.join(unknown)}, which names no profile, so it never counts: remove it"


def _requested(item: str) -> str | None:
    """The item that counts, for one that Kubernetes accepts and never counts; None where it names no profile."""
    resource = item.removeprefix(LIMITS)
    ours = resource == names.MEMORY or resource.startswith(names.RESOURCE)
    return COUNTED + resource if ours else names.renamed_in_quota(COUNTED + resource)


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
    return called_for(hooks, labels)


def pod_seen(installation: Installation, pods: Sequence[Pod], nodes: Sequence[Node]) -> Iterator[Finding]:
    """A pod that waits for names that NVIDIA's device plugin serves somewhere is not for us."""
    served = {name for node in nodes for name, amount in node.status.allocatable.items() if str(amount) != "0"}
    for pod in pods:
        if pod.spec.node_name or pod.ended or pod.metadata.deletion_timestamp is not None:
            continue
        scheduled = pod.condition("PodScheduled")
        if scheduled is None or scheduled.reason != "Unschedulable":
            continue
        # The scheduler's message does not always name them: where nodes are tainted it looks no further.
        unserved = sorted(_limits(pod) - served)
        alike = [name for name in unserved if not name.startswith(names.NVIDIA_RESOURCE)]
        if meant := {name: right for name in alike if (right := _meant(name))}:
            instead = ", ".join(meant.values())
            message = f"waits for {', '.join(meant)}, which no node has: create it again with {instead}"
            yield Finding(Invariant.POD_SEEN, object_name(pod), message)
        asked = [name for name in unserved if name.startswith(names.NVIDIA_RESOURCE)]
        if asked:
            why = (
                "it was created before InstaSlice's webhook saw the pods of its namespace; create it again"
                if _served(installation, pod.metadata.namespace)
                else "InstaSlice's webhook is not called for its namespace; take the label "
                f"{names.OPT_OUT}={names.OPTED_OUT} away if it has it, and create the pod again"
            )
            message = f"waits for {', '.join(asked)}, which no node has: {why}"
            yield Finding(Invariant.POD_SEEN, object_name(pod), message)


def _limits(pod: Pod) -> set[str]:
    return {
        name
        for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        for name in container.resources.limits
    }


def _meant(name: str) -> str | None:
    """The name of a slice for one that only looks like it, which the webhook lets through: `nvidia.com/1g.5gb`."""
    found = LOOKALIKE.fullmatch(name)
    if found is None:
        return None
    try:
        return f"{NVIDIA}{ProfileName.parse(found['profile']).resource}"
    except UnknownProfile:
        return None
