"""What is said of a pod: its condition and its Event, from what is."""

from collections import Counter
from dataclasses import dataclass

from instaslice.api import names
from instaslice.controller import admission
from instaslice.controller.asks import Ask
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.ledger import Book
from instaslice.controller.promises import Promise
from instaslice.controller.quarantine import Kind
from instaslice.controller.wants import gated, held_by_others, unbound
from instaslice.kube.core import Pod
from instaslice.placement import GpuId, NodeName, Plan, Short

MOST_NODES = 3
"""Reasons of nodes that a message names."""
FULL = "has no room for the slices on its GPUs"


@dataclass(frozen=True, slots=True)
class Words:
    """`kind` is what the condition calls its reason: another kind is told at once, the same kind again is not."""

    ready: bool
    kind: str
    message: str
    warning: bool = False
    follows: bool = False
    """Whether another message is told at once too: it names an object, and a remedy that may be carried out by now."""


def words(dispatcher: Dispatcher, uid: str) -> Words | None:
    """What to say of a pod now; None where there is nothing to say."""
    pod = dispatcher.pods.get(uid)
    if pod is None or pod.ended:
        return None
    if aside := dispatcher.quarantine.why(Kind.POD, uid):
        told = f"InstaSlice cannot handle this pod and leaves it alone, with all it holds, until it changes: {aside}"
        return Words(False, "SetAside", told, warning=True)
    promise = dispatcher.ledger.promises.get(uid)
    if promise is None:
        return _without(dispatcher, pod)
    if gated(pod):
        where = f"{_listed(dispatcher, promise)} on node {promise.node}"
        if promise.created and promise.ungate_refused:
            told = f"{where}: made, but the gate stays, as the API server refuses its removal: {promise.ungate_refused}"
            return Words(False, "UngateRefused", told, warning=True)
        unready = dispatcher.ledger.books[promise.node].unready
        if promise.created and unready:
            return Words(False, "NodeNotServing", f"{where}: made, but no pod can start there now: {unready}")
        done = "made, and about to be let go" if promise.created else "being made"
        return Words(False, "Creating", f"{where}: {done}")
    if promise.overdue and not pod.spec.node_name:
        message = f"not bound to node {promise.node} ({unbound(pod)}); keeps its slices until another pod needs them"
        return Words(False, "NotBound", message, warning=True)
    return _running(dispatcher, promise)


def _without(dispatcher: Dispatcher, pod: Pod) -> Words | None:
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
        return Words(False, "SliceLost", told, warning=True)
    if others := held_by_others(pod):
        return Words(False, "Gated", f"waits for other gates first: {', '.join(others)}")
    if bad := dispatcher.ask(pod).bad:
        return Words(False, "BadRequest", f"{bad}; delete the pod and ask for slices that exist", warning=True)
    if why := dispatcher.held_back.get(uid):
        return Words(False, "Waiting", f"{why}; it is placed again in a while")
    if uid not in dispatcher.line:
        return None
    if held := dispatcher.filters.for_pod(pod).everywhere:
        return Words(False, "WaitingForVolume", held, follows=True)
    refusal = dispatcher.refusal(uid)
    if refusal is None:
        return None
    message = str(refusal)
    if refusal.short is Short.NODES:
        message += f" ({nodes_short(dispatcher, pod, dispatcher.ask(pod))})"
    if broken := out_of_use(dispatcher, pod):
        message += f"; out of use: {broken}"
    return Words(False, "Waiting", message)


def _running(dispatcher: Dispatcher, promise: Promise) -> Words:
    if failed := promise.failed:
        return Words(False, "SliceLost", failed, warning=True)
    closed = dispatcher.ledger.books[promise.node].closed
    sick = [closed[gpu]["health"] for gpu in _gpus(promise) if "health" in closed.get(gpu, {})]
    if sick:
        return Words(False, "GpuUnhealthy", "; ".join(sick), warning=True)
    return Words(True, "SliceReady", f"{_listed(dispatcher, promise)} on node {promise.node}")


def _gpus(promise: Promise) -> list[GpuId]:
    return list(dict.fromkeys(slot.grant.gpu for slot in promise.slots))


def _numbers(book: Book) -> dict[GpuId, int]:
    return {gpu: index for index, gpu in enumerate(book.gpus)}


def _listed(dispatcher: Dispatcher, promise: Promise) -> str:
    numbers = _numbers(dispatcher.ledger.books[promise.node])
    return ", ".join(
        f"{slot.allocation.profile} at {slot.allocation.start} of GPU {numbers.get(slot.grant.gpu, '?')}"
        for slot in promise.slots
    )


def nodes_short(dispatcher: Dispatcher, pod: Pod, ask: Ask) -> str:
    """Why nodes do not take a pod, `2 nodes: is cordoned; gpu-1: cpu: …`: first those that would but for what they
    lack, then those that keep it out or that it does not want, the most frequent reasons first."""
    near: Counter[str] = Counter()
    far: Counter[str] = Counter()
    example: dict[str, NodeName] = {}
    # Where GPUs have room and it waits all the same, it waits for what the scheduler counts.
    counted = ask.amounts if isinstance(dispatcher.fits_beside(pod, ask), Plan) else ask.needs
    for name in dispatcher.ledger.books:
        node = dispatcher.nodes.get(name)
        aside = dispatcher.quarantine.why(Kind.NODE, name)
        missing = f"is set aside: {aside}" if aside else "is gone"
        out = missing if node is None else admission.refusal(pod, node)
        told = out or dispatcher.rooms.short(name, counted) or dispatcher.filters.for_pod(pod)(name) or FULL
        (far if out else near)[told] += 1
        example.setdefault(told, name)
    why = [*near.most_common(), *far.most_common()]
    parts = [f"{count} nodes: {told}" if count > 1 else f"{example[told]}: {told}" for told, count in why]
    more = len(parts) - MOST_NODES
    return "; ".join(parts[:MOST_NODES]) + (f"; and {more} more" if more > 0 else "")


def out_of_use(dispatcher: Dispatcher, pod: Pod) -> str:
    """What would be there for a pod if it were well: GPUs that are closed and places that failed, and why."""
    parts: list[str] = []
    for name, book in dispatcher.ledger.books.items():
        failed = {slot.grant: slot.refused for slot in book.slots.values() if slot.refused} | book.aside
        node = dispatcher.nodes.get(name)
        if not (failed or book.closed) or node is None or admission.refusal(pod, node):
            continue
        if book.unready:
            parts.append(f"node {name} ({book.unready})")
            continue
        numbers = _numbers(book)
        parts += [
            f"GPU {numbers[gpu]} of {name} ({'; '.join(reasons.values())})" for gpu, reasons in book.closed.items()
        ]
        parts += [
            f"{place.want} at {place.start} of GPU {numbers.get(place.gpu, '?')} of {name} ({reason})"
            for place, reason in failed.items()
            if place.gpu not in book.closed
        ]
    more = len(parts) - MOST_NODES
    return ", ".join(parts[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")
