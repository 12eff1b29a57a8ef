"""What was promised: a slice to a container, all slices of a pod to the pod."""

from dataclasses import dataclass, field

import msgspec

from instaslice.api.bounds import truncated
from instaslice.api.instaslice import Allocation, AllocationState, PreparedSlice, SliceState
from instaslice.placement import GpuId, Grant, NodeName


@dataclass(slots=True, eq=False)
class TrackedAllocation:
    """One allocation in the ledger: what stands in the spec, and what the agent has made of it."""

    node: NodeName
    allocation: Allocation
    prepared: PreparedSlice | None = None
    create_error: str = ""
    """Why the hardware did not make it, where it never was."""

    @property
    def grant(self) -> Grant:
        a = self.allocation
        return Grant(self.node, GpuId(a.gpu), a.profile, a.start, a.size)

    @property
    def created(self) -> bool:
        return self.prepared is not None and self.prepared.state is SliceState.CREATED

    @property
    def failed(self) -> str | None:
        """Why the agent could not make it, or lost it; None while all is well."""
        if self.prepared is None or self.prepared.state is not SliceState.FAILED:
            return None
        return self.prepared.reason or "the agent gave no reason"

    def set_state(self, state: AllocationState, reason: str = "") -> None:
        self.allocation = msgspec.structs.replace(self.allocation, state=state, reason=truncated(reason))


@dataclass(slots=True, eq=False)
class Reservation:
    """All slices of one pod, on one node, in the order in which the pod wants them."""

    uid: str
    node: NodeName
    since: float
    allocations: list[TrackedAllocation] = field(default_factory=list)
    charged: bool = False
    """Whether its CPU is counted and its deadlines are kept: not yet for one that an earlier process made."""
    overdue: bool = False
    """Nobody bound the pod in time. It keeps its slices until another pod needs them."""

    ungate_refused: str = ""
    """What the API server answered last, where it refused to take the gate of the pod away."""

    @property
    def created(self) -> bool:
        return all(tracked.created for tracked in self.allocations)

    @property
    def failed(self) -> str | None:
        return next((tracked.failed for tracked in self.allocations if tracked.failed), None)

    @property
    def uuids(self) -> list[str]:
        return [
            tracked.prepared.mig_uuid
            for tracked in self.allocations
            if tracked.prepared is not None and tracked.prepared.mig_uuid
        ]

    def set_state(self, state: AllocationState, reason: str = "") -> None:
        for tracked in self.allocations:
            tracked.set_state(state, reason)


def attempt(allocation: Allocation) -> str:
    """The try that an allocation belongs to, by its id: a pod that is promised slices anew has others."""
    return allocation.id.rpartition("-")[0]
