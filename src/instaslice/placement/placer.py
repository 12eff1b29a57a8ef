"""Places all slices of a pod, or none. The controller and the simulator place through this class only.

Reads the fleet through a policy; nothing is held before `commit`.
"""

from collections.abc import Iterable
from weakref import WeakValueDictionary

from instaslice.placement.colocation import NodeFit, on_one_node
from instaslice.placement.demands import Demand, Grant, Plan, Share, Want
from instaslice.placement.errors import FleetError
from instaslice.placement.fleet import Fleet
from instaslice.placement.grants import grant_at, share_grant
from instaslice.placement.moves import Rearrangement
from instaslice.placement.node_sets import NodeSet
from instaslice.placement.policy import Policy
from instaslice.placement.refusals import Refusal


class Placer:
    """Places demands on a fleet by a policy. Not thread-safe; never blocks."""

    def __init__(self, fleet: Fleet, policy: Policy) -> None:
        self.fleet = fleet
        self.policy = policy
        self._fitting_nodes: WeakValueDictionary[tuple[Want, ...], NodeSet] = WeakValueDictionary()

    def fitting_nodes(self, wants: tuple[Want, ...]) -> NodeSet:
        """The nodes on which all of it fits. Hold the result as long as a pod waits for this: the cache is weak."""
        key = tuple(sorted(wants, key=str))
        found = self._fitting_nodes.get(key)
        if found is None:
            found = self._fitting_nodes[key] = NodeSet(self.fleet.changes, NodeFit(self.fleet, key).on)
        return found

    def arrived(self, demand: Demand) -> None:
        """Notify the policy of what is asked for: once per pod when it arrives, not each time it is tried."""
        for want in demand.wants:
            if isinstance(want, str):
                self.policy.arrived(want)

    def place(self, demand: Demand) -> Plan | Refusal:
        """All slices of one pod on one node, or none.

        Reads only; nothing is held until `commit(plan)`, and a plan is valid until the fleet changes. A Refusal says
        what is short as text fit for an Event, and is exact: no admitted node could have held all of the demand.
        """
        if len(demand.wants) == 1:
            grant = self._one(demand)
            return Plan((grant,)) if grant is not None else Refusal(self.fleet, self.policy, demand)
        grants = on_one_node(self.fleet, self.policy, demand) if demand.wants else None
        return Plan(grants) if grants is not None else Refusal(self.fleet, self.policy, demand)

    def commit(self, plan: Plan) -> None:
        """Hold all grants of a plan. Raises NotFree, and holds nothing, if the plan is stale."""
        self._exchange((), plan.grants)

    def release(self, grants: Iterable[Grant]) -> None:
        """Release what was held. Raises NotHeld, and releases nothing, if one of them is not held."""
        self._exchange(grants, ())

    def rearrange(self, found: Rearrangement) -> None:
        """Make the moves and hold the plan that they make room for. Raises NotFree or NotHeld, and changes nothing,
        if it is stale."""
        self._exchange((move.old for move in found.moves), (*found.plan.grants, *(move.new for move in found.moves)))

    def _exchange(self, old: Iterable[Grant], new: Iterable[Grant]) -> None:
        given: list[Grant] = []
        taken: list[Grant] = []
        try:
            for grant in old:
                self.fleet.release(grant)
                given.append(grant)
            for grant in new:
                self.fleet.take(grant)
                taken.append(grant)
        except FleetError:
            for grant in taken:
                self.fleet.release(grant)
            for grant in given:
                self.fleet.take(grant)
            raise

    def _one(self, demand: Demand) -> Grant | None:
        (want,) = demand.wants
        if isinstance(want, Share):
            return share_grant(self.fleet, want, demand.admits)
        candidate = self.policy.first(self.fleet, want, demand.admits, demand.prefers)
        return None if candidate is None else grant_at(self.fleet, *candidate)
