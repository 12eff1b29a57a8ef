"""The places that are held for the pods of a workload, and which pod takes which.

A pod that is not there yet is counted on its node as if it were: its slot in the fleet, its CPU and memory, its labels.
When it comes, known by the annotation that Kueue gave it, its stand-in goes and it gets the same place.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from instaslice.api import names
from instaslice.api.pods import NeededSlice
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.pod_placer import PodPlacer
from instaslice.kube.core import Pod
from instaslice.placement import NodeName, Plan
from instaslice.placement.longest_waiting import RESERVED


@dataclass(slots=True, eq=False)
class WorkloadHold:
    """What is held for one workload."""

    namespace: str
    owner: str
    """In words, for those who find no room because of it."""
    places: dict[str, list[str]] = field(default_factory=dict)
    """The annotation HELD_FOR → the places for pods that have it."""

    def __len__(self) -> int:
        return sum(map(len, self.places.values()))


class WorkloadHolds:
    """By the workload's uid. Survives no restart: `decisions` holds again what is still due."""

    def __init__(self, state: ClusterState, placer: PodPlacer, freed: Callable[[], None]) -> None:
        """`freed` is called when others may have room that did not."""
        self._state = state
        self._placer = placer
        self._freed = freed
        self._holds: dict[str, WorkloadHold] = {}
        state.ledger.held.lost = self._lost

    def __contains__(self, uid: str) -> bool:
        return uid in self._holds

    def left(self, uid: str) -> int:
        """Places that no pod has taken yet."""
        found = self._holds.get(uid)
        return 0 if found is None else len(found)

    def nodes(self, uid: str) -> list[NodeName]:
        """Where they are, by name."""
        held = self._state.ledger.held
        plans = [held.get(each) for places in self._holds[uid].places.values() for each in places]
        return sorted({plan.node for plan in plans if plan is not None})

    # For workloads --------------------------------------------------------------------------------------------------

    def add(self, workload: str, owner: str, pod: Pod, held_for: str) -> bool:
        """Hold a place for one more pod of a workload. Whether there is one; where not, `forget` the pod in the end."""
        plan = self._placer.plan(pod)
        if plan is None:
            return False
        place, hold = pod.metadata.uid, self._holds.get(workload)
        if hold is None:
            hold = self._holds[workload] = WorkloadHold(pod.metadata.namespace, owner)
        self._state.ledger.held.hold(place, plan, owner)
        hold.places.setdefault(held_for, []).append(place)
        self._state.assign(pod, plan.node, self._placer.request(pod).amounts)
        self.forget(pod)
        return True

    def forget(self, pod: Pod) -> None:
        """Thousands of pods that never exist would be remembered."""
        self._placer.forget(pod.metadata.uid)
        self._state.filters.refresh(pod)

    def release(self, workload: str) -> None:
        """Hold nothing for it any more. Safe to repeat."""
        hold = self._holds.pop(workload, None)
        if hold is None or not len(hold):
            return
        for places in hold.places.values():
            for place in places:
                self._release(place)
        self._freed()

    # For pods -------------------------------------------------------------------------------------------------------

    def key(self, pod: Pod) -> Hashable:
        """Sets pods apart for which places are held: they fit where others that ask for the same were refused."""
        hold, held_for = self._of(pod)
        return held_for if hold is not None and hold.places.get(held_for) else None

    def take(self, pod: Pod) -> Plan | None:
        """The place that was held for this pod, which is free now: reserve it at once. None where there is none, or it
        cannot be used any more; it is then for others."""
        hold, held_for = self._of(pod)
        places = hold.places.get(held_for) if hold is not None else None
        if not places or self._state.filters.for_pod(pod).rules_out_all is not None:
            return None
        place = places.pop()
        plan = self._release(place)
        if plan is not None and self._can_use(pod, plan):
            return plan
        self._freed()
        return None

    def _of(self, pod: Pod) -> tuple[WorkloadHold | None, str]:
        held_for = pod.metadata.annotations.get(names.HELD_FOR, "")
        hold = self._holds.get(held_for.partition("/")[0]) if held_for else None
        # Anybody may write the annotation, but only into pods of his own namespace.
        return (hold, held_for) if hold is not None and hold.namespace == pod.metadata.namespace else (None, held_for)

    def _lost(self, place: str) -> None:
        held_for = place.rpartition("/")[0]
        self._holds[held_for.partition("/")[0]].places[held_for].remove(place)
        if self._state.unassign(place):
            self._freed()

    def _release(self, place: str) -> Plan | None:
        self._state.unassign(place)
        return self._state.ledger.held.release(place)

    def _can_use(self, pod: Pod, plan: Plan) -> bool:
        """Whether the pod may still go there: the node was cordoned since, say."""
        request, ledger, node = self._placer.request(pod), self._state.ledger, plan.node
        return (
            # Also where an ask by memory would be given another profile by now: this one was the best when it was held.
            len(request.slices) == len(plan.grants)
            and all(_suffices(str(grant.want), want) for want, grant in zip(request.slices, plan.grants, strict=True))
            and node in request.admitted
            and node in request.fits
            and self._state.filters.for_pod(pod)(node) is None
            # Reserved for another pod, the place is this one's all the same.
            and all(ledger.fleet.why_closed(grant.gpu).keys() <= {RESERVED} for grant in plan.grants)
        )


def _suffices(profile: str, want: NeededSlice) -> bool:
    return profile == want.profile if want.ask is None else want.ask.met_by(profile)
