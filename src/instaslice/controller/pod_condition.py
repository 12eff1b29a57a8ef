"""What a pod's condition `gpu.das.com/SliceReady` says: whether its slices are ready, and if not, why it waits.

Pure: follows from the cluster's state. The condition writer puts it into the pod and says it in an Event; `explain`
quotes it.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from instaslice.api import names
from instaslice.api.instaslice import Allocation
from instaslice.api.memory_terms import Fit, unreadable_terms
from instaslice.api.pods import gated, other_gates, why_unbound
from instaslice.api.reasons import PodReason
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.feasible_nodes import (
    CORDONED,
    MOST_NODES,
    most_at_once,
    node_out,
    nodes_that_could_hold,
    nodes_that_could_hold_later,
    reasons_of_nodes,
    some,
    summary,
    without_numbers,
)
from instaslice.controller.ledger import HEALTH
from instaslice.controller.lifecycle import Phase
from instaslice.controller.node_record import NodeRecord
from instaslice.controller.pod_placer import PodPlacer
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.reservations import Reservation
from instaslice.kube.core import Pod
from instaslice.placement import GpuId, NodeName, Refusal, Short

MOST_LATER = 50
"""Nodes that would hold a pod later: so many are looked at, some are named."""


@dataclass(frozen=True, slots=True)
class PodCondition:
    """The condition SliceReady of a pod. Another `reason` is written at once, another message with it only where
    `substance` has changed."""

    ready: bool
    reason: PodReason
    message: str
    warning: bool = False
    message_matters: bool = False
    """Whether another message is written at once too: it names an object that may be another one by now."""
    substance: str = ""
    """Of a pod that waits: what is short, for programs. It stays the same while only numbers change."""


def condition_of(state: ClusterState, placer: PodPlacer, uid: str) -> PodCondition | None:
    """What to say of a pod now; None where there is nothing to say."""
    pod = state.pods.get(uid)
    if pod is None or pod.ended:
        return None
    if why := state.quarantine.why(ObjectKind.POD, uid):
        message = f"InstaSlice cannot handle this pod and leaves it alone, with all it holds, until it changes: {why}"
        return PodCondition(False, PodReason.SET_ASIDE, message, warning=True)
    reservation = state.ledger.reservations.get(uid)
    if reservation is not None:
        return _gated(state, reservation, pod) if gated(pod) else _ungated(state, reservation, pod)
    return _waiting(state, placer, pod) if gated(pod) else _lost(state, pod)


def _gated(state: ClusterState, reservation: Reservation, pod: Pod) -> PodCondition:
    """Its slices are reserved, and the gate is still there."""
    where = f"{_listed(state, reservation)} on node {reservation.node}"
    if reservation.phase(pod) is not Phase.CREATED:
        again = f" (placed again: {reservation.replaces})" if reservation.replaces else ""
        silent = "the agent there has not answered yet; " if reservation.unanswered else ""
        until = f"{silent}after {reservation.create_seconds:.0f} s the pod is placed elsewhere"
        return PodCondition(False, PodReason.CREATING, f"{where}: being created{again}; {until}", message_matters=True)
    if why := reservation.ungate_refused:
        message = f"{where}: created, but the gate stays, as the API server refuses its removal: {why}"
        return PodCondition(False, PodReason.UNGATE_REFUSED, message, warning=True)
    if unready := state.ledger.nodes[reservation.node].unready:
        message = f"{where}: created, but no pod can start there now: {unready}"
        return PodCondition(False, PodReason.NODE_NOT_SERVING, message)
    return PodCondition(False, PodReason.CREATING, f"{where}: created, and about to be ungated")


def _ungated(state: ClusterState, reservation: Reservation, pod: Pod) -> PodCondition:
    if reservation.overdue and not pod.spec.node_name:
        why = f"not bound to node {reservation.node} ({why_unbound(pod)})"
        return PodCondition(
            False, PodReason.NOT_BOUND, f"{why}; keeps its slices until another pod needs them", warning=True
        )
    if failed := reservation.failed:
        return _slice_lost(pod, failed)
    closed = state.ledger.closed(reservation.node)
    gpus = dict.fromkeys(tracked.grant.gpu for tracked in reservation.allocations)
    unhealthy = [closed[gpu][HEALTH] for gpu in gpus if HEALTH in closed.get(gpu, {})]
    if unhealthy:
        return PodCondition(False, PodReason.GPU_UNHEALTHY, "; ".join(unhealthy), warning=True)
    return PodCondition(True, PodReason.SLICE_READY, f"{_listed(state, reservation)} on node {reservation.node}")


def _slice_lost(pod: Pod, why: str) -> PodCondition:
    remedy = "; delete the pod, it cannot use a GPU any more" if pod.metadata.deletion_timestamp is None else ""
    return PodCondition(False, PodReason.SLICE_LOST, why + remedy, warning=True)


def _lost(state: ClusterState, pod: Pod) -> PodCondition:
    """It is past the gate, and no slices are known to be reserved for it."""
    name = pod.spec.node_name
    node, sent = state.nodes.get(NodeName(name)), pod.metadata.annotations.get(names.NODE, name)
    why = "its slices are not known any more: the Instaslice object of its node was deleted, or its GPU is gone"
    if name and name != sent:
        why = f"it was bound to node {name}, bypassing the scheduler: its slices were on node {sent}, and were released"
    elif name and (node is None or not node.ready):
        why = f"node {name} is {'gone' if node is None else 'not ready'}: the slices there were released"
    return _slice_lost(pod, why)


def _waiting(state: ClusterState, placer: PodPlacer, pod: Pod) -> PodCondition | None:
    """It has the gate, and no slices are reserved for it."""
    uid = pod.metadata.uid
    if others := other_gates(pod):
        return PodCondition(False, PodReason.GATED, f"waits for other gates first: {', '.join(others)}")
    if invalid := placer.request(pod).invalid:
        # An annotation can still be changed, and the message says to what.
        remedy = "" if unreadable_terms(pod.metadata.annotations) else "; delete the pod and ask for slices that exist"
        message = f"{invalid}{remedy}"
        return PodCondition(False, PodReason.BAD_REQUEST, message, warning=True)
    if why := state.backing_off.get(uid):
        return PodCondition(False, PodReason.WAITING, f"{why}; it is tried again after a backoff")
    if uid not in state.queue:
        return None
    if held := state.filters.for_pod(pod).rules_out_all:
        return PodCondition(False, PodReason.WAITING_FOR_VOLUME, held, message_matters=True)
    refusal = placer.refusal(pod)
    if refusal is None:
        return None
    wait = _Wait(state, placer, pod, refusal)
    return PodCondition(False, PodReason.WAITING, wait.message(), substance=wait.substance)


class WhyRefused(NamedTuple):
    """Why a pod finds no room; `never`: no node that is there could hold it, whatever ends."""

    message: str
    never: bool = False


def why_refused(state: ClusterState, placer: PodPlacer, pod: Pod, owner: str = "") -> WhyRefused:
    """Of a pod for which `placer.plan` found nothing, also of one that does not exist yet. `owner`: for whom places are
    held, which is not said to itself."""
    if invalid := placer.request(pod).invalid:
        return WhyRefused(invalid, never=True)
    if held := state.filters.for_pod(pod).rules_out_all:
        return WhyRefused(held)
    refusal = placer.refusal(pod)
    if refusal is None:
        return WhyRefused("it finds no room")
    wait = _Wait(state, placer, pod, refusal)
    return WhyRefused(wait.message(owner), wait.never)


def substance_of(state: ClusterState, placer: PodPlacer, uid: str) -> str | None:
    """The `substance` of a waiting pod's condition without its message, which costs more; None where it has none."""
    pod = state.pods[uid]
    if uid not in state.queue or state.filters.for_pod(pod).rules_out_all is not None:
        return None
    refusal = placer.refusal(pod)
    return None if refusal is None else _Wait(state, placer, pod, refusal).substance


