"""What is said of a pod: its condition and its Event, from what is."""

from collections import Counter
from dataclasses import dataclass

from instaslice.api import names
from instaslice.api.pods import gated, held_by_others, unbound
from instaslice.controller import node_admission
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.ledger import NodeRecord
from instaslice.controller.pod_request import PodRequest
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.reservations import Reservation
from instaslice.kube.core import Pod
from instaslice.placement import GpuId, NodeName, Plan, Short

MOST_NODES = 3
"""Reasons of nodes that a message names."""
FULL = "has no room for the slices on its GPUs"


@dataclass(frozen=True, slots=True)
class PodCondition:
    """`reason` is what the condition calls its reason: another kind is told at once, the same kind again is not."""

    ready: bool
    reason: str
    message: str
    warning: bool = False
    message_matters: bool = False
    """Whether another message is told at once too: it names an object, and a remedy that may be carried out by now."""


def condition_of(dispatcher: Dispatcher, uid: str) -> PodCondition | None:
    """What to say of a pod now; None where there is nothing to say."""
    pod = dispatcher.pods.get(uid)
    if pod is None or pod.ended:
        return None
    if aside := dispatcher.quarantine.why(ObjectKind.POD, uid):
        told = f"InstaSlice cannot handle this pod and leaves it alone, with all it holds, until it changes: {aside}"
        return PodCondition(False, "SetAside", told, warning=True)
    reservation = dispatcher.ledger.reservations.get(uid)
    if reservation is None:
        return _without(dispatcher, pod)
    if gated(pod):
        where = f"{_listed(dispatcher, reservation)} on node {reservation.node}"
        if reservation.created and reservation.ungate_refused:
            why = reservation.ungate_refused
            told = f"{where}: made, but the gate stays, as the API server refuses its removal: {why}"
            return PodCondition(False, "UngateRefused", told, warning=True)
        unready = dispatcher.ledger.nodes[reservation.node].unready
        if reservation.created and unready:
            return PodCondition(False, "NodeNotServing", f"{where}: made, but no pod can start there now: {unready}")
        done = "made, and about to be let go" if reservation.created else "being made"
        return PodCondition(False, "Creating", f"{where}: {done}")
    if reservation.overdue and not pod.spec.node_name:
        message = (
            f"not bound to node {reservation.node} ({unbound(pod)}); keeps its slices until another pod needs them"
        )
        return PodCondition(False, "NotBound", message, warning=True)
    return _running(dispatcher, reservation)


def _without(dispatcher: Dispatcher, pod: Pod) -> PodCondition | None:
    uid = pod.metadata.uid
    if not gated(pod):
        name = pod.spec.node_name
        node = dispatcher.nodes.get(NodeName(name))
        told = "its slices are not known any more: the Instaslice object of its node was deleted, or its GPU is gone"
        sent = pod.metadata.annotations.get(names.NODE, name)
        if name and name != sent:
            told = f"it was bound to node {name}, past the scheduler: its slices were on node {sent}, and were given up"
        elif name and (node is None or not node.ready):
            told = f"node {name} is {'gone' if node is None else 'not ready'}: the slices there were given up"
        return PodCondition(False, "SliceLost", told, warning=True)
    if others := held_by_others(pod):
        return PodCondition(False, "Gated", f"waits for other gates first: {', '.join(others)}")
    if bad := dispatcher.request(pod).invalid:
        return PodCondition(False, "BadRequest", f"{bad}; delete the pod and ask for slices that exist", warning=True)
    if why := dispatcher.backing_off.get(uid):
        return PodCondition(False, "Waiting", f"{why}; it is placed again in a while")
    if uid not in dispatcher.queue:
        return None
    if held := dispatcher.filters.for_pod(pod).everywhere:
        return PodCondition(False, "WaitingForVolume", held, message_matters=True)
    refusal = dispatcher.refusal(uid)
    if refusal is None:
        return None
    message = str(refusal)
    if refusal.short is Short.NODES:
        message += f" ({nodes_short(dispatcher, pod, dispatcher.request(pod))})"
    if broken := out_of_use(dispatcher, pod):
        message += f"; out of use: {broken}"
    return PodCondition(False, "Waiting", message)


