"""The part of a status that has changed, as a patch: geometries are large and static, slices small and busy."""

from collections.abc import Callable

import msgspec

from instaslice.api.instaslice import InstasliceStatus, PreparedSlice, SliceState
from instaslice.kube.client import JsonOp

_FIELDS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(InstasliceStatus))
_UNDER_WAY = (SliceState.CREATING, SliceState.DELETING)


def patch(before: InstasliceStatus | None, now: InstasliceStatus) -> list[JsonOp]:
    """Steps from one status to the next; the whole where nothing is known of the one before; none where all is said."""
    if before is None:
        return [JsonOp(op="add", path="/status", value=now)]
    ops = []
    for name, path in _FIELDS:
        old, new = getattr(before, name), getattr(now, name)
        if old == new:
            continue
        # A field at its default was never sent, so there may be nothing to remove: an add replaces what is there.
        ops.append(JsonOp(op="add", path=f"/status/{path}", value=new) if new is not None else _without(path))
    return ops


def awaited(before: InstasliceStatus | None, now: InstasliceStatus) -> bool:
    """Whether somebody may wait to hear it: anything but which spec was seen and that entries which ended are gone. One
    of a slice that nobody asked for held its slot to the last."""
    if before is None:
        return True
    told = {each.id: each for each in before.slices}
    if any(told.get(each.id) != each for each in now.slices):
        return True
    gone = told.keys() - {each.id for each in now.slices}
    if any(told[each].state is SliceState.FOREIGN for each in gone):
        return True
    quiet = {"observed_generation": 0, "slices": (), "summary": None}
    return msgspec.structs.replace(before, **quiet) != msgspec.structs.replace(now, **quiet)


def under_way(status: InstasliceStatus) -> bool:
    """Whether more is about to change by itself."""
    return any(each.state in _UNDER_WAY for each in status.slices)


def with_holders(status: InstasliceStatus, holder: Callable[[PreparedSlice], str]) -> InstasliceStatus:
    """The same, with the pod that holds each slice which no allocation names."""
    slices = tuple(
        msgspec.structs.replace(each, holder=holder(each)) if each.state is SliceState.FOREIGN else each
        for each in status.slices
    )
    return msgspec.structs.replace(status, slices=slices)


def _without(path: str) -> JsonOp:
    return JsonOp(op="remove", path=f"/status/{path}")
