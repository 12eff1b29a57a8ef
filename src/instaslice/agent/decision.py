"""What one GPU needs next, and what to report of it: from what is promised, what is there, and what we said before.

Pure. The last report is all that an agent remembers over a restart, and it may be older than the hardware: a slice
may be there that was never reported, and one reported may be gone. Which slice is whose follows from its place
(profile and start), as neither ids nor UUIDs tell an old slice from a new one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from instaslice.api.bounds import truncated
from instaslice.api.instaslice import Allocation, AllocationState, PreparedSlice, SliceState
from instaslice.drivers import GpuUuid, Slice
from instaslice.geometry import Placement

_NOT_OURS = frozenset({SliceState.FOREIGN, SliceState.DELETED})

MISSING = "it is not on the GPU any more"
TWICE = "its place on the GPU is promised to another allocation too"

Past = Mapping[str, PreparedSlice]
"""What we reported last of this GPU, by id."""


class Place(NamedTuple):
    """Where a slice is on its GPU: what a promise and a slice are matched by."""

    profile: str
    start: int


@dataclass(frozen=True, slots=True)
class Create:
    """Make the slice of an allocation."""

    wanted: Allocation


@dataclass(frozen=True, slots=True)
class Destroy:
    """Remove a slice: of an allocation that ends, or one that was left half made."""

    doomed: Slice


Step = Create | Destroy


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as it is now. `ill` is why nothing can be made on it; empty when it is well."""

    uuid: GpuUuid
    found: tuple[Slice, ...]
    ill: str = ""
    troubles: Mapping[Place, str] = field(default_factory=dict)
    """Why a destroy at that place did not succeed yet."""
    lost: str = MISSING
    """Why a slice that was there may be missing."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Steps in the order in which to take them, of which all may be tried now, and what to report until then.

    `orphans` are slices that nobody asked for: whether and when they go is for the caller to say. Those in `ours`
    were made for an allocation that left without waiting for them.
    """

    steps: tuple[Step, ...]
    reports: tuple[PreparedSlice, ...]
    orphans: tuple[Slice, ...] = ()
    ours: frozenset[Place] = frozenset()


def place_of(thing: Allocation | PreparedSlice | Slice) -> Place:
    if isinstance(thing, Slice):
        return Place(thing.placement.profile, thing.placement.start)
    return Place(thing.profile, thing.start)


def decide(allocations: Sequence[Allocation], gpu: Gpu, past: Past) -> Decision:
    """Of a GPU that can be read. Deciding again on its own reports, with nothing changed, says the same."""
    at = {place_of(each): each for each in gpu.found}
    ends = [each for each in allocations if not each.wanted]
    wants = [each for each in allocations if each.wanted]
    reports: list[PreparedSlice] = []
    destroys: list[Step] = []
    creates: list[Step] = []
    # A place is taken out of `at` by whoever owns the slice in it.
    going: list[Slice] = []
    for each in ends:
        held = None if _over(each, wants, past) else at.pop(place_of(each), None)
        if held is None:
            reports.append(reported(each, SliceState.DELETED))
            continue
        going.append(held)
        destroys.append(Destroy(held))
        reports.append(reported(each, SliceState.DELETING, held, gpu.troubles.get(place_of(each), "")))
    failed: set[Place] = set()
    owned: set[Place] = set()
    for each in wants:
        before = past.get(each.id)
        held = at.get(place_of(each))
        if before is not None and before.state is SliceState.FAILED:
            # It stays failed until the controller takes it back, which may have promised the pod another by now.
            reports.append(reported(each, SliceState.FAILED, reason=before.reason))
            failed.add(place_of(each))
            continue
        if place_of(each) in owned:
            # No controller writes that, but an administrator may. Tried, it would find its slot taken for ever.
            reports.append(reported(each, SliceState.FAILED, reason=TWICE))
            continue
        owned.add(place_of(each))
        if held is not None and held.whole:
            reports.append(reported(each, SliceState.CREATED, at.pop(place_of(each))))
        elif held is not None or any(_overlap(other.placement, each) for other in going):
            # Half made by an agent that was killed; or not gone yet, though the slot was given away.
            if held is not None:
                del at[place_of(each)]
                destroys.append(Destroy(held))
            reports.append(reported(each, SliceState.CREATING, held, gpu.troubles.get(place_of(each), "")))
        elif each.state is AllocationState.UNGATED:
            # Its pod has run: a new, empty slice in its place would hide that from it.
            reports.append(reported(each, SliceState.FAILED, reason=f"slice lost: {gpu.lost}"))
        elif gpu.ill:
            reports.append(reported(each, SliceState.FAILED, reason=gpu.ill))
        else:
            creates.append(Create(each))
            reports.append(reported(each, SliceState.CREATING))
    orphans: list[Slice] = []
    promised = {each.id for each in allocations}
    left = {place_of(each) for each in past.values() if each.state not in _NOT_OURS and each.id not in promised}
    for place, held in at.items():
        if place in failed:
            # What a failed create left behind, perhaps long after it was given up.
            destroys.append(Destroy(held))
        else:
            orphans.append(held)
        reports.append(_foreign(held, gpu.troubles.get(place, "")))
    return Decision((*destroys, *creates), tuple(reports), tuple(orphans), frozenset(left & at.keys()))


