"""What is reserved for pods: allocations, each one slice for a container, and all allocations of a pod together."""

from dataclasses import dataclass, field

import msgspec

from instaslice.api.bounds import truncated
from instaslice.api.instaslice import Allocation, AllocationState, PreparedSlice, SliceState
from instaslice.controller.lifecycle import Phase, phase_of, phase_of_slice
from instaslice.geometry import ProfileName
from instaslice.kube.core import Pod
from instaslice.placement import GpuId, Grant, NodeName

SHOWN = {
    Phase.CREATING: AllocationState.CREATING,
    Phase.CREATED: AllocationState.CREATED,
    Phase.UNGATED: AllocationState.UNGATED,
}
"""Phases that a spec shows of a wanted allocation, for people to read. Its failure is in the status."""


@dataclass(slots=True, eq=False)
class TrackedAllocation:
    """One allocation in the ledger: what the spec says, and what the agent reports of it."""

    node: NodeName
    allocation: Allocation
    prepared: PreparedSlice | None = None
    existed: bool = False
    """Whether its slice is known to have been there."""
    create_error: str = ""
    """Why the hardware did not create it."""

    @property
    def grant(self) -> Grant:
        a = self.allocation
        return Grant(self.node, GpuId(a.gpu), a.profile, a.start, a.size)

    @property
    def failed(self) -> str | None:
        """Why the agent could not create the slice, or lost it; None while all is well."""
        if self.prepared is None or self.prepared.state is not SliceState.FAILED:
            return None
        return self.prepared.reason or "the agent gave no reason"

    def set_state(self, state: AllocationState, reason: str = "") -> None:
        self.allocation = msgspec.structs.replace(self.allocation, state=state, reason=truncated(reason))


@dataclass(slots=True, eq=False)
class Reservation:
    """All slices of one pod, on one node, in the order in which the pod asks for them."""

    uid: str
    node: NodeName
    since: float
    allocations: list[TrackedAllocation] = field(default_factory=list)
    charged: bool = False
    """Whether its CPU is counted and its deadlines are tracked: not yet where an earlier process made it."""
    ungated: bool = False
    """Whether the pod is known to be past its gate."""
    overdue: bool = False
    """Nobody bound the pod in time. It keeps its slices until another pod needs them."""
    ungate_refused: str = ""
    """What the API server answered last, where it refused the removal of the pod's gate."""
    create_seconds: float = 0.0
    """After so long without its slices a gated pod is placed elsewhere; 0 until its deadlines are tracked."""
    slow: bool = False
    """Its slices are not created as soon as usual: the pod's condition says how far they are."""
    replaces: str = ""
    """Why the pod lost the slices that were reserved for it before; "" of a first reservation."""

    @property
    def created(self) -> bool:
        return all(
            tracked.prepared is not None and tracked.prepared.state is SliceState.CREATED
            for tracked in self.allocations
        )

    @property
    def unanswered(self) -> bool:
        """Whether the agent has reported none of it."""
        return all(tracked.prepared is None for tracked in self.allocations)

    @property
    def failed(self) -> str | None:
        return next((tracked.failed for tracked in self.allocations if tracked.failed), None)

    @property
    def uuids(self) -> list[str]:
        slices = (tracked.prepared for tracked in self.allocations)
        return [each.mig_uuid for each in slices if each is not None and each.mig_uuid]

    @property
    def given(self) -> dict[str, dict[str, int | str]]:
        """What containers got that asked by memory: GB asked for, profile, GB of that."""
        return {
            each.container: {
                "asked": each.asked_gb,
                "profile": each.profile,
                "gb": ProfileName.parse(each.profile).gb,
            }
            for each in (tracked.allocation for tracked in self.allocations)
            if each.asked_gb
        }

    def phase(self, pod: Pod | None) -> Phase:
        return phase_of(pod, ((tracked.allocation, tracked.prepared) for tracked in self.allocations))

    def show(self, phase: Phase) -> bool:
        """Have the spec show how far the pod and its slices are. Whether it showed something else."""
        changed = False
        for tracked in self.allocations:
            own = phase_of_slice(tracked.allocation, tracked.prepared)
            state = SHOWN.get(Phase.UNGATED if phase is Phase.UNGATED else own)
            if state is not None and tracked.allocation.state is not state:
                tracked.set_state(state)
                changed = True
        return changed

    def mark_ungated(self) -> None:
        self.ungated = True
        for tracked in self.allocations:
            tracked.existed = True

    def release(self, reason: str) -> None:
        for tracked in self.allocations:
            tracked.set_state(AllocationState.DELETING, reason)


def attempt(allocation: Allocation) -> str:
    """The attempt that an allocation belongs to, by its id: a pod that is placed again gets other ids."""
    return allocation.id.rpartition("-")[0]
