"""What the ledger knows of one node, and what one report of its agent changed."""

from dataclasses import dataclass, field
from datetime import datetime

from instaslice.api.instaslice import EMPTY_STATUS, InstasliceSpec, InstasliceStatus
from instaslice.controller.reservations import TrackedAllocation
from instaslice.geometry import Model
from instaslice.placement import GpuId, Grant, NodeName


@dataclass(slots=True)
class NodeRecord:
    """One node: its allocations by id, and what else takes room on its GPUs."""

    name: NodeName
    created: datetime | None = None
    """When its Instaslice object was."""
    status: InstasliceStatus = EMPTY_STATUS
    """The last report of its agent."""
    allocations: dict[str, TrackedAllocation] = field(default_factory=dict)
    """What the spec lists. The fleet holds those on `gpus`."""
    gpus: dict[GpuId, Model] = field(default_factory=dict)
    """Its GPUs in the fleet."""
    unusable: dict[GpuId, str] = field(default_factory=dict)
    """Reported GPUs on which nothing is placed because of what the report says of them, and why. Allocations on them
    stay: who has a slice keeps it."""
    foreign_slices: dict[str, Grant] = field(default_factory=dict)
    """Slices on the hardware without an allocation, by their id in the status."""
    quarantined: dict[Grant, str] = field(default_factory=dict)
    """Placements that failed, and why: held without a pod, so that none is sent there."""
    boot_id: str | None = None
    unreadable: bool = False
    """Whether the object cannot be read as it is now: the record is what it was before."""
    unready: str = ""
    """Why no pod could start there: its agent says so, or does not run."""

    def spec(self) -> InstasliceSpec:
        return InstasliceSpec(allocations=tuple(tracked.allocation for tracked in self.allocations.values()))

    def pods_on(self, gpu: GpuId) -> set[str]:
        return {each.allocation.pod.uid for each in self.allocations.values() if each.allocation.gpu == gpu}


@dataclass(slots=True)
class LedgerChanges:
    """What a report changed."""

    pods: set[str] = field(default_factory=set)
    """Pods to reconcile."""
    freed: bool = False
    """Whether there may be more room than before."""
    quarantined: list[Grant] = field(default_factory=list)
    nodes: set[NodeName] = field(default_factory=set)
    """Nodes other than the reported one whose spec may have changed."""

    def add(self, more: "LedgerChanges") -> None:
        self.pods |= more.pods
        self.freed |= more.freed
        self.quarantined += more.quarantined
        self.nodes |= more.nodes
