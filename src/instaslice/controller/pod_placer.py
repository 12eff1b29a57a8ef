"""Where a pod would go: which node, which GPUs, or why nowhere. Answers questions and reserves nothing.

A node must admit the pod (state, taints, labels), have the CPU, memory and devices, pass the scheduler's other filters,
and its GPUs must have room. The policy chooses the GPUs.
"""

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress

from instaslice.controller import node_admission
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.pod_request import PodRequest, PodRequests
from instaslice.controller.reservations import Reservation
from instaslice.kube.core import Pod
from instaslice.placement import Choice, Demand, FleetError, NodeName, NodeSet, Placer, Plan, Refusal
from instaslice.placement.pools import bits


class PodPlacer:
    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._requests: dict[str, PodRequest] = {}
        self._factory = PodRequests(state.capacities, state.admission_changes, state.ledger.placer)
        self.held_for: Callable[[Pod], Hashable] = lambda _: None
        """Equal for pods for which the same places are held."""

    def request(self, pod: Pod) -> PodRequest:
        """What a pod asks for."""
        found = self._requests.get(pod.metadata.uid)
        if found is None:
            found = self._requests[pod.metadata.uid] = self._factory.of(
                pod, (self._state.filters.shape(pod), self.held_for(pod))
            )
        return found

    def queued_at(self, uid: str) -> float | None:
        """When a pod was first queued; None of one that was not, or asks for something else since."""
        known = self._requests.get(uid)
        return None if known is None else known.queued_at

    def forget(self, uid: str) -> PodRequest | None:
        """The pod is gone, or asks for something else: what it asked for until now."""
        return self._requests.pop(uid, None)

    def plan(self, pod: Pod) -> Plan | None:
        """Where the pod goes; None where it finds no room."""
        if self._state.filters.for_pod(pod).rules_out_all is not None:
            return None
        plans = (self._plan_of(pod, profiles) for profiles in self.request(pod).choices)
        return next((plan for plan in plans if plan is not None), None)

    def _plan_of(self, pod: Pod, profiles: Choice) -> Plan | None:
        index, verdict = self._state.ledger.fleet.index, self._state.filters.for_pod(pod)
        nodes = self.request(pod).nodes(index.all, profiles)
        if nodes and verdict.checks:
            nodes = sum(1 << bit for bit in bits(nodes) if verdict(index.name(bit)) is None)
        if not nodes:
            return None

        def among(name: NodeName) -> bool:
            bit = index.bit(name)
            return bit is not None and bool(nodes >> bit & 1)

        prefers = self._state.filters.preferences(pod, map(index.name, bits(nodes)))
        plan = self._state.ledger.placer.place(Demand(profiles, among, prefers))
        return plan if isinstance(plan, Plan) else None

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why a waiting pod finds no room now. Read its message before anything changes."""
        if self.plan(pod) is not None:
            return None
        answer = self.ignoring_our_resources(pod)
        if isinstance(answer, Plan):
            # Its GPUs have room, but the node advertises less than they hold, or pods run there whose slices are lost
            # and are still counted. Said only then, as a message about GPUs says more.
            answer = self._place(pod, self.request(pod).fits, self._state.ledger.placer)
        return answer if isinstance(answer, Refusal) else None

    def ignoring_our_resources(self, pod: Pod) -> Plan | Refusal:
        """Where the pod would go if nobody counted our own resources."""
        return self._place(pod, self.request(pod).fits_other_amounts, self._state.ledger.placer)

    def could_admit(self, pod: Pod, name: NodeName) -> bool:
        """Whether a node would admit the pod if nothing ran there."""
        return self.could_suffice(pod, name) and self._state.filters.for_pod(pod)(name, emptied=True) is None

    def could_suffice(self, pod: Pod, name: NodeName) -> bool:
        """The same, whatever volumes and other pods elsewhere say."""
        node = self._state.nodes.get(name)
        if node is None or node_admission.refusal(pod, node) is not None:
            return False
        return self._state.capacities.could_hold(name, self.request(pod).amounts)

    def needed_by_any(self, reservation: Reservation, pods: Iterable[Pod]) -> bool:
        """Whether one of these pods would find room if this reservation were released."""
        ledger, capacities = self._state.ledger, self._state.capacities
        node = ledger.fleet.nodes.get(reservation.node)
        if node is None:
            return False
        emptied = ledger.fleet.copy_of(node)
        with suppress(FleetError):  # a closed GPU helps nobody
            for tracked in reservation.allocations:
                emptied.release(tracked.grant)
        placer = Placer(emptied, ledger.placer.policy)
        capacities.discharge(reservation.uid)
        try:
            return any(self._would_fit(pod, placer) for pod in pods)
        finally:
            amounts = self.request(self._state.pods[reservation.uid]).amounts
            capacities.charge(reservation.uid, reservation.node, amounts)

    def _would_fit(self, pod: Pod, placer: Placer) -> bool:
        request = self.request(pod)
        if not any(name in request.admitted for name in placer.fleet.nodes):
            return False
        return isinstance(self._place(pod, request.fits, placer), Plan)

    def _place(self, pod: Pod, fitting: NodeSet, placer: Placer) -> Plan | Refusal:
        request, verdict = self.request(pod), self._state.filters.for_pod(pod)

        def admits(name: NodeName) -> bool:
            return name in request.admitted and name in fitting and verdict(name) is None

        return first_plan(placer, request.demands(admits))


def first_plan(placer: Placer, demands: Iterable[Demand]) -> Plan | Refusal:
    """The plan of the first demand that fits; the refusal of the first where none does."""
    refusal: Refusal | None = None
    for demand in demands:
        answer = placer.place(demand)
        if isinstance(answer, Plan):
            return answer
        refusal = refusal or answer
    assert refusal is not None, "a pod has at least one demand"
    return refusal
