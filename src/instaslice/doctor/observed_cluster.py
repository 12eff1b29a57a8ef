"""What the API server holds at one moment, and what the rules ask of it: allocations by pod, pods past their gate."""

from functools import cached_property
from typing import NamedTuple

from instaslice.api.instaslice import Allocation, AllocationState, Instaslice, PreparedSlice, SliceState
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.doctor.requested import gated, requests_slices
from instaslice.geometry import Placement
from instaslice.kube.core import Node, Pod
from instaslice.kube.meta import key_of


class HeldAllocation(NamedTuple):
    """An allocation, its node, and what the agent reports of its slice."""

    node: str
    allocation: Allocation
    prepared: PreparedSlice | None

    @property
    def deleting(self) -> bool:
        return self.allocation.state in (AllocationState.DELETING, AllocationState.DELETED)

    @property
    def slice_deleted(self) -> bool:
        """The agent reports that nothing is left on the GPU. An allocation that the spec calls deleted can still be."""
        return self.prepared is not None and self.prepared.state is SliceState.DELETED

    @property
    def created(self) -> bool:
        return self.prepared is not None and self.prepared.state is SliceState.CREATED

    @property
    def mask(self) -> int:
        """The memory slices that it takes."""
        return Placement(self.allocation.profile, self.allocation.start, self.allocation.size).mask

    def __str__(self) -> str:
        a = self.allocation
        return f"{a.profile} at {a.start} of {a.gpu} for pod {a.pod.namespace}/{a.pod.name} ({a.id}, {a.state})"


class ObservedCluster(ClusterSnapshot):
    @cached_property
    def pods_by_uid(self) -> dict[str, Pod]:
        return {pod.metadata.uid: pod for pod in self.pods}

    @cached_property
    def nodes_by_name(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def instaslices_by_name(self) -> dict[str, Instaslice]:
        return {instaslice.metadata.name: instaslice for instaslice in self.instaslices}

    @cached_property
    def allocations(self) -> list[HeldAllocation]:
        """Every allocation of every node."""
        return [held for instaslice in self.instaslices for held in allocations_of(instaslice)]

    @cached_property
    def allocations_by_pod(self) -> dict[str, list[HeldAllocation]]:
        """By the pod's uid, those that are not being deleted."""
        found: dict[str, list[HeldAllocation]] = {}
        for held in self.allocations:
            if not held.deleting:
                found.setdefault(held.allocation.pod.uid, []).append(held)
        return found

    @cached_property
    def running(self) -> list[Pod]:
        """Slice pods past their gate that have not ended: a container may use a slice now, or start to at any time."""
        return [pod for pod in self.pods if requests_slices(pod) and not gated(pod) and not pod.ended]

    def node_ready(self, node: str) -> bool:
        """Where a node is gone or not ready, pods and slices can diverge until it is back."""
        found = self.nodes_by_name.get(node)
        return found is not None and found.ready


def allocations_of(instaslice: Instaslice) -> list[HeldAllocation]:
    prepared = {each.id: each for each in instaslice.status.slices}
    name = instaslice.metadata.name
    return [HeldAllocation(name, each, prepared.get(each.id)) for each in instaslice.spec.allocations]


def object_name(thing: Pod | Node | Instaslice) -> str:
    return f"{type(thing).__name__.lower()} {key_of(thing)}"
