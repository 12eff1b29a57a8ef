"""The rule that Kueue can admit every workload that asks for slices, for no more than they cost.

Pure. What passes by itself, such as a quota in use, and what somebody has decided, such as a stopped queue, is no
finding. A cluster in which nobody queues for slices has none either.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from instaslice.api import names
from instaslice.api.instaslice import Instaslice
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.observed_kueue import ABOUT, KueueConfiguration, ObservedKueue
from instaslice.errors import BadInput
from instaslice.geometry import ProfileName, UnknownProfile
from instaslice.kube.core import Container
from instaslice.kube.meta import key_of
from instaslice.kube.quantities import whole
from instaslice.kueue.objects import KueueWorkload
from instaslice.kueue.obstacle import DECIDED, Obstacle, obstacle_of
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.kueue.workload_state import (
    AdmissionState,
    admission_state,
    asks_for_slices,
    charged_amounts,
    gpu_amounts,
    owner_name,
)

MOST_NAMED: Final = 3
"""Resources that a message names."""
REMEDY: Final = "give Kueue what `instaslice kueue manifests --config` prints, and restart it"


def examine_kueue(kueue: ObservedKueue, instaslices: Sequence[Instaslice] = ()) -> list[Finding]:
    """Everything that is wrong, sorted."""
    found = list(kueue.not_checked)
    if kueue.snapshot is not None:
        found += kueue_admits(kueue.snapshot)
        found += charged_too_much(kueue.snapshot)
        if kueue.configuration is not None and _counts_slices(kueue.snapshot):
            found += kueue_configured(kueue.configuration, instaslices)
    return sorted(found)


def kueue_admits(kueue: KueueSnapshot) -> Iterator[Finding]:
    """No workload that asks for slices waits for what cannot come."""
    held: dict[Obstacle, list[KueueWorkload]] = {}
    for workload in _slice_workloads(kueue):
        obstacle = obstacle_of(kueue, workload)
        if obstacle is not None and obstacle.kind not in DECIDED:
            held.setdefault(obstacle, []).append(workload)
    for obstacle, workloads in held.items():
        message = f"{obstacle.message}, so {_waits(workloads)}; {obstacle.remedy}"
        yield Finding(Invariant.QUEUE_ADMITS, obstacle.about, message)


def charged_too_much(kueue: KueueSnapshot) -> Iterator[Finding]:
    """No pending workload waits for more GPU memory than its slices have. Of one that is admitted, `queue-charged`."""
    for workload in _slice_workloads(kueue):
        charged = charged_amounts(workload).get(names.MEMORY, 0)
        try:
            due = _due(workload)
        except UnknownProfile:
            continue  # that is what Kueue finds no quota of
        if charged <= due or workload.status.admission is not None or not workload.status.resource_requests:
            continue
        message = f"waits for {charged} of {names.MEMORY}, and its slices have {due}: "
        if names_both(workload):
            message += f"its template names {names.MEMORY} beside the slices that it follows from; leave it out there"
        else:
            message += f"Kueue's configuration charges them more than once; {REMEDY}"
        yield Finding(Invariant.QUEUE_ADMITS, f"workload {key_of(workload)}", message)


def kueue_configured(configuration: KueueConfiguration, instaslices: Iterable[Instaslice]) -> Iterator[Finding]:
    """Kueue charges the profiles of this cluster by the GB in their names, and our own names of them not at all."""
    by_input = {each.input: each for each in configuration.resources.transformations}
    missing: list[str] = []
    wrong: list[str] = []
    for profile in _profiles(instaslices):
        resource = names.nvidia_resource_name(profile)
        if resource not in by_input:
            missing.append(resource)
        elif not by_input[resource].gives(names.MEMORY, profile.gb):
            wrong.append(resource)
    blocks = configuration.resources.quota_check_strategy != "IgnoreUndeclared"
    if missing and blocks:
        message = f"does not replace {_some(missing)} by {names.MEMORY}, so Jobs that ask for them are not admitted"
        yield Finding(Invariant.QUEUE_ADMITS, ABOUT, f"{message}; {REMEDY}")
    if wrong:
        message = f"does not replace {_some(wrong)} by the GB of {names.MEMORY} in the name, with strategy Replace"
        yield Finding(Invariant.QUEUE_ADMITS, ABOUT, f"{message}; {REMEDY}")
    excluded = configuration.resources.exclude_resource_prefixes
    if blocks and not any(names.RESOURCE.startswith(prefix) for prefix in excluded):
        message = f"does not exclude {names.RESOURCE}*, so plain pods with slices are not admitted; {REMEDY}"
        yield Finding(Invariant.QUEUE_ADMITS, ABOUT, message)


def names_both(workload: KueueWorkload) -> bool:
    """Whether a container of its templates names both a profile, as users write it, and GPU memory."""
    named = [set(_limits(each)) for each in _containers(workload)]
    return any(names.MEMORY in each and any(name.startswith(names.NVIDIA_RESOURCE) for name in each) for each in named)


def _slice_workloads(kueue: KueueSnapshot) -> Iterator[KueueWorkload]:
    for each in kueue.workloads or ():
        if admission_state(each) is not AdmissionState.FINISHED and asks_for_slices(each):
            yield each


def _counts_slices(kueue: KueueSnapshot) -> bool:
    """Whether anybody queues for slices here."""
    covered = (
        name
        for queue in kueue.cluster_queues or ()
        for group in queue.spec.resource_groups or ()
        for name in group.covered_resources or ()
    )
    return names.MEMORY in covered or any(True for _ in _slice_workloads(kueue))


def _due(workload: KueueWorkload) -> int:
    """The GB of all slices of a workload, and of GPU memory that containers without slices ask for. At least what Kueue
    may charge: it charges init containers with what runs beside them, not all that there is. Raises UnknownProfile."""
    gb = 0
    for pod_set in workload.spec.pod_sets or ():
        spec = pod_set.template.spec
        amounts = gpu_amounts(spec, pod_set.count)
        gb += sum(ProfileName.parse(name).gb * count for name, count in amounts.items() if _is_profile(name))
        alone = [each for each in _of_spec(spec.containers, spec.init_containers) if not _has_profile(each)]
        gb += sum(whole(_limits(each).get(names.MEMORY, 0)) for each in alone) * pod_set.count
    return gb


def _containers(workload: KueueWorkload) -> Iterator[Container]:
    for each in workload.spec.pod_sets or ():
        yield from _of_spec(each.template.spec.containers, each.template.spec.init_containers)


def _of_spec(*given: list[Container] | None) -> list[Container]:
    return [container for containers in given for container in containers or ()]


def _limits(container: Container) -> dict[str, str | int]:
    return {**container.resources.requests, **container.resources.limits}


def _has_profile(container: Container) -> bool:
    return any(map(_is_profile, _limits(container)))


def _is_profile(resource: str) -> bool:
    return resource.startswith((names.NVIDIA_RESOURCE, names.RESOURCE))


def _profiles(instaslices: Iterable[Instaslice]) -> list[ProfileName]:
    """Those of the GPUs of this cluster that are known by name."""
    found: set[ProfileName] = set()
    for model in (model for each in instaslices for model in each.status.models):
        for profile in model.profiles:
            try:
                found.add(ProfileName.parse(profile.name))
            except BadInput:
                continue  # `readable` says so
    return sorted(found, key=lambda each: (each.gb, str(each)))


def _waits(workloads: Sequence[KueueWorkload]) -> str:
    first = f"{key_of(workloads[0])}{f' ({owner})' if (owner := owner_name(workloads[0])) else ''}"
    if len(workloads) == 1:
        return f"Workload {first} is never admitted"
    return f"{len(workloads)} Workloads are never admitted, {first} among them"


def _some(resources: Sequence[str]) -> str:
    more = len(resources) - MOST_NAMED
    return ", ".join(resources[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
