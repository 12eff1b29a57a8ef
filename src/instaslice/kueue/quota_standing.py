"""How the quota of a ClusterQueue stands, in one resource: what it has, what is in use, who holds it.

Pure. What counts is what workloads have reserved, whether or not they are admitted yet.
"""

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from instaslice.kube.quantities import humanized
from instaslice.kueue.objects import ClusterQueue, FlavorUsage, KueueWorkload, QuotaOfResource
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.kueue.workload_state import (
    AdmissionState,
    admission_state,
    charged_amounts,
    condition_of_workload,
    owner_name,
    shown,
    summed,
)


class QuotaStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One resource in one flavor of a ClusterQueue. Quantities as Kubernetes writes them."""

    resource: str
    flavor: str
    nominal: str
    used: str
    borrowed: str
    borrowing_limit: str | None = None
    cohort: str = ""
    cohort_queues: int = 1
    cohort_nominal: str = ""
    """Of all ClusterQueues of the cohort together."""
    cohort_used: str = ""


class QuotaHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that holds quota which another waits for."""

    workload: str
    owner: str
    cluster_queue: str
    holds: dict[str, str]
    since: datetime | None


def standings(kueue: KueueSnapshot, queue: ClusterQueue, resources: Collection[str]) -> list[QuotaStanding]:
    """Of these resources, those that the queue covers."""
    cohort = kueue.cohort(queue)
    return [
        _standing(queue, cohort, flavor.name, each)
        for group in queue.spec.resource_groups or ()
        for flavor in group.flavors or ()
        for each in flavor.resources or ()
        if each.name in resources
    ]


def quota_holders(
    kueue: KueueSnapshot, queue: ClusterQueue, resources: Collection[str], now: datetime
) -> list[QuotaHolder]:
    """The workloads of the queue and of its cohort that hold quota of these resources; the longest first."""
    queues = {each.metadata.name for each in kueue.cohort(queue)}
    found = [
        _holder(each, holds)
        for each in kueue.workloads or ()
        if each.status.admission is not None
        and each.status.admission.cluster_queue in queues
        and admission_state(each) is not AdmissionState.FINISHED
        and (holds := {name: amount for name, amount in charged_amounts(each).items() if name in resources})
    ]
    return sorted(found, key=lambda each: (each.since or now, each.workload))


def _standing(queue: ClusterQueue, cohort: list[ClusterQueue], flavor: str, quota: QuotaOfResource) -> QuotaStanding:
    name, limit = quota.name, quota.borrowing_limit
    total, borrowed = _used(queue, flavor, name)
    together = summed([{name: each.nominal_quota} for other in cohort for each in _quotas(other, flavor, name)])
    used = summed([{name: _used(other, flavor, name)[0]} for other in cohort])
    return QuotaStanding(
        resource=name,
        flavor=flavor,
        nominal=str(quota.nominal_quota),
        used=str(total),
        borrowed=str(borrowed),
        borrowing_limit=None if limit is None else str(limit),
        cohort=queue.spec.cohort_name,
        cohort_queues=len(cohort),
        cohort_nominal=humanized(name, together.get(name, 0), up=False),
        cohort_used=humanized(name, used.get(name, 0), up=True),
    )


def _quotas(queue: ClusterQueue, flavor: str, resource: str) -> Iterable[QuotaOfResource]:
    for group in queue.spec.resource_groups or ():
        for each in group.flavors or ():
            yield from (quota for quota in each.resources or () if (each.name, quota.name) == (flavor, resource))


def _used(queue: ClusterQueue, flavor: str, resource: str) -> tuple[str | int, str | int]:
    """What is reserved, and how much of it borrowed."""
    reserved: list[FlavorUsage] = queue.status.flavors_reservation or []
    for each in reserved:
        for usage in each.resources or ():
            if (each.name, usage.name) == (flavor, resource):
                return usage.total, usage.borrowed
    return 0, 0


def _holder(workload: KueueWorkload, holds: dict[str, int]) -> QuotaHolder:
    reserved = condition_of_workload(workload, "QuotaReserved")
    admission = workload.status.admission
    return QuotaHolder(
        workload=f"{workload.metadata.namespace}/{workload.metadata.name}",
        owner=owner_name(workload),
        cluster_queue=admission.cluster_queue if admission is not None else "",
        holds={name: shown(name, amount).removeprefix(f"{name} ") for name, amount in holds.items()},
        since=reserved.last_transition_time if reserved is not None else None,
    )
