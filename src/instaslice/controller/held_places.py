"""Places on GPUs that are held for pods that do not exist yet.

Held in the fleet alone, so that nothing else is placed there: no agent creates a slice before a pod has come for it.
Part of the ledger, which says when a GPU goes. Pure.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from instaslice.placement import GpuId, Grant, Placer, Plan


class HeldPlace(NamedTuple):
    """Where one pod will go, and for whom that is held, in words: "workload team-a/train"."""

    plan: Plan
    owner: str


class HeldPlaces:
    """By an id of the caller's, one for each pod to come."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._places: dict[str, HeldPlace] = {}
        self.lost: Callable[[str], None] = lambda _: None
        """Called for each place that is held no more because its GPU has gone."""

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[HeldPlace]:
        return iter(self._places.values())

    def get(self, place: str) -> Plan | None:
        """None of one that is not held any more."""
        found = self._places.get(place)
        return None if found is None else found.plan

    def hold(self, place: str, plan: Plan, owner: str) -> None:
        """Raises NotFree, and holds nothing, if the plan is stale."""
        self._placer.commit(plan)
        self._places[place] = HeldPlace(plan, owner)

    def release(self, place: str) -> Plan | None:
        """What was held; None where nothing is any more. Safe to repeat."""
        found = self._places.pop(place, None)
        if found is None:
            return None
        self._placer.release(found.plan.grants)
        return found.plan

    def release_gpu(self, gpu: GpuId) -> None:
        """Before a GPU leaves the fleet: what comes back under its name may be another, and would be released for pods
        that hold it by then."""
        for place in [each for each, held in self._places.items() if any(on.gpu == gpu for on in held.plan.grants)]:
            self.release(place)
            self.lost(place)

    def grants(self) -> Iterator[Grant]:
        return (grant for held in self for grant in held.plan.grants)
