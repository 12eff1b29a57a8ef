"""The pods that a workload of Kueue will have, as the scheduler and the ledger will see them.

Pure: from the templates of its pod sets, by what our webhook and Kueue change in new pods. What they ask for is then
read as of any pod, by `pod_request`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from instaslice.api import names
from instaslice.api.errors import Rejected
from instaslice.api.future_pods import as_admitted
from instaslice.api.largest_node import LargestNode
from instaslice.api.pods import needed_slices
from instaslice.kube.core import Pod
from instaslice.kube.meta import ObjectMeta
from instaslice.kueue.objects import ROLE_HASH, KueueWorkload, PodSet, PodSetAssignment, PodSetUpdate, ResourceFlavor


@dataclass(frozen=True, slots=True)
class PodSetPods:
    """Pods that are alike, each with slices."""

    pod_set: str
    template: Pod
    count: int

    def pod(self, number: int) -> Pod:
        """One of them. Its uid is one that no pod has."""
        uid = f"{self.template.metadata.uid}/{number}"
        return msgspec.structs.replace(self.template, metadata=msgspec.structs.replace(self.template.metadata, uid=uid))


def pods_with_slices(
    workload: KueueWorkload, flavors: Mapping[str, ResourceFlavor], pods: Mapping[str, Pod], largest: LargestNode
) -> list[PodSetPods]:
    """The pods for which slices are needed, in the order of the pod sets. `pods` are those that exist, by uid. Raises
    BadInput for what the webhook will reject."""
    assigned = {each.name: each for each in _assignments(workload)}
    ended = {each.name: each.count for each in workload.status.reclaimable_pods or ()}
    found = []
    for each in workload.spec.pod_sets or ():
        assignment = assigned.get(each.name, PodSetAssignment())
        try:
            pod = as_admitted(_pod(workload, each, assignment, flavors, pods), largest)
        except Rejected as rejected:
            raise Rejected(f"pod set {each.name}: {rejected}") from None
        # Kueue may admit fewer pods than the job asks for.
        count = (each.count if assignment.count is None else assignment.count) - ended.get(each.name, 0)
        if count > 0 and needed_slices(pod):
            found.append(PodSetPods(each.name, pod, count))
    return found


def held_for(workload: KueueWorkload, pod_set: str) -> str:
    """The value of the annotation HELD_FOR of these pods."""
    return f"{workload.metadata.uid}/{pod_set}"


def updates(workload: KueueWorkload) -> list[PodSetUpdate]:
    """What Kueue is to add to the pods, so that they are known when they come, whatever kind of object creates them."""
    sets = workload.spec.pod_sets or ()
    return [PodSetUpdate(name=each.name, annotations={names.HELD_FOR: held_for(workload, each.name)}) for each in sets]


def _assignments(workload: KueueWorkload) -> list[PodSetAssignment]:
    admission = workload.status.admission
    return (admission.pod_set_assignments or []) if admission is not None else []


def _metadata(workload: KueueWorkload, pod_set: PodSet, pods: Mapping[str, Pod]) -> ObjectMeta:
    """Labels and annotations of these pods. The template that Kueue makes of plain pods has none; the pods own the
    workload and have them."""
    own = pod_set.template.metadata
    if own.labels or own.annotations:
        return own
    plain = [pods[each.uid].metadata for each in workload.metadata.owner_references if each.uid in pods]
    # The pod set of a group is named by the hash of what its pods ask for.
    alike = [each for each in plain if each.annotations.get(ROLE_HASH) == pod_set.name]
    return next(iter(alike or plain), own)


def _pod(
    workload: KueueWorkload,
    pod_set: PodSet,
    assignment: PodSetAssignment,
    flavors: Mapping[str, ResourceFlavor],
    pods: Mapping[str, Pod],
) -> Pod:
    spec, like = pod_set.template.spec, _metadata(workload, pod_set, pods)
    chosen = [flavors[name] for name in sorted({*assignment.flavors.values()}) if name in flavors]
    selector = dict(spec.node_selector or {})
    tolerations = list(spec.tolerations or [])
    for flavor in chosen:
        selector |= flavor.spec.node_labels
        tolerations += flavor.spec.tolerations or []
    meta = ObjectMeta(
        namespace=workload.metadata.namespace,
        name=f"{workload.metadata.name}-{pod_set.name}",
        uid=held_for(workload, pod_set.name),
        labels=like.labels,
        annotations=like.annotations,
    )
    spec = msgspec.structs.replace(
        spec,
        node_selector=selector or None,
        tolerations=tolerations or None,
        priority=workload.spec.priority or 0,
    )
    return Pod(metadata=meta, spec=spec)
