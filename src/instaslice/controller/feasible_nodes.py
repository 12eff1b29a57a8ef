"""Which nodes could ever hold a pod, and why the others do not take it.

Pure. Called for conditions and by `explain`, never on the way to a placement: it looks at every node.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from instaslice.controller import node_admission
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.node_shapes import TRANSIENT
from instaslice.controller.pod_placer import PodPlacer
from instaslice.controller.pod_request import PodRequest
from instaslice.controller.quarantine import ObjectKind
from instaslice.kube.core import Condition, Node, Pod
from instaslice.placement import Choice, NodeName, Plan, could_hold
from instaslice.placement.longest_waiting import RESERVED

MOST_NODES = 3
"""Reasons or nodes that a message names."""
FULL = "has no room for the slices on its GPUs"
CORDONED = "is cordoned"

_READY = [Condition(type="Ready", status="True")]
_QUANTITY = re.compile(r"\d+(?:\.\d+)?[a-zA-Z]*")


def nodes_that_could_hold(state: ClusterState, placer: PodPlacer, pod: Pod) -> Iterator[NodeName]:
    """Nodes that admit the pod and would hold it if nothing ran there, in the order of the ledger."""
    choices = placer.request(pod).choices
    for name in state.ledger.nodes:
        if placer.could_suffice(pod, name) and _gpus_could_hold(state, name, choices):
            yield name


def nodes_that_could_hold_later(state: ClusterState, placer: PodPlacer, pod: Pod) -> Iterator[NodeName]:
    """Nodes that do not admit the pod now, but would hold it if they were uncordoned, ready and empty."""
    request = placer.request(pod)
    for name in state.ledger.nodes:
        node = state.nodes.get(name)
        if (
            node is not None
            and node_admission.refusal(pod, node) is not None
            and node_admission.refusal(pod, _available(node)) is None
            and state.capacities.could_hold(name, request.amounts)
            and _gpus_could_hold(state, name, request.explained_choices)
        ):
            yield name


def nodes_that_could_hold_in_use(state: ClusterState, placer: PodPlacer, pod: Pod) -> Iterator[NodeName]:
    """Nodes that admit the pod and would hold it if their GPUs were in use and empty: their agent does not run, say."""
    choices = placer.request(pod).explained_choices
    for name, record in state.ledger.nodes.items():
        if (
            placer.could_suffice(pod, name)
            and not _gpus_could_hold(state, name, choices)
            and any(could_hold(record.gpus.values(), choice) for choice in choices)
        ):
            yield name


def node_out(state: ClusterState, pod: Pod, name: NodeName) -> str | None:
    """Why a node is out of the question for a pod, whatever it has left."""
    node = state.nodes.get(name)
    if node is not None:
        why = node_admission.refusal(pod, node)
        if why is None:
            return None
        now = CORDONED if _keeps_out_cordoned(pod, node) else why
        # What stays when it is uncordoned and ready, such as a wrong selector, comes first.
        lasting = node_admission.refusal(pod, _available(node))
        return now if lasting in (None, now) else f"{lasting}, and {now}"
    why = state.quarantine.why(ObjectKind.NODE, name)
    return f"is set aside: {why}" if why else "is gone"


class NodeReason(NamedTuple):
    """Why a node does not take a pod; `out`: it is out of the question, whatever it has left."""

    node: NodeName
    why: str
    out: bool


def reasons_of_nodes(state: ClusterState, placer: PodPlacer, pod: Pod) -> list[NodeReason]:
    """Of each node why it does not take a waiting pod."""
    request, verdict = placer.request(pod), state.filters.for_pod(pod)
    # Where GPUs have room and it waits all the same, it waits for what the scheduler counts.
    fits_on_gpus = isinstance(placer.ignoring_our_resources(pod), Plan)
    counted = request.amounts if fits_on_gpus else request.other_amounts
    found = []
    for name in state.ledger.nodes:
        out = node_out(state, pod, name)
        why = out or state.capacities.short(name, counted) or verdict(name) or lacking(state, request, name)
        found.append(NodeReason(name, why, out is not None))
    return found


def summary(reasons: Sequence[NodeReason]) -> str:
    """`2 nodes: is cordoned; gpu-1: cpu: …`: first nodes that would take the pod but for what they lack, then those
    that keep it out or that it does not want, the most frequent reasons first."""
    near = Counter(each.why for each in reasons if not each.out)
    far = Counter(each.why for each in reasons if each.out)
    example = {each.why: each.node for each in reversed(reasons)}
    counts = [*near.most_common(), *far.most_common()]
    parts = [f"{count} nodes: {why}" if count > 1 else f"{example[why]}: {why}" for why, count in counts]
    more = len(parts) - MOST_NODES
    return "; ".join(parts[:MOST_NODES]) + (f"; and {more} more" if more > 0 else "")


def lacking(state: ClusterState, request: PodRequest, name: NodeName) -> str:
    """Why the GPUs of a node do not hold the slices: they are taken, are of other models, or are too few."""
    return never_held(state, request, name) or FULL


def never_held(state: ClusterState, request: PodRequest, name: NodeName) -> str:
    """Why the GPUs of a node would not hold the slices even if they were empty and open; "" where they would."""
    gpus = list(state.ledger.nodes[name].gpus.values())
    if any(could_hold(gpus, choice) for choice in request.explained_choices):
        return ""
    profiles = request.profiles
    present = {profile.name for model in state.ledger.nodes[name].gpus.values() for profile in model.profiles}
    absent = [profile for profile in dict.fromkeys(profiles) if profile not in present]
    if absent:
        return f"none of its GPUs has {', '.join(absent)}"
    most, wanted = most_at_once(state, profiles, name), len(profiles)
    return f"its GPUs hold {most} of the {wanted} slices, even if empty" if 0 < most < wanted else ""


def most_at_once(state: ClusterState, profiles: tuple[str, ...], name: NodeName) -> int:
    """How many of these slices, the first ones, all GPUs of a node would hold if they were empty and open."""
    gpus = list(state.ledger.nodes[name].gpus.values())
    return next((count for count in range(len(profiles), 0, -1) if could_hold(gpus, profiles[:count])), 0)


def some(names: list[NodeName]) -> str:
    more = len(names) - MOST_NODES
    return ", ".join(names[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")


def without_numbers(text: str) -> str:
    return _QUANTITY.sub("#", text)


def _gpus_could_hold(state: ClusterState, name: NodeName, choices: Iterable[Choice]) -> bool:
    """Whether the GPUs of a node could hold the slices if they were empty. What is closed does not count, except what
    is only reserved for another pod."""
    closed = state.ledger.closed(name)
    gpus = state.ledger.nodes[name].gpus.items()
    usable = [model for gpu, model in gpus if closed.get(gpu, {}).keys() <= {RESERVED}]
    return any(could_hold(usable, choice) for choice in choices)


def _keeps_out_cordoned(pod: Pod, node: Node) -> bool:
    """Whether the node is cordoned for the pod. The taint that goes with it can outlast the mark, and the kubelet of a
    drained node may be down: the cordon is what somebody has to undo."""
    cordoned = node.spec.unschedulable or any(
        taint.key == node_admission.CORDON.key for taint in node.spec.taints or ()
    )
    return cordoned and not any(
        node_admission.tolerates(each, node_admission.CORDON) for each in pod.spec.tolerations or ()
    )


def _available(node: Node) -> Node:
    """The node as it would be ready and uncordoned."""
    taints = [each for each in node.spec.taints or () if not each.key.startswith(TRANSIENT)]
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
    return msgspec.structs.replace(node, spec=spec, status=msgspec.structs.replace(node.status, conditions=_READY))
