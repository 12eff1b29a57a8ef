"""What one GPU needs next, and what to report of it: from what is wanted, what is there, and what we reported before.

Pure. The last report is all that an agent remembers over a restart, and it may be older than the hardware: a slice
may exist that was never reported, and one that was reported may be gone. An allocation and a slice belong together when
they share a slot (profile and start): neither ids nor UUIDs tell an old slice from a new one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from instaslice.api.bounds import truncated
from instaslice.api.instaslice import Allocation, PreparedSlice, SliceState
from instaslice.drivers import Slice
from instaslice.geometry import Placement

_NOT_OURS = frozenset({SliceState.FOREIGN, SliceState.DELETED})

MISSING = "it is not on the GPU any more"
DUPLICATE = "its place on the GPU is reserved for another allocation too"

LastReports = Mapping[str, PreparedSlice]
"""What we last reported of this GPU, by id."""


class Slot(NamedTuple):
    """Where a slice is on its GPU."""

    profile: str
    start: int


@dataclass(frozen=True, slots=True)
class Create:
    """Make the slice of an allocation."""

    wanted: Allocation


@dataclass(frozen=True, slots=True)
class Destroy:
    """Remove a slice whose allocation ends, or one that is incomplete."""

    doomed: Slice


Step = Create | Destroy


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU as it is now. `unhealthy` is why nothing can be made on it; empty when it is healthy."""

    found: tuple[Slice, ...]
    unhealthy: str = ""
    failures: Mapping[Slot, str] = field(default_factory=dict)
    """Why the last destroy in that slot failed."""
    lost: str = MISSING
    """Why a slice that was there may be missing."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Steps in the order in which to take them, all of which may be tried now, and what to report until then.

    `orphans` are slices that no allocation names: `gpu_worker` destroys them after a grace period, unless
    `usage.in_use` says that a pod uses them. Those in `ours` were created for an allocation that was removed before its
    slice.
    """

    steps: tuple[Step, ...]
    reports: tuple[PreparedSlice, ...]
    orphans: tuple[Slice, ...] = ()
    ours: frozenset[Slot] = frozenset()


def slot_of(item: Allocation | PreparedSlice | Slice) -> Slot:
    if isinstance(item, Slice):
        return Slot(item.placement.profile, item.placement.start)
    return Slot(item.profile, item.start)


def decide(allocations: Sequence[Allocation], gpu: GpuState, last: LastReports) -> Decision:
    """For a GPU whose slices can be listed. Idempotent: on its own reports, with nothing changed, it decides the
    same."""
    ending = [each for each in allocations if not each.wanted]
    wanted = [each for each in allocations if each.wanted]
    free = {slot_of(each): each for each in gpu.found}

    doomed = _claim(free, (each for each in ending if not _released(each, wanted, last)))
    failed = _failed(wanted, free, gpu, last)
    owned = _claim(free, (each for each in wanted if each.id not in failed))
    leftovers = {slot for slot in (slot_of(each) for each in wanted if each.id in failed) if slot in free}
    missing = [each for each in wanted if each.id not in failed and each.id not in owned]
    if gpu.unhealthy:
        failed |= {each.id: gpu.unhealthy for each in missing if not _blocked(each, doomed)}
    creates = [each for each in missing if each.id not in failed and not _blocked(each, doomed)]

    # A whole slice in the slot of a failed allocation is an orphan like any other: a pod may run in it after all.
    half_made = [each for each in owned.values() if not each.whole]
    half_made += [free[slot] for slot in sorted(leftovers) if not free[slot].whole]
    return Decision(
        steps=(*map(Destroy, (*doomed.values(), *half_made)), *map(Create, creates)),
        reports=(
            *(_report_ending(each, doomed.get(each.id), gpu) for each in ending),
            *(_report_wanted(each, owned.get(each.id), failed.get(each.id), gpu) for each in wanted),
            *(_report_foreign(each, gpu) for each in free.values()),
        ),
        orphans=tuple(each for each in free.values() if each not in half_made),
        ours=frozenset((_without_allocation(allocations, last) & free.keys()) | leftovers),
    )


def unreadable(
    allocations: Sequence[Allocation], last: LastReports, unhealthy: str, *, known: bool
) -> tuple[PreparedSlice, ...]:
    """What to report of a GPU whose slices cannot be listed: what was known, and that nothing new can be made.

    `known` is whether they were ever listed, as far as we know. Otherwise a pod may run in any of its slices already,
    as where the status was lost: none is reported failed, which would be final."""
    foreign = [each for each in last.values() if each.state is SliceState.FOREIGN]
    reports = [*foreign]
    for each in allocations:
        before = last.get(each.id)
        if not each.wanted:
            gone = before is not None and before.state is SliceState.DELETED
            state = SliceState.DELETED if gone else SliceState.DELETING
            reports.append(report_of(each, state, reason="" if gone else unhealthy))
        elif before is not None and before.state in (SliceState.CREATED, SliceState.FAILED):
            reports.append(before)
        elif slot_of(each) not in map(slot_of, foreign):
            state = SliceState.FAILED if known else SliceState.CREATING
            reports.append(report_of(each, state, reason=unhealthy))
    return tuple(reports)


