"""What was promised: a slice to a container, all slices of a pod to the pod."""

from dataclasses import dataclass, field

import msgspec

from instaslice.api.bounds import words
from instaslice.api.instaslice import Allocation, AllocationState, PreparedSlice, SliceState
from instaslice.placement import GpuId, Grant, NodeName


@dataclass(slots=True, eq=False)
class Slot:
    """One allocation in the ledger: what stands in the spec, and what the agent has made of it."""

    node: NodeName
    allocation: Allocation
    made: PreparedSlice | None = None
    refused: str = ""
    """Why the hardware did not make it, where it never was."""

    @property
    def grant(self) -> Grant:
        a = self.allocation
        return Grant(self.node, GpuId(a.gpu), a.profile, a.start, a.size)

    @property
    def created(self) -> bool:
        return self.made is not None and self.made.state is SliceState.CREATED

    @property
    def failed(self) -> str | None:
        """Why the agent could not make it, or lost it; None while all is well."""
        if self.made is None or self.made.state is not SliceState.FAILED:
            return None
        return self.made.reason or "the agent gave no reason"

    def become(self, state: AllocationState, reason: str = "") -> None:
        self.allocation = msgspec.structs.replace(self.allocation, state=state, reason=words(reason))


@dataclass(slots=True, eq=False)
class Promise:
    """All slices of one pod, on one node, in the order in which the pod wants them."""

    uid: str
    node: NodeName
    since: float
    slots: list[Slot] = field(default_factory=list)
    minded: bool = False
    """Whether its CPU is counted and its deadlines are kept: not yet for one that an earlier process made."""
    overdue: bool = False
    """Nobody bound the pod in time. It keeps its slices until another pod needs them."""

    ungate_refused: str = ""
    """What the API server answered last, where it refused to take the gate of the pod away."""

    @property
    def created(self) -> bool:
        return all(slot.created for slot in self.slots)

    @property
    def failed(self) -> str | None:
        return next((slot.failed for slot in self.slots if slot.failed), None)

    @property
    def uuids(self) -> list[str]:
        return [slot.made.mig_uuid for slot in self.slots if slot.made is not None and slot.made.mig_uuid]

    def become(self, state: AllocationState, reason: str = "") -> None:
        for slot in self.slots:
            slot.become(state, reason)


def attempt(allocation: Allocation) -> str:
    """The try that an allocation belongs to, by its id: a pod that is promised slices anew has others."""
    return allocation.id.rpartition("-")[0]
