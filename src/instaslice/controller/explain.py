"""Why a pod is where it is: its stage, since when, what it waits for and what would make it fit, or its slices.

Pure. Builds the controller's own ledger from a snapshot and asks it what the controller would ask; decides nothing. An
object that cannot be handled is left out, and the explanation says so.
"""

from collections import Counter
from datetime import datetime
from enum import StrEnum
from functools import partial
from random import Random

import msgspec

from instaslice.api import names
from instaslice.api.pods import gated, needed_slices, other_gates, was_given_slices, why_unbound
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.lifecycle import Phase
from instaslice.controller.orders import Limits, NullOrders
from instaslice.controller.pod_condition import FULL, PodCondition, condition_of, node_out
from instaslice.controller.pod_request import PodRequest
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.requests import effective
from instaslice.errors import InstasliceError
from instaslice.kube.core import Pod
from instaslice.kube.meta import key_of
from instaslice.placement import NodeName, Policy, Refusal, could_hold


class Stage(StrEnum):
    """Where a pod is on its way."""

    NOT_OURS = "not ours"
    UNREADABLE = "asks for what does not exist"
    HELD = "held by another gate"
    WAITING = "waiting for room"
    CREATING = "slices being made"
    STARTING = "slices ready"
    RUNNING = "running"
    TROUBLED = "running, in trouble"
    ENDED = "ended"


class ExplainedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """One slice of the pod."""

    node: str
    gpu: str
    index: int | None
    profile: str
    start: int
    container: str
    state: str
    mig_uuid: str | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be said about one pod. `since` is when it entered this stage, as far as objects tell."""

    pod: str
    stage: Stage
    since: datetime | None
    message: str
    asks: dict[str, int] = {}
    """Profile → how many slices."""
    ahead: int = 0
    """Waiting pods that are considered first."""
    nodes: dict[str, list[str]] = {}
    """Of a pod that waits: reason → the nodes that it rules out."""
    could: list[str] = []
    """Of a pod that waits: nodes that could hold it if they were empty."""
    slices: list[ExplainedSlice] = []
    left_out: list[str] = []
    """Objects that were not taken into account, and why."""


def explain(cluster: ClusterSnapshot, pod: Pod, policy: Policy) -> Explanation:
    """What the controller would say about the pod now."""
    created, explanation = pod.metadata.creation_timestamp, partial(Explanation, pod=str(key_of(pod)))
    try:
        slices = needed_slices(pod)
        if not slices:
            return explanation(stage=Stage.NOT_OURS, since=None, message=_not_ours(pod))
        effective(pod)
    except InstasliceError as error:
        message = f"{error}; delete the pod and ask for slices that exist"
        return explanation(stage=Stage.UNREADABLE, since=created, message=message)
    explanation = partial(explanation, asks=dict(Counter(each.profile for each in slices)))
    if pod.ended:
        reason = f": {pod.status.message}" if pod.status.message else ""
        message = f"{pod.status.phase}{reason}; its slices are released"
        return explanation(stage=Stage.ENDED, since=_changed(pod, "Ready"), message=message)
    dispatcher, left_out = _dispatcher(cluster, policy)
    explanation = partial(explanation, left_out=left_out)
    state, uid = dispatcher.state, pod.metadata.uid
    condition = condition_of(state, dispatcher.placer, uid)
    if uid in state.queue:
        request, ahead = dispatcher.placer.request(pod), state.queue.ahead(uid)
        return explanation(
            stage=Stage.WAITING,
            since=created,
            message=condition.message if condition else _about_to_be_placed(ahead),
            ahead=ahead,
            nodes=_ruled_out(state, pod, request),
            could=_could_hold(dispatcher, pod, request),
        )
    if gated(pod) and (others := other_gates(pod)):
        message = f"waits for other gates to be removed first: {', '.join(others)}"
        return explanation(stage=Stage.HELD, since=created, message=message)
    stage, message = _gated(state, pod, condition) if gated(pod) else _past_the_gate(pod, condition)
    since = _changed(pod, names.SLICE_READY) or created
    return explanation(stage=stage, since=since, message=message, slices=_locations(cluster, uid))


def _about_to_be_placed(ahead: int) -> str:
    if ahead:
        return "fits now, and is placed once the pods ahead of it have been considered"
    return "fits now, and is about to be placed; does the controller run?"


def _could_hold(dispatcher: Dispatcher, pod: Pod, request: PodRequest) -> list[str]:
    profiles = [each.profile for each in request.slices]
    return sorted(
        node
        for node in dispatcher.state.ledger.nodes
        if dispatcher.placer.could_suffice(pod, node)
        and could_hold(dispatcher.state.ledger.fleet.open_models(node), profiles)
    )


def _ruled_out(state: ClusterState, pod: Pod, request: PodRequest) -> dict[str, list[str]]:
    nodes: dict[str, list[str]] = {}
    for name in sorted(state.ledger.nodes):
        if reason := _why_not(state, pod, request, name):
            nodes.setdefault(reason, []).append(name)
    return dict(sorted(nodes.items(), key=lambda item: -len(item[1])))


def _why_not(state: ClusterState, pod: Pod, request: PodRequest, name: NodeName) -> str | None:
    """What rules this node out; None if nothing does."""
    record = state.ledger.nodes[name]
    if reason := node_out(state, pod, name) or state.capacities.short(name, request.other_amounts):
        return reason
    if reason := state.filters.for_pod(pod)(name):
        return reason
    plan = state.ledger.placer.place(request.demand(lambda each: each == name))
    if not isinstance(plan, Refusal):
        return state.capacities.short(name, request.our_amounts)
    closed = state.ledger.closed(name)
    if record.gpus and len(closed) == len(record.gpus):
        return "; ".join(dict.fromkeys(message for reasons in closed.values() for message in reasons.values()))
    # The remedy is printed once, for all nodes together.
    refusal = str(plan).partition(";")[0]
    if "admits the pod" not in refusal:
        return refusal
    # Only GPUs of other nodes have such profiles.
    present = {profile.name for model in record.gpus.values() for profile in model.profiles}
    lacking = [want for want in dict.fromkeys(request.profiles) if want not in present]
    return f"none of its GPUs has {', '.join(lacking)}" if lacking else FULL


def _gated(state: ClusterState, pod: Pod, condition: PodCondition | None) -> tuple[Stage, str]:
    reservation = state.ledger.reservations.get(pod.metadata.uid)
    stage = Stage.STARTING if reservation is not None and reservation.phase(pod) is Phase.CREATED else Stage.CREATING
    written = pod.condition(names.SLICE_READY)
    if stage is Stage.STARTING and written is not None and written.reason == "UngateRefused":
        return stage, written.message  # only the controller has the API server's answer
    return stage, condition.message if condition else "is about to be ungated"


def _past_the_gate(pod: Pod, condition: PodCondition | None) -> tuple[Stage, str]:
    if not was_given_slices(pod):
        stage = Stage.TROUBLED
        message = "is past its gate without slices: our webhook did not see it when it was created; create it again"
    elif condition is None or not condition.ready:
        stage, message = Stage.TROUBLED, condition.message if condition else "its slices are not known"
    elif pod.spec.node_name:
        stage = Stage.RUNNING if pod.status.phase == "Running" else Stage.STARTING
        message = condition.message
    else:
        stage, message = Stage.STARTING, f"{condition.message}; waits for the scheduler to bind it: {why_unbound(pod)}"
    if pod.metadata.deletion_timestamp is not None:
        message += "; it is being deleted, and its slices are released when its containers have ended"
    return stage, message


def _dispatcher(cluster: ClusterSnapshot, policy: Policy) -> tuple[Dispatcher, list[str]]:
    """What the controller would know, and the objects that it could not handle."""
    now = cluster.now.timestamp()
    state = ClusterState(policy)
    made = Dispatcher(state, NullOrders(), lambda: now, Random(0), Limits())
    # In the order in which the controller starts: storage, nodes, allocations, pods.
    state.filters.volumes_known = cluster.storage is not None
    for namespace in cluster.namespaces:
        made.namespace_changed(None, namespace)
    for stored in cluster.storage or ():
        made.storage_changed(None, stored)
    for node in cluster.nodes:
        made.node_changed(None, node)
    for instaslice in cluster.instaslices:
        made.instaslice_changed(None, instaslice)
    for pod in cluster.pods:
        made.pod_changed(None, pod)
    made.start()
    left_out = [f"{unread.object}: {unread.why}" for unread in cluster.unread]
    pods = {pod.metadata.uid: str(key_of(pod)) for pod in cluster.pods}
    left_out += [f"{kind} {pods[key] if kind is ObjectKind.POD else key}: {why}" for kind, key, why in state.quarantine]
    return made, left_out


def _locations(cluster: ClusterSnapshot, uid: str) -> list[ExplainedSlice]:
    found: list[ExplainedSlice] = []
    for instaslice in cluster.instaslices:
        indexes = {gpu.uuid: gpu.index for gpu in instaslice.status.gpus}
        prepared = {each.id: each for each in instaslice.status.slices}
        for a in instaslice.spec.allocations:
            if a.pod.uid != uid or not a.wanted:
                continue
            made = prepared.get(a.id)
            found.append(
                ExplainedSlice(
                    node=instaslice.metadata.name,
                    gpu=a.gpu,
                    index=indexes.get(a.gpu),
                    profile=a.profile,
                    start=a.start,
                    container=a.container,
                    state=str(made.state) if made else "not reported yet",
                    mig_uuid=made.mig_uuid if made else None,
                )
            )
    return found


def _not_ours(pod: Pod) -> str:
    containers = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    raw = sorted(
        {name for each in containers for name in each.resources.limits if name.startswith(names.NVIDIA_RESOURCE)}
    )
    if raw:
        return (
            f"asks for {', '.join(raw)}, which our webhook has not seen: the pod is older than InstaSlice here, or its "
            f"namespace is opted out ({names.OPT_OUT}={names.OPTED_OUT}); create it again to have slices made for it"
        )
    if gated(pod):
        return f"asks for no slices but has the gate {names.GATE}, which nobody will remove; create it without the gate"
    return "asks for no slices; InstaSlice has nothing to do with it"


def _changed(pod: Pod, kind: str) -> datetime | None:
    condition = pod.condition(kind)
    return condition.last_transition_time if condition else None