class _Wait:
    """What a refused pod waits for."""

    def __init__(self, state: ClusterState, placer: PodPlacer, pod: Pod, refusal: Refusal) -> None:
        self._state = state
        self._placer = placer
        self._pod = pod
        self._refusal = refusal
        self._could = any(True for _ in nodes_that_could_hold(state, placer, pod))
        # A shortage on GPUs is explained by itself.
        by_node = refusal.short is Short.NODES or not self._could
        self._reasons = reasons_of_nodes(state, placer, pod) if by_node else []
        self._unusable = out_of_use(state, pod)

    @property
    def substance(self) -> str:
        """What is short, of which slice, whether any node could hold the pod, the kinds of reasons of the nodes, and
        what is out of use, with its numbers: they say which GPU somebody has to look after."""
        kinds = sorted({without_numbers(each.why) for each in self._reasons})
        could = "could hold" if self._could else "never"
        return "; ".join([self._refusal.short.name, self._refusal.about, could, *kinds, self._unusable])

    @property
    def never(self) -> bool:
        """Whether no node would hold it, even if empty, uncordoned and ready."""
        later = nodes_that_could_hold_later(self._state, self._placer, self._pod)
        return not self._could and next(later, None) is None

    def message(self, owner: str = "") -> str:
        held = held_for_workloads(self._state, besides=owner)
        return (
            self._why()
            + self._looser()
            + (f"; out of use: {self._unusable}" if self._unusable else "")
            + (f"; held for pods that are about to come: {held}" if held else "")
        )

    def _looser(self) -> str:
        """Where a pod waits for the tightest profile though a node could hold it with a larger one."""
        request = self._placer.request(self._pod)
        if request.models is None or not request.tight or len(request.any_choices) < 2:
            return ""
        asks = ", ".join(f"{each.ask.gb} GB" for each in request.slices if each.ask is not None)
        profiles = [profile for profile, each in zip(request.profiles, request.slices, strict=True) if each.ask]
        return (
            f"; {', '.join(profiles)} wastes least for {asks}: to take a larger slice where one is free, annotate the "
            f"pod with {names.FIT}={Fit.ANY}"
        )

    def _why(self) -> str:
        """Why no node takes it. What would help is said only where something would."""
        refusal = self._refusal
        nodes = f" ({summary(self._reasons)})" if refusal.short is Short.NODES else ""
        if self._could:
            return f"{refusal}{nodes}"
        later = nodes_that_could_hold_later(self._state, self._placer, self._pod)
        if names_later := list(islice(later, MOST_LATER)):
            if all(node_out(self._state, self._pod, name) == CORDONED for name in names_later):
                return f"every node that could hold it is cordoned ({some(names_later)}): uncordon one, or add a node"
            unavailable = [each for each in self._reasons if each.node in names_later]
            return f"no node that could hold it is available ({summary(unavailable)})"
        if refusal.short in (Short.PROFILE, Short.GPUS):
            return refusal.reason
        request = self._placer.request(self._pod)
        profiles = request.profiles
        most = max((most_at_once(self._state, profiles, name) for name in self._state.ledger.nodes), default=0)
        if 0 < most < len(profiles):
            asked_for = Counter(each.profile for each in request.slices)
            asked = ", ".join(f"{count} x {profile}" for profile, count in asked_for.items())
            return (
                f"asks for {asked} on one node, and the GPUs of no node hold more than {most} of the {len(profiles)} "
                "slices, even if empty: ask for less, or add a node that does"
            )
        if all(each.out for each in self._reasons):
            return f"{refusal.reason}{nodes}; change what it selects or tolerates, or add a node"
        return f"{refusal.reason}{nodes}; no node would hold it, even if empty: ask for less, or add a node that does"


