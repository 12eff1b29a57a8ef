"""What a pod asks for, worked out once: its slices, what it needs beside them, and which nodes could take it.

Only the profiles of slices that are asked for by memory are looked up each time: they follow from the nodes.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from instaslice.api.memory_terms import Fit, fit_of
from instaslice.api.pods import NeededSlice, needed_slices
from instaslice.controller import node_admission
from instaslice.controller.node_capacity import NodeCapacities
from instaslice.controller.requests import Amounts, effective, split
from instaslice.errors import InstasliceError
from instaslice.kube.core import Pod
from instaslice.placement import (
    Admits,
    Changes,
    Choice,
    Demand,
    NodeModels,
    NodeName,
    NodeSet,
    Placer,
    RequestKey,
    UsableModels,
    choices,
)


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
    room_for: Callable[[Choice], NodeSet]
    """The nodes whose GPUs have room for its slices, with these profiles."""
    models: Callable[[], frozenset[NodeModels]] | None = None
    """Where it asks by memory: the GPUs of the nodes that admit it and would hold it if nothing ran there."""
    all_models: Callable[[], frozenset[NodeModels]] | None = None
    """The same of all nodes, whatever keeps it from them, with GPUs that are closed: for messages."""
    tight: bool = True
    """Whether an ask by memory waits for the profile that wastes least."""
    queued_at: float | None = None
    """When it was first queued."""
    invalid: str = ""
    """Why it makes no sense; it has no slices then."""

    _rooms: dict[Choice, NodeSet] = field(default_factory=dict)
    """Held as long as the request: others share them."""

    def __post_init__(self) -> None:
        if self.models is None:
            self._room(self.profiles)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The profiles that its slices may have now, the first choice first; none where no node could hold what it asks
        for by memory. With `tight` it gets the first or waits."""
        return self._choices(self.tight)

    @property
    def any_choices(self) -> tuple[Choice, ...]:
        """The same for a pod that would take any slice that is large enough."""
        return self._choices(tight=False)

    def _choices(self, tight: bool) -> tuple[Choice, ...]:
        if self.models is None:
            return (tuple(want.profile for want in self.slices),)
        return choices(tuple(want.ask or want.profile for want in self.slices), self.models(), tight)

    @property
    def explained_choices(self) -> tuple[Choice, ...]:
        """For messages: its choices; where it has none, because no node admits it now or has the CPU, those that it
        would have if every node did. Nothing is placed by them."""
        if found := self.choices:
            return found
        if self.all_models is None:
            return ()
        return choices(tuple(want.ask or want.profile for want in self.slices), self.all_models(), tight=False)

    @property
    def profiles(self) -> Choice:
        """Its first choice. For messages, where no node could hold all of its slices: what each would be by itself; of
        one that no GPU has, what is asked for stands in place of a profile."""
        return next(iter(self.explained_choices), None) or tuple(map(self._by_itself, self.slices))

    def _by_itself(self, want: NeededSlice) -> str:
        if want.ask is None or self.all_models is None:
            return want.profile
        alone = choices((want.ask,), self.all_models(), tight=True)
        return alone[0][0] if alone else want.profile

    @property
    def cpu(self) -> int:
        return self.amounts.get("cpu", 0)

    @property
    def memory(self) -> int:
        return self.amounts.get("memory", 0)

    def nodes(self, among: int, profiles: Choice) -> int:
        """Of these nodes, those that could take it now with these profiles."""
        admitted = self.admitted.among(among)
        fitting = self.fits.among(admitted) if admitted else 0
        return self._room(profiles).among(fitting) if fitting else 0

    def demands(self, admits: Admits | None = None) -> list[Demand]:
        """One for each choice, to be tried in this order; one that nothing fits where there is no choice."""
        return [Demand(profiles, admits) for profiles in self.choices or (self.profiles,)]

    def _room(self, profiles: Choice) -> NodeSet:
        found = self._rooms.get(profiles)
        if found is None:
            found = self._rooms[profiles] = self.room_for(profiles)
        return found


class PodRequests:
    """Works them out. Pods that ask the same of a node share what is known of the nodes."""

    def __init__(self, capacities: NodeCapacities, admission_changes: Changes, placer: Placer) -> None:
        """`admission_changes` records every node whose state, taints or labels change."""
        self._capacities = capacities
        self._admission_changes = admission_changes
        self._placer = placer
        self._usable = UsableModels(placer.fleet)
        self._present = UsableModels(placer.fleet, with_closed=True)
        self._admitted: WeakValueDictionary[bytes, NodeSet] = WeakValueDictionary()
        self._fits: WeakValueDictionary[tuple[tuple[str, int], ...], NodeSet] = WeakValueDictionary()
        self._could_hold: WeakValueDictionary[tuple[tuple[str, int], ...], NodeSet] = WeakValueDictionary()

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
        admitted, by_memory = self._admitting(where, pod), any(want.ask for want in wants)
        tight = not by_memory or fit_of(pod.metadata.annotations) is Fit.TIGHT
        return PodRequest(
            slices=wants,
            amounts=amounts,
            other_amounts=needs,
            our_amounts=ours,
            key=(profiles, tight, tuple(sorted(amounts.items())), where, filtered),
            admitted=admitted,
            fits_other_amounts=self._fitting(needs),
            fits=self._fitting(amounts),
            room_for=self._placer.fitting_nodes,
            models=partial(self._models, admitted, self._holding(amounts)) if by_memory else None,
            all_models=self._all_models if by_memory else None,
            tight=tight,
            invalid=bad,
        )

    def _models(self, admitted: NodeSet, could_hold: NodeSet) -> frozenset[NodeModels]:
        return frozenset(models for models, nodes in self._usable.nodes() if could_hold.among(admitted.among(nodes)))

    def _all_models(self) -> frozenset[NodeModels]:
        return frozenset(models for models, _ in self._present.nodes())

    def _holding(self, amounts: Amounts) -> NodeSet:
        """The nodes that would hold it if nothing ran there, as far as the scheduler counts."""
        key = tuple(sorted(amounts.items()))
        found = self._could_hold.get(key)
        if found is None:
            holds = partial(self._capacities.could_hold, amounts=amounts)
            found = self._could_hold[key] = NodeSet(self._capacities.changes, holds)
        return found

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
