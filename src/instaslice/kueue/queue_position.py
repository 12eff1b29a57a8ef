"""In which order Kueue considers the pending workloads of a ClusterQueue: by priority, then by age.

Pure. Computed from the list of workloads, as Kueue's own queue is in its memory. The order is that of Kueue 0.18.
"""

from datetime import UTC, datetime

from instaslice.kueue.objects import ClusterQueue, KueueWorkload
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.kueue.workload_state import AdmissionState, admission_state, condition_of_workload

GO_BACK = ("PodsReadyTimeout", "AdmissionCheck")
"""Reasons of an eviction after which a workload queues as if it had come then."""
BORROWED = "InCohortReclaimWhileBorrowing"
"""The same of a preemption: it had to give back what it had borrowed."""


def pending_workloads(kueue: KueueSnapshot, cluster_queue: str) -> list[KueueWorkload]:
    """Those that wait for quota of a ClusterQueue, the first to be considered first."""
    found = [
        each
        for each in kueue.workloads or ()
        if admission_state(each) is AdmissionState.PENDING
        and not is_backing_off(each)
        and kueue.cluster_queue_name(each) == cluster_queue
    ]
    return sorted(found, key=_order)


def is_backing_off(workload: KueueWorkload) -> bool:
    """Whether it was evicted, and Kueue does not consider it again yet."""
    requeued = condition_of_workload(workload, "Requeued")
    return requeued is not None and requeued.status == "False"


def takes_turns(queue: ClusterQueue) -> bool:
    """Whether what LocalQueues used before decides first, which no object says in full."""
    return queue.spec.admission_scope is not None


def _order(workload: KueueWorkload) -> tuple[int, datetime, str]:
    return -(workload.spec.priority or 0), queued_since(workload), workload.metadata.uid


def queued_since(workload: KueueWorkload) -> datetime:
    """The age by which it queues."""
    evicted, preempted = (condition_of_workload(workload, kind) for kind in ("Evicted", "Preempted"))
    if evicted is not None and evicted.status == "True" and evicted.reason in GO_BACK:
        since = evicted.last_transition_time
    elif preempted is not None and preempted.status == "True" and preempted.reason == BORROWED:
        since = preempted.last_transition_time
    else:
        since = workload.metadata.creation_timestamp
    return since or datetime.max.replace(tzinfo=UTC)
