"""Reports as values: what has changed in a status, as a patch, and what other modules need from the reported slices.

Geometries are large and static, slices small and busy: so a patch has only the fields that differ.
"""

from collections.abc import Callable, Iterable

import msgspec

from instaslice.agent.kubelet.device_ids import SliceAddress
from instaslice.api.instaslice import ConditionStatus, InstasliceCondition, InstasliceStatus, PreparedSlice, SliceState
from instaslice.drivers import GpuUuid, MigUuid, Slice
from instaslice.geometry import Placement
from instaslice.kube.client import JsonOp

_FIELDS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(InstasliceStatus))
_IN_PROGRESS = (SliceState.CREATING, SliceState.DELETING)


def patch(before: InstasliceStatus | None, now: InstasliceStatus) -> list[JsonOp]:
    """Steps from one status to the next; the whole status where the one before is not known."""
    if before is None:
        return [JsonOp(op="add", path="/status", value=now)]
    ops = []
    for name, path in _FIELDS:
        old, new = getattr(before, name), getattr(now, name)
        if old == new:
            continue
        # A field at its default was never sent, so there may be nothing to replace: an add works either way.
        if new is None:
            ops.append(JsonOp(op="remove", path=f"/status/{path}"))
        else:
            ops.append(JsonOp(op="add", path=f"/status/{path}", value=new))
    return ops


def urgent(before: InstasliceStatus | None, now: InstasliceStatus) -> bool:
    """Whether somebody may wait for it: anything but which spec was seen and that entries which ended are gone. A
    foreign slice held its slot to the last."""
    if before is None:
        return True
    reported = {each.id: each for each in before.slices}
    if any(reported.get(each.id) != each for each in now.slices):
        return True
    gone = reported.keys() - {each.id for each in now.slices}
    if any(reported[each].state is SliceState.FOREIGN for each in gone):
        return True
    quiet = {"observed_generation": 0, "slices": (), "summary": None}
    return msgspec.structs.replace(before, **quiet) != msgspec.structs.replace(now, **quiet)


def worsened(before: InstasliceStatus | None, now: InstasliceStatus) -> list[InstasliceCondition]:
    """Conditions that are false now, and were not before or for another reason."""
    known = {(each.type, each.status, each.reason) for each in (before.conditions if before else ())}
    false = [each for each in now.conditions if each.status is ConditionStatus.FALSE]
    return [each for each in false if (each.type, each.status, each.reason) not in known]


def in_progress(status: InstasliceStatus) -> bool:
    """Whether more is about to change by itself."""
    return any(each.state in _IN_PROGRESS for each in status.slices)


def with_holders(status: InstasliceStatus, pod_of: Callable[[SliceAddress], str]) -> InstasliceStatus:
    """The same, with the pod that holds each foreign slice."""
    slices = tuple(
        msgspec.structs.replace(each, holder=pod_of(_address(each))) if each.state is SliceState.FOREIGN else each
        for each in status.slices
    )
    return msgspec.structs.replace(status, slices=slices)


def usable(reports: Iterable[PreparedSlice]) -> dict[str, Slice]:
    """Allocation id → its slice, where a container could use it."""
    return {
        each.id: Slice(
            GpuUuid(each.gpu), Placement(each.profile, each.start, each.size), each.gi, each.ci, MigUuid(each.mig_uuid)
        )
        for each in reports
        if each.state is SliceState.CREATED and each.mig_uuid is not None and each.gi is not None
    }


def foreign(reports: Iterable[PreparedSlice]) -> set[SliceAddress]:
    """Where slices exist that no allocation names."""
    return {_address(each) for each in reports if each.state is SliceState.FOREIGN}


def _address(report: PreparedSlice) -> SliceAddress:
    return SliceAddress(report.gpu, report.profile, report.start)