def _running(dispatcher: Dispatcher, reservation: Reservation) -> PodCondition:
    if failed := reservation.failed:
        return PodCondition(False, "SliceLost", failed, warning=True)
    closed = dispatcher.ledger.nodes[reservation.node].closed
    sick = [closed[gpu]["health"] for gpu in _gpus(reservation) if "health" in closed.get(gpu, {})]
    if sick:
        return PodCondition(False, "GpuUnhealthy", "; ".join(sick), warning=True)
    return PodCondition(True, "SliceReady", f"{_listed(dispatcher, reservation)} on node {reservation.node}")


def _gpus(reservation: Reservation) -> list[GpuId]:
    return list(dict.fromkeys(tracked.grant.gpu for tracked in reservation.allocations))


def _numbers(record: NodeRecord) -> dict[GpuId, int]:
    return {gpu: index for index, gpu in enumerate(record.gpus)}


def _listed(dispatcher: Dispatcher, reservation: Reservation) -> str:
    numbers = _numbers(dispatcher.ledger.nodes[reservation.node])
    return ", ".join(
        f"{tracked.allocation.profile} at {tracked.allocation.start} of GPU {numbers.get(tracked.grant.gpu, '?')}"
        for tracked in reservation.allocations
    )


def nodes_short(dispatcher: Dispatcher, pod: Pod, request: PodRequest) -> str:
    """Why nodes do not take a pod, `2 nodes: is cordoned; gpu-1: cpu: …`: first those that would but for what they
    lack, then those that keep it out or that it does not want, the most frequent reasons first."""
    near: Counter[str] = Counter()
    far: Counter[str] = Counter()
    example: dict[str, NodeName] = {}
    # Where GPUs have room and it waits all the same, it waits for what the scheduler counts.
    counted = request.amounts if isinstance(dispatcher.fits_beside(pod, request), Plan) else request.other_amounts
    for name in dispatcher.ledger.nodes:
        node = dispatcher.nodes.get(name)
        aside = dispatcher.quarantine.why(ObjectKind.NODE, name)
        missing = f"is set aside: {aside}" if aside else "is gone"
        out = missing if node is None else node_admission.refusal(pod, node)
        told = out or dispatcher.capacities.short(name, counted) or dispatcher.filters.for_pod(pod)(name) or FULL
        (far if out else near)[told] += 1
        example.setdefault(told, name)
    why = [*near.most_common(), *far.most_common()]
    parts = [f"{count} nodes: {told}" if count > 1 else f"{example[told]}: {told}" for told, count in why]
    more = len(parts) - MOST_NODES
    return "; ".join(parts[:MOST_NODES]) + (f"; and {more} more" if more > 0 else "")


def out_of_use(dispatcher: Dispatcher, pod: Pod) -> str:
    """What would be there for a pod if it were well: GPUs that are closed and places that failed, and why."""
    parts: list[str] = []
    for name, record in dispatcher.ledger.nodes.items():
        failed = {
            tracked.grant: tracked.create_error for tracked in record.allocations.values() if tracked.create_error
        } | record.quarantined
        node = dispatcher.nodes.get(name)
        if not (failed or record.closed) or node is None or node_admission.refusal(pod, node):
            continue
        if record.unready:
            parts.append(f"node {name} ({record.unready})")
            continue
        numbers = _numbers(record)
        parts += [
            f"GPU {numbers[gpu]} of {name} ({'; '.join(reasons.values())})" for gpu, reasons in record.closed.items()
        ]
        parts += [
            f"{place.want} at {place.start} of GPU {numbers.get(place.gpu, '?')} of {name} ({reason})"
            for place, reason in failed.items()
            if place.gpu not in record.closed
        ]
    more = len(parts) - MOST_NODES
    return ", ".join(parts[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")