def out_of_use(state: ClusterState, pod: Pod) -> str:
    """What a pod could use if it were healthy: closed GPUs and placements that failed, and why."""
    parts: list[str] = []
    for name, record in state.ledger.nodes.items():
        failed = {each.grant: each.create_error for each in record.allocations.values() if each.create_error}
        failed |= record.quarantined
        closed = state.ledger.closed(name)
        disputed = {
            GpuId(gpu.uuid): gpu
            for gpu in record.status.gpus
            if gpu.uuid in record.unusable and gpu.uuid not in record.gpus
        }
        if not (failed or closed or disputed) or node_out(state, pod, name):
            continue
        if record.unready:
            parts.append(f"node {name} ({record.unready})")
            continue
        numbers = _numbers(record)
        parts += [f"GPU {gpu.index} of {name} ({record.unusable[uuid]})" for uuid, gpu in disputed.items()]
        parts += [f"GPU {numbers[gpu]} of {name} ({'; '.join(why.values())})" for gpu, why in closed.items()]
        parts += [
            f"{grant.want} at {grant.start} of GPU {numbers.get(grant.gpu, '?')} of {name} ({why})"
            for grant, why in failed.items()
            if grant.gpu not in closed
        ]
    more = len(parts) - MOST_NODES
    return ", ".join(parts[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")


def held_for_workloads(state: ClusterState, besides: str = "") -> str:
    """Places that are free and that no other pod gets."""
    owners = Counter(each.owner for each in state.ledger.held if each.owner != besides)
    parts = [f"{'1 place' if count == 1 else f'{count} places'} of {owner}" for owner, count in owners.most_common()]
    more = len(parts) - MOST_NODES
    return ", ".join(parts[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")


def _listed(state: ClusterState, reservation: Reservation) -> str:
    numbers = _numbers(state.ledger.nodes[reservation.node])
    return ", ".join(
        f"{_slice_of(tracked.allocation)} at {tracked.allocation.start} of GPU {numbers.get(tracked.grant.gpu, '?')}"
        for tracked in reservation.allocations
    )


def _slice_of(allocation: Allocation) -> str:
    return allocation.profile + (f" for {allocation.asked_gb} GB" if allocation.asked_gb else "")


def _numbers(record: NodeRecord) -> dict[GpuId, int]:
    return {gpu: index for index, gpu in enumerate(record.gpus)}
