"""What is said of a pod: its condition and its Event, from what is."""

from collections import Counter
from dataclasses import dataclass

from instaslice.controller import admission
from instaslice.controller.dispatcher import Ask, Dispatcher
from instaslice.controller.promises import Promise
from instaslice.controller.wants import gated, held_by_others
from instaslice.kube.core import Pod
from instaslice.placement import GpuId, NodeName, Short

MOST_NODES = 3
"""Reasons of nodes that a message names."""


@dataclass(frozen=True, slots=True)
class Words:
    """`kind` is what the condition calls its reason: another kind is told at once, the same kind again is not."""

    ready: bool
    kind: str
    message: str
    warning: bool = False


def words(dispatcher: Dispatcher, uid: str) -> Words | None:
    """What to say of a pod now; None where there is nothing to say."""
    pod = dispatcher.pods.get(uid)
    if pod is None or pod.ended:
        return None
    promise = dispatcher.ledger.promises.get(uid)
    if promise is None:
        return _without(dispatcher, pod)
    if gated(pod):
        where = f"{_listed(dispatcher, promise)} on node {promise.node}"
        return Words(False, "Creating", f"{where}: being made")
    return _running(dispatcher, promise)


def _without(dispatcher: Dispatcher, pod: Pod) -> Words | None:
    uid = pod.metadata.uid
    if not gated(pod):
        told = "its slices are not known any more: the Instaslice object of its node was deleted, or its GPU is gone"
        return Words(False, "SliceLost", told, warning=True)
    if others := held_by_others(pod):
        return Words(False, "Gated", f"waits for other gates first: {', '.join(others)}")
    if bad := dispatcher.ask(pod).bad:
        return Words(False, "BadRequest", f"{bad}; delete the pod and ask for slices that exist", warning=True)
    if uid not in dispatcher.line:
        return None
    refusal = dispatcher.refusal(uid)
    if refusal is None:
        return None
    message = str(refusal)
    if refusal.short is Short.NODES:
        message += f" ({nodes_short(dispatcher, pod, dispatcher.ask(pod))})"
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


def _listed(dispatcher: Dispatcher, promise: Promise) -> str:
    numbers = {gpu: index for index, gpu in enumerate(dispatcher.ledger.books[promise.node].gpus)}
    return ", ".join(
        f"{slot.allocation.profile} at {slot.allocation.start} of GPU {numbers.get(slot.grant.gpu, '?')}"
        for slot in promise.slots
    )


def nodes_short(dispatcher: Dispatcher, pod: Pod, ask: Ask) -> str:
    """Why nodes do not admit a pod, the most frequent reasons first: `2 nodes: is cordoned; gpu-1: cpu: …`."""
    why: Counter[str] = Counter()
    example: dict[str, NodeName] = {}
    for name in dispatcher.ledger.books:
        node = dispatcher.nodes.get(name)
        told = "is gone" if node is None else admission.refusal(pod, node) or dispatcher.rooms.short(name, ask.amounts)
        if told:
            why[told] += 1
            example.setdefault(told, name)
    parts = [f"{count} nodes: {told}" if count > 1 else f"{example[told]}: {told}" for told, count in why.most_common()]
    more = len(parts) - MOST_NODES
    return "; ".join(parts[:MOST_NODES]) + (f"; and {more} more" if more > 0 else "")
