"""What takes room on a GPU: allocations and existing slices, by start.

Pure: follows from the Instaslice object of the node.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from instaslice.api.instaslice import Allocation, Instaslice, PreparedSlice, SliceState
from instaslice.api.summary import holds_slot
from instaslice.controller.lifecycle import Phase, phase_of_slice


class SlotState(StrEnum):
    """What is in a slot."""

    FREE = "free"
    CREATING = "creating"
    CREATED = "created"
    DELETING = "deleting"
    """Its pod has ended, and it is being destroyed."""
    FAILED = "failed"
    FOREIGN = "foreign"
    """It exists, and no allocation names it."""


STATES = {
    Phase.CREATING: SlotState.CREATING,
    Phase.CREATED: SlotState.CREATED,
    Phase.DELETING: SlotState.DELETING,
    Phase.FAILED: SlotState.FAILED,
}


class HeldSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slice on a GPU, or one to come. `allocation` is None where no allocation names it."""

    start: int
    size: int
    profile: str
    state: SlotState
    allocation: Allocation | None = None
    prepared: PreparedSlice | None = None


def held_slots(node: Instaslice, gpu: str) -> list[HeldSlot]:
    """By start. Where two have one start, the slice to come hides the one to go."""
    found = {each.start: each for each in _held(node, gpu)}
    return [found[start] for start in sorted(found)]


def _held(node: Instaslice, gpu: str) -> Iterator[HeldSlot]:
    reported = {slice_.id: slice_ for slice_ in node.status.slices if slice_.gpu == gpu}
    allocated = {each.id: each for each in node.spec.allocations if each.gpu == gpu}
    for prepared in reported.values():
        if prepared.id not in allocated and holds_slot(prepared):
            state = SlotState.FOREIGN if prepared.state is SliceState.FOREIGN else SlotState.DELETING
            yield HeldSlot(
                start=prepared.start, size=prepared.size, profile=prepared.profile, state=state, prepared=prepared
            )
    for each in allocated.values():
        phase = phase_of_slice(each, reported.get(each.id))
        if phase is not Phase.DELETED:
            yield HeldSlot(
                start=each.start,
                size=each.size,
                profile=each.profile,
                state=STATES[phase],
                allocation=each,
                prepared=reported.get(each.id),
            )
