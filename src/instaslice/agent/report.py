"""The part of a status that has changed, as a patch: geometries are large and static, slices small and busy."""

import msgspec

from instaslice.api.instaslice import Status
from instaslice.kube.client import JsonOp

_FIELDS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(Status))

_SEEN = "/status/observedGeneration"


def patch(before: Status | None, now: Status) -> list[JsonOp]:
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


def trivial(ops: list[JsonOp]) -> bool:
    """Whether they say nothing but which spec was seen."""
    return [op.path for op in ops] == [_SEEN]


def _without(path: str) -> JsonOp:
    return JsonOp(op="remove", path=f"/status/{path}")