def unreadable(allocations: Sequence[Allocation], past: Past, ill: str) -> tuple[PreparedSlice, ...]:
    """What to report of a GPU that does not tell what is on it: what was known, and that nothing new can be made."""
    reports = [each for each in past.values() if each.state is SliceState.FOREIGN]
    for each in allocations:
        before = past.get(each.id)
        if not each.wanted:
            gone = before is not None and before.state is SliceState.DELETED
            state = SliceState.DELETED if gone else SliceState.DELETING
            reports.append(reported(each, state, reason="" if gone else ill))
        elif before is not None and before.state in (SliceState.CREATED, SliceState.FAILED):
            reports.append(before)
        elif each.state is not AllocationState.UNGATED:
            reports.append(reported(each, SliceState.FAILED, reason=ill))
    return tuple(reports)


def _over(ended: Allocation, wants: Sequence[Allocation], past: Past) -> bool:
    """Whether its slice is gone for certain: we said so, and what is in its place is another's by now."""
    before = past.get(ended.id)
    if before is not None and before.state is not SliceState.FAILED:
        return before.state is SliceState.DELETED
    # Our reports were lost, or it never was. The controller gives a slot away only after we said that it is free.
    placement = Placement(ended.profile, ended.start, ended.size)
    return any(_overlap(placement, each) for each in wants)


def _overlap(one: Placement, other: Allocation) -> bool:
    return bool(one.mask & Placement(other.profile, other.start, other.size).mask)


def reported(told: Allocation, state: SliceState, held: Slice | None = None, reason: str = "") -> PreparedSlice:
    """What to say of an allocation; `held` is the slice that was made for it."""
    return PreparedSlice(
        id=told.id,
        gpu=told.gpu,
        profile=told.profile,
        start=told.start,
        size=told.size,
        state=state,
        mig_uuid=None if held is None else held.mig_uuid,
        gi=None if held is None else held.gi,
        ci=None if held is None else held.ci,
        reason=truncated(reason),
    )


def _foreign(held: Slice, reason: str) -> PreparedSlice:
    return PreparedSlice(
        id=held.mig_uuid or f"{held.gpu}/{held.gi}",
        gpu=held.gpu,
        profile=held.placement.profile,
        start=held.placement.start,
        size=held.placement.size,
        state=SliceState.FOREIGN,
        mig_uuid=held.mig_uuid,
        gi=held.gi,
        ci=held.ci,
        reason=truncated(reason),
    )
