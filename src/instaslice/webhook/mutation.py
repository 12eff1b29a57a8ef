"""The change that a pod with slices goes through: gate, our resource names, GPU memory, record, toleration.

Pure: a pod in, a JSON patch out. Safe to repeat: the patch of a pod that has been through it is empty, so other
webhooks may have the API server call us again.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from instaslice.api import names
from instaslice.api.container_requests import ContainerRequest, container_request, renamed_resources
from instaslice.api.errors import Rejected
from instaslice.api.largest_node import LargestNode
from instaslice.api.memory_requests import check_no_terms
from instaslice.api.pods import gated, held_together
from instaslice.api.slice_requests import zeros_of
from instaslice.geometry import ProfileName, UnknownProfile
from instaslice.kube.client import JsonOp, appended, escaped
from instaslice.kube.quantities import nano
from instaslice.webhook.review import AdmissionContainer, AdmissionPod

HIDES_ALL: Final = {"NVIDIA_VISIBLE_DEVICES": ("", "void", "none"), "CUDA_VISIBLE_DEVICES": ("", "-1")}
"""Variables that can reach past the slices of a container, and the values by which they hide GPUs instead."""
WRITTEN_LATER: Final = tuple(each for each in names.RESERVED_ANNOTATIONS if each != names.REQUESTED)
"""Annotations that no new pod may have: we write them once its slices exist."""
TOLERATION: Final = {"key": names.MANAGED, "operator": "Exists", "effect": "NoSchedule"}

Record = dict[str, dict[str, int]]
"""Container → resource name as the user wrote it → quantity: the value of the annotation REQUESTED."""


def mutate(pod: AdmissionPod, largest: LargestNode, request: str = "") -> list[JsonOp]:
    """What to change so that the controller takes the pod; of a pod without slices, at most that it names zero of them.
    `request` is the uid of the admission request, which is noted in the pod when it is gated.

    Raises Rejected; its message names the container, but not the pod.
    """
    requests: dict[str, ContainerRequest] = {}
    before = _recorded(pod)
    for _, container in pod.containers():
        try:
            requests[container.name] = container_request(container, largest, before.get(container.name, {}))
        except Rejected as rejected:
            raise Rejected(f"container {container.name}: {rejected}") from None
    resources = [
        op for path, container in pod.containers() for op in _rename(path, container, requests[container.name])
    ]
    if not any(each.slices or each.gb for each in requests.values()):
        return resources
    _check(pod)
    if not any(each.gb for each in requests.values()):
        check_no_terms(pod.metadata.annotations)
    for together in held_together(
        pod.spec.init_containers,
        pod.spec.containers,
        lambda container: requests[container.name].counts(pod.metadata.annotations),
    ):
        largest.check_fits(together)
    record = _record(before, requests)
    return [
        *_annotate(pod, record, request),
        *_gate(pod),
        *resources,
        *_tolerate(pod),
    ]


def reapplied(pod: AdmissionPod) -> list[JsonOp]:
    """What to change in an update that writes the names again which we replaced, as `kubectl apply` does with the pod's
    original file: our names stand for them. Everything else is for the API server to judge."""
    undone = [op for path, container in pod.containers() for op in _restored_names(path, container)]
    tolerating = _tolerate(pod) if undone and names.REQUESTED in pod.metadata.annotations else ()
    return [*undone, *tolerating]


def _restored_names(path: str, container: AdmissionContainer) -> Iterator[JsonOp]:
    resources, zeros = container.resources, zeros_of(container)
    for field, present in (("limits", resources.limits), ("requests", resources.requests)):
        for name, quantity in present.items():
            if name in zeros or _stands_for(present, name, quantity):
                yield JsonOp(op="remove", path=f"{path}/resources/{field}/{escaped(name)}")


def _stands_for(present: Mapping[str, str | int], name: str, quantity: str | int) -> bool:
    """Whether our name for this one is there beside it, with the same quantity."""
    own = present.get(names.renamed(name) or "")
    return own is not None and nano(own) == nano(quantity)


def _check(pod: AdmissionPod) -> None:
    for _, container in pod.containers():
        for variable in container.env or ():
            hiding = HIDES_ALL.get(variable.name)
            if hiding is not None and (variable.value_from is not None or variable.value not in hiding):
                raise Rejected(
                    f"container {container.name}: sets {variable.name}, which would reach past its slice; "
                    "leave it out, the container sees the slices that it asks for"
                )
    for annotation in WRITTEN_LATER:
        if annotation in pod.metadata.annotations:
            raise _forged(annotation)
    if pod.spec.node_name:
        raise Rejected(
            f"spec.nodeName is set to {pod.spec.node_name}, so nobody could make its slices first; "
            "use a nodeSelector on kubernetes.io/hostname instead"
        )


def _record(recorded: Record, requests: Mapping[str, ContainerRequest]) -> Record:
    """What was requested, under the names that the user wrote. An annotation that is there already must be the one we
    wrote: it came with our gate and says what the containers request now. What another webhook added since is added."""
    record = dict(recorded)
    for name, before in record.items():
        found = requests.get(name, ContainerRequest([]))
        present = {each.resource: each.count for each in found.slices if each.written == each.resource}
        present |= {names.MEMORY: found.gb} if found.gb else {}
        if _renamed(before) != present:
            raise _forged(names.REQUESTED)
    for name, wanted in requests.items():
        first = name not in record
        new = {each.written: each.count for each in wanted.slices if first or each.written != each.resource}
        new |= {names.MEMORY: wanted.gb} if wanted.gb else {}
        if new:
            record[name] = record.get(name, {}) | new
    return record


def _recorded(pod: AdmissionPod) -> Record:
    text = pod.metadata.annotations.get(names.REQUESTED)
    if text is None:
        return {}
    try:
        record = msgspec.json.decode(text, type=Record)
    except msgspec.DecodeError:
        raise _forged(names.REQUESTED) from None
    if not gated(pod):
        raise _forged(names.REQUESTED)
    return record


def _renamed(written: Mapping[str, int]) -> dict[str, int]:
    try:
        return {
            name if name == names.MEMORY else names.resource_name(ProfileName.parse(name)): count
            for name, count in written.items()
        }
    except UnknownProfile:
        raise _forged(names.REQUESTED) from None


def _forged(annotation: str) -> Rejected:
    return Rejected(f"sets the annotation {annotation}, which is ours to write; leave it out")


def _annotate(pod: AdmissionPod, record: Record, request: str) -> Iterator[JsonOp]:
    wanted = {names.REQUESTED: msgspec.json.encode(record, order="sorted").decode()}
    if request and not gated(pod):
        wanted[names.ADMISSION] = request
    present = pod.metadata.annotations
    if not present:
        yield JsonOp(op="add", path="/metadata/annotations", value=wanted)
        return
    for name, text in wanted.items():
        if present.get(name) != text:
            yield JsonOp(op="add", path=f"/metadata/annotations/{escaped(name)}", value=text)


def _gate(pod: AdmissionPod) -> Iterator[JsonOp]:
    if not gated(pod):
        yield appended("/spec/schedulingGates", pod.spec.scheduling_gates, {"name": names.GATE})


def _tolerate(pod: AdmissionPod) -> Iterator[JsonOp]:
    """Tolerate the taint that keeps pods without slices off our nodes."""
    tolerated = any(
        each.key == names.MANAGED and each.operator == "Exists" and each.effect in ("", "NoSchedule")
        for each in pod.spec.tolerations or ()
    )
    if not tolerated:
        yield appended("/spec/tolerations", pod.spec.tolerations, TOLERATION)


def _rename(path: str, container: AdmissionContainer, request: ContainerRequest) -> Iterator[JsonOp]:
    present, named = container.resources, renamed_resources(container, request)
    for field, before, after in (
        ("limits", present.limits, named.limits),
        ("requests", present.requests, named.requests),
    ):
        if after != before:
            yield JsonOp(op="add", path=f"{path}/resources/{field}", value=after)
