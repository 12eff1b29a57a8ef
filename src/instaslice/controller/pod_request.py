"""What a pod asks for, worked out once: its slices, what it needs beside them, and which nodes could take it."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from instaslice.api.pods import NeededSlice, needed_slices
from instaslice.controller import node_admission
from instaslice.controller.node_capacity import NodeCapacities
from instaslice.controller.requests import Amounts, effective, split
from instaslice.errors import InstasliceError
from instaslice.kube.core import Pod
from instaslice.placement import Admits, Changes, Demand, NodeName, NodeSet, Placer, Prefers, RequestKey


@dataclass(slots=True)
class PodRequest:
    slices: tuple[NeededSlice, ...]
    amounts: Amounts
    """What kube-scheduler counts for it."""
    other_amounts: Amounts
    """Of these, what is not ours."""
    our_amounts: Amounts
    key: RequestKey
    """Equal for pods that would get, or be refused, the same."""
    admitted: NodeSet
    """The nodes whose state, taints and labels let it in."""
    fits_other_amounts: NodeSet
    """The nodes that have what it needs beside its slices."""
    fits: NodeSet
    """The same, only where the scheduler would bind it too: it counts our resources by pods, we count slots."""
    with_room: NodeSet
    """The nodes whose GPUs have room for its slices."""
    queued_at: float | None = None
    """When it was first queued."""
    invalid: str = ""
    """Why it makes no sense; it has no slices then."""

    @property
    def profiles(self) -> tuple[str, ...]:
        return tuple(want.profile for want in self.slices)

    @property
    def cpu(self) -> int:
        return self.amounts.get("cpu", 0)

    @property
    def memory(self) -> int:
        return self.amounts.get("memory", 0)

    def nodes(self, among: int) -> int:
        """Of these nodes, those that could take it now."""
        admitted = self.admitted.among(among)
        fitting = self.fits.among(admitted) if admitted else 0
        return self.with_room.among(fitting) if fitting else 0

    def demand(self, admits: Admits | None = None, prefers: Prefers | None = None) -> Demand:
        return Demand(self.profiles, admits, prefers)


class PodRequests:
    """Works them out. Pods that ask the same of a node share what is known of the nodes."""

    def __init__(self, capacities: NodeCapacities, admission_changes: Changes, placer: Placer) -> None:
        """`admission_changes` records every node whose state, taints or labels change."""
        self._capacities = capacities
        self._admission_changes = admission_changes
        self._placer = placer
        self._admitted: WeakValueDictionary[bytes, NodeSet] = WeakValueDictionary()
        self._fits: WeakValueDictionary[tuple[tuple[str, int], ...], NodeSet] = WeakValueDictionary()

    def of(self, pod: Pod, filtered: Hashable = None) -> PodRequest:
        """`filtered` is what else the scheduler's filters look at, equal for pods that they judge alike."""
        bad = ""
        amounts: Amounts = {}
        wants: tuple[NeededSlice, ...] = ()
        try:
            amounts, wants = effective(pod), needed_slices(pod)
        except InstasliceError as error:
            bad = str(error)
        needs, ours = split(amounts)
        profiles = tuple(want.profile for want in wants)
        # In the order of the containers, which says which slice is whose.
        affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
        near = affinity.required if affinity else None
        where = msgspec.json.encode((pod.spec.node_selector, near, pod.spec.tolerations))
        return PodRequest(
            slices=wants,
            amounts=amounts,
            other_amounts=needs,
            our_amounts=ours,
            key=(profiles, tuple(sorted(amounts.items())), where, filtered),
            admitted=self._admitting(where, pod),
            fits_other_amounts=self._fitting(needs),
            fits=self._fitting(amounts),
            with_room=self._placer.fitting_nodes(profiles),
            invalid=bad,
        )

    def _admitting(self, where: bytes, pod: Pod) -> NodeSet:
        found = self._admitted.get(where)
        if found is None:
            # Any pod that looks for the same nodes will do.
            found = self._admitted[where] = NodeSet(self._admission_changes, partial(self._admits, pod))
        return found

    def _admits(self, pod: Pod, name: NodeName) -> bool:
        node = self._capacities.nodes.get(name)
        return node is not None and node_admission.refusal(pod, node) is None

    def _fitting(self, amounts: Amounts) -> NodeSet:
        key = tuple(sorted(amounts.items()))
        found = self._fits.get(key)
        if found is None:
            found = self._fits[key] = NodeSet(self._capacities.changes, partial(self._capacities.fits, amounts=amounts))
        return found
