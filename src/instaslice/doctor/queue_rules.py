"""Rules about Kueue's quota of GPU memory: every slice is charged once, and none is held without quota.

Pure, and independent of the configuration that we generate: what a workload should be charged follows from the pods in
it, whichever names stand there. Kueue's objects are not of the revision at which pods and slices were read.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from instaslice.api import names
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.kueue_quota import KueueQuota, ended
from instaslice.doctor.observed_cluster import ObservedCluster, object_name
from instaslice.doctor.requested import peak
from instaslice.errors import InstasliceError
from instaslice.geometry import ProfileName
from instaslice.kube.core import Container
from instaslice.kube.meta import key_of
from instaslice.kube.quantities import whole
from instaslice.kueue.objects import (
    KUEUE_WORKLOADS,
    ClusterQueue,
    KueueWorkload,
    PodSet,
    PodSetAssignment,
    PodTemplate,
)

ANY: Final = f"{names.RESOURCE}any"
"""A slice of whatever profile has the memory that its container asks for."""
MANAGED: Final = "kueue.x-k8s.io/managed"
"""The label of plain pods that Kueue admits."""
PREFIXES: Final = (names.NVIDIA_RESOURCE, names.RESOURCE)
FIX: Final = "compare Kueue's configuration with `instaslice kueue manifests --config`, and restart Kueue"


def examine_queues(quota: KueueQuota, cluster: ObservedCluster) -> list[Finding]:
    """Everything that is wrong with what Kueue charges, and what could not be looked at; sorted."""
    rules = (charged_once, held_with_quota, usage_adds_up)
    return sorted({*(finding for rule in rules for finding in rule(quota, cluster)), *quota.not_checked})


def charged_once(quota: KueueQuota, _cluster: ObservedCluster) -> Iterator[Finding]:
    """A workload is charged what the slices of its pods have, by the names of their profiles."""
    for workload in quota.admitted:
        for pods, assignment in _pod_sets(workload):
            count = pods.count if assignment.count is None else assignment.count
            try:
                least, most = (gb * count for gb in _gb(pods.template))
                charged = _amount(assignment.resource_usage)
            except InstasliceError:
                continue  # such a pod is refused, and Kueue charges something only until then
            if not least <= charged <= most:
                what = f"{least} GB" if least == most else f"{least} to {most} GB"
                yield Finding(
                    Invariant.QUEUE_CHARGED,
                    _name(workload),
                    f"is charged {charged} GB of GPU memory ({names.MEMORY}) for slices of {what}"
                    f"{_cause(pods.template, charged, most)}",
                )


def _cause(template: PodTemplate, charged: int, most: int) -> str:
    containers = [*(template.spec.init_containers or ()), *(template.spec.containers or ())]
    named = [{*each.resources.limits, *each.resources.requests} for each in containers]
    if charged > most and any(
        names.MEMORY in each and any(name.startswith(names.NVIDIA_RESOURCE) for name in each) for each in named
    ):
        return f": a container of its template names {names.MEMORY} beside a profile; leave it out and create it again"
    if (
        charged < most
        and not any(names.MEMORY in each for each in named)
        and any(name.startswith(names.RESOURCE) for each in named for name in each)
    ):
        return f": its template names {names.RESOURCE}*, which costs nothing; write {names.NVIDIA_RESOURCE}* there"
    return f"; {FIX}"


def held_with_quota(quota: KueueQuota, cluster: ObservedCluster) -> Iterator[Finding]:
    """A pod of a queue that holds slices is of a workload that has its quota."""
    if quota.workloads is None or not quota.counting:
        return
    owners = {owner.uid: each for each in quota.workloads for owner in each.metadata.owner_references}
    for pod in cluster.pods:
        if pod.metadata.uid not in cluster.allocations_by_pod or pod.ended or pod.metadata.deletion_timestamp:
            continue
        above = [pod.metadata.uid, *(each.uid for each in pod.metadata.owner_references)]
        workload = next((owners[uid] for uid in above if uid in owners), None)
        if workload is None and MANAGED in pod.metadata.labels:
            message = "holds slices, and Kueue has no workload for it, so nobody is charged for them"
        elif workload is not None and workload.status.admission is None and not ended(workload):
            message = f"holds slices, and its {_name(workload)} has no quota"
        else:
            continue
        # Kueue deletes the pods of a workload that it evicts, and makes a workload for a pod that has none.
        remedy = "does Kueue run? Delete the pod to have it wait in its queue"
        yield Finding(Invariant.QUEUE_CHARGED, object_name(pod), f"{message}; {remedy}", transient=True)


def usage_adds_up(quota: KueueQuota, _cluster: ObservedCluster) -> Iterator[Finding]:
    """What a queue says it has given out is what its workloads are charged."""
    if quota.workloads is None:
        return
    sums: Counter[str] = Counter()
    for workload in quota.admitted:
        assert workload.status.admission is not None
        sums[workload.status.admission.cluster_queue] += _held(workload)
    for name, queue in quota.counting.items():
        reported = _reported(queue)
        if reported != sums[name]:
            message = f"says that {reported} GB of GPU memory are in use, and its workloads are charged {sums[name]} GB"
            # Its status follows within moments.
            yield Finding(
                Invariant.QUEUE_CHARGED, f"clusterqueue {name}", f"{message}; does Kueue run?", transient=True
            )


def _reported(queue: ClusterQueue) -> int:
    used = [one for each in queue.status.flavors_reservation or () for one in each.resources or ()]
    return sum(_amount({each.name: each.total}) for each in used)


def _held(workload: KueueWorkload) -> int:
    """What it is charged now: pods that have ended are not charged any more."""
    ended_pods = {each.name: each.count for each in workload.status.reclaimable_pods or ()}
    total = 0
    for pods, assignment in _pod_sets(workload):
        count = pods.count if assignment.count is None else assignment.count
        # Where Kueue admitted fewer pods than there are to be, those that are left may be as many as it admitted.
        left = max(min(count, pods.count - ended_pods.get(pods.name, 0)), 0)
        total += _amount(assignment.resource_usage) * left // max(count, 1)
    return total


def _pod_sets(workload: KueueWorkload) -> Iterator[tuple[PodSet, PodSetAssignment]]:
    assert workload.status.admission is not None
    assigned = {each.name: each for each in workload.status.admission.pod_set_assignments or ()}
    for pods in workload.spec.pod_sets or ():
        if pods.name in assigned:
            yield pods, assigned[pods.name]


def _gb(template: PodTemplate) -> tuple[int, int]:
    """GB of the slices of one pod: the most that it uses at one time, and what it is promised, which is more where an
    init container uses another profile than its successors. Raises BadQuantity or UnknownProfile."""
    used = peak(template.spec, lambda each: Counter({names.MEMORY: sum(_gb_by_resource(each).values())}))
    promised = peak(template.spec, _gb_by_resource)
    return used.total(), promised.total()


def _gb_by_resource(container: Container) -> Counter[str]:
    """GB by the profile, or by memory where the container leaves the profile to us."""
    wanted = {**container.resources.requests, **container.resources.limits}
    profiles = {name: count for name, count in wanted.items() if name.startswith(PREFIXES) and name != ANY}
    if not profiles:
        return Counter({names.MEMORY: whole(wanted.get(names.MEMORY, 0))})
    found: Counter[str] = Counter()
    for name, count in profiles.items():
        profile = ProfileName.parse(name)
        found[str(profile)] += profile.gb * whole(count)
    return found


def _amount(amounts: dict[str, str | int]) -> int:
    """Of GPU memory. Raises BadQuantity."""
    return whole(amounts.get(names.MEMORY, 0))


def _name(workload: KueueWorkload) -> str:
    return f"{KUEUE_WORKLOADS.kind.lower()} {key_of(workload)}"