def report_of(allocation: Allocation, state: SliceState, held: Slice | None = None, reason: str = "") -> PreparedSlice:
    """The report of an allocation; `held` is the slice that was made for it."""
    return PreparedSlice(
        id=allocation.id,
        gpu=allocation.gpu,
        profile=allocation.profile,
        start=allocation.start,
        size=allocation.size,
        state=state,
        mig_uuid=None if held is None else held.mig_uuid,
        gi=None if held is None else held.gi,
        ci=None if held is None else held.ci,
        reason=truncated(reason),
    )


# Which slice is whose -------------------------------------------------------------------------------------------------


def _claim(free: dict[Slot, Slice], claims: Iterable[Allocation]) -> dict[str, Slice]:
    """Allocation id → the slice in its slot, taken out of `free`; of two claims for one slot the first wins."""
    return {each.id: free.pop(slot) for each in claims if (slot := slot_of(each)) in free}


def _released(ending: Allocation, wanted: Sequence[Allocation], last: LastReports) -> bool:
    """Whether its slice is certainly gone: we reported so, and a slice in its slot is already another allocation's."""
    before = last.get(ending.id)
    if before is not None and before.state is not SliceState.FAILED:
        return before.state is SliceState.DELETED
    # Our reports were lost, or it never existed. The controller reuses a slot only after we reported it free.
    placement = Placement(ending.profile, ending.start, ending.size)
    return any(_overlap(placement, each) for each in wanted)


def _failed(
    wanted: Sequence[Allocation], found: Mapping[Slot, Slice], gpu: GpuState, last: LastReports
) -> dict[str, str]:
    """Allocation id → why it has no slice and will get none. It stays failed until the controller removes it, which may
    have given the pod another slice by now."""
    failed: dict[str, str] = {}
    taken: set[Slot] = set()
    for each in wanted:
        before, slot = last.get(each.id), slot_of(each)
        if before is not None and before.state is SliceState.FAILED:
            failed[each.id] = before.reason
            continue
        if slot in taken:
            # No controller writes that, but an administrator may. A create would find its slot taken indefinitely.
            failed[each.id] = DUPLICATE
        elif _reported_there(each, last) and not (slot in found and found[slot].whole):
            # Its pod may be running since we reported it: a new, empty slice in its place would hide the loss.
            failed[each.id] = f"slice lost: {gpu.lost}"
        taken.add(slot)
    return failed


def _reported_there(wanted: Allocation, last: LastReports) -> bool:
    """Whether we reported its slice: as its own, or as foreign, where the controller adopted it for a running pod."""
    before = last.get(wanted.id)
    if before is not None:
        return before.state is SliceState.CREATED
    return any(each.state is SliceState.FOREIGN and slot_of(each) == slot_of(wanted) for each in last.values())


def _blocked(wanted: Allocation, doomed: Mapping[str, Slice]) -> bool:
    """Whether a slice that is still to be destroyed is in the way: the slot was reused too early."""
    return any(_overlap(each.placement, wanted) for each in doomed.values())


def _without_allocation(allocations: Sequence[Allocation], last: LastReports) -> set[Slot]:
    """Slots of slices that we made and whose allocation was removed."""
    known = {each.id for each in allocations}
    return {slot_of(each) for each in last.values() if each.state not in _NOT_OURS and each.id not in known}


def _overlap(one: Placement, other: Allocation) -> bool:
    return bool(one.mask & Placement(other.profile, other.start, other.size).mask)


# Reports --------------------------------------------------------------------------------------------------------------


def _report_ending(ending: Allocation, held: Slice | None, gpu: GpuState) -> PreparedSlice:
    if held is None:
        return report_of(ending, SliceState.DELETED)
    return report_of(ending, SliceState.DELETING, held, gpu.failures.get(slot_of(ending), ""))


def _report_wanted(wanted: Allocation, held: Slice | None, failure: str | None, gpu: GpuState) -> PreparedSlice:
    if failure is not None:
        return report_of(wanted, SliceState.FAILED, reason=failure)
    if held is not None and held.whole:
        return report_of(wanted, SliceState.CREATED, held)
    return report_of(wanted, SliceState.CREATING, held, gpu.failures.get(slot_of(wanted), ""))


def _report_foreign(held: Slice, gpu: GpuState) -> PreparedSlice:
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
        reason=truncated(gpu.failures.get(slot_of(held), "")),
    )
