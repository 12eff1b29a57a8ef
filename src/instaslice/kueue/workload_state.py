"""How far a workload of Kueue has come, whose it is, and how much it asks for.

Pure. Reads conditions as Kueue writes them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from instaslice.api import names
from instaslice.api.pods import held_together
from instaslice.kube.core import Condition, Container, PodSpec
from instaslice.kube.errors import BadQuantity
from instaslice.kube.quantities import counted, humanized, nano
from instaslice.kueue.objects import KueueWorkload

NVIDIA = "nvidia.com/"


class AdmissionState(StrEnum):
    """How far Kueue has come with a workload."""

    UNKNOWN = "has no Workload"
    DEACTIVATED = "deactivated"
    PENDING = "pending"
    QUOTA_RESERVED = "has its quota, waits for its checks"
    ADMITTED = "admitted"
    FINISHED = "finished"


SAID_BY = {
    AdmissionState.FINISHED: "Finished",
    AdmissionState.ADMITTED: "Admitted",
    AdmissionState.QUOTA_RESERVED: "QuotaReserved",
}
"""The condition that is true in a state."""


def condition_of_workload(workload: KueueWorkload, kind: str) -> Condition | None:
    return next((each for each in workload.status.conditions or () if each.type == kind), None)


def holds_now(workload: KueueWorkload, kind: str) -> bool:
    """Whether the condition is there and true."""
    found = condition_of_workload(workload, kind)
    return found is not None and found.status == "True"


def admission_state(workload: KueueWorkload) -> AdmissionState:
    if holds_now(workload, "Finished"):
        return AdmissionState.FINISHED
    if holds_now(workload, "Admitted"):
        return AdmissionState.ADMITTED
    if not workload.spec.active:
        return AdmissionState.DEACTIVATED
    return AdmissionState.QUOTA_RESERVED if holds_now(workload, "QuotaReserved") else AdmissionState.PENDING


def since_when(workload: KueueWorkload, state: AdmissionState) -> datetime | None:
    """When it entered the state, as far as its conditions tell: nothing says since when a workload is deactivated."""
    match state:
        case AdmissionState.DEACTIVATED:
            return None
        case AdmissionState.PENDING:
            found = condition_of_workload(workload, "Evicted") if holds_now(workload, "Evicted") else None
        case _:
            found = condition_of_workload(workload, SAID_BY[state])
    return found.last_transition_time if found else workload.metadata.creation_timestamp


def owner_name(workload: KueueWorkload) -> str:
    """`Job train`, `Pod x and 3 more`; "" where it was created by hand."""
    owners = workload.metadata.owner_references
    if not owners:
        return ""
    more = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
    return f"{owners[0].kind} {owners[0].name}{more}"


def charged_amounts(workload: KueueWorkload) -> dict[str, int]:
    """What Kueue charges or would charge, by resource, in the unit of each. Before Kueue has considered the workload:
    the GPU resources of its templates, which its transformations may still replace."""
    if workload.status.admission is not None:
        return summed(each.resource_usage for each in workload.status.admission.pod_set_assignments or ())
    if workload.status.resource_requests:
        return summed(each.resources for each in workload.status.resource_requests)
    return summed(gpu_amounts(each.template.spec, each.count) for each in workload.spec.pod_sets or ())


def gpu_amounts(spec: PodSpec, count: int = 1) -> dict[str, int]:
    """The resources of GPUs that `count` pods ask for together, by the names in their template."""
    most: Counter[str] = Counter()
    for held in held_together(spec.init_containers or (), spec.containers or (), _gpu_limits):
        most |= held
    return {name: amount * count for name, amount in most.items() if amount}


def asks_for_slices(workload: KueueWorkload) -> bool:
    """Whether a template of it names slices, or GPU memory."""
    return any(
        name.startswith((names.NVIDIA_RESOURCE, names.RESOURCE, names.MEMORY))
        for each in workload.spec.pod_sets or ()
        for name in gpu_amounts(each.template.spec)
    )


def summed(charged: Iterable[Mapping[str, str | int]]) -> dict[str, int]:
    """The sum, in the unit of each resource."""
    sums: Counter[str] = Counter()
    for amounts in charged:
        for name, quantity in amounts.items():
            sums[name] += nano(quantity)
    return {name: counted(name, amount) for name, amount in sorted(sums.items(), key=_gpus_first) if amount}


def shown(name: str, amount: int) -> str:
    """`gpu.das.com/mem 20`."""
    return f"{name} {humanized(name, amount, up=True)}"


def _gpus_first(item: tuple[str, int]) -> tuple[bool, str]:
    return not item[0].startswith((names.GROUP, NVIDIA)), item[0]


def _gpu_limits(container: Container) -> dict[str, int]:
    """Of extended resources limits and requests are the same; a template may name either."""
    found: dict[str, int] = {}
    for name, quantity in {**container.resources.requests, **container.resources.limits}.items():
        if name.startswith((f"{names.GROUP}/", NVIDIA)):
            try:
                found[name] = counted(name, nano(quantity))
            except BadQuantity:
                continue  # the API server refuses the pod
    return found
