"""Why a pod is where it is: its state, since when, what it waits for, what would make it fit, or where its slices are.

Pure. Builds the controller's own ledger from lists and asks it what the controller would ask; decides nothing. An
object that cannot be made sense of is left out, and the explanation says so.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from random import Random

import msgspec

from instaslice.api import names
from instaslice.api.instaslice import Allocation
from instaslice.api.pods import gated, held_by_others, unbound
from instaslice.controller import node_admission
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.doctor.asked import asked, asks
from instaslice.controller.doctor.readable import of_pod
from instaslice.controller.doctor.world import World, named
from instaslice.controller.orders import Limits, NullOrders
from instaslice.controller.pod_condition import FULL, condition_of
from instaslice.controller.pod_request import PodRequest
from instaslice.controller.quarantine import ObjectKind
from instaslice.kube.core import Pod
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


class Place(msgspec.Struct, frozen=True, kw_only=True):
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
    """Everything there is to say of one pod. `since` is when it came into this stage, as far as objects tell."""

    pod: str
    stage: Stage
    since: datetime | None
    message: str
    asks: dict[str, int] = {}
    """Profile → how many slices."""
    ahead: int = 0
    """Pods that wait and come first."""
    nodes: dict[str, list[str]] = {}
    """Of a pod that waits: why not there → the nodes of which that is so."""
    could: list[str] = []
    """Of a pod that waits: nodes that would hold it if nothing else ran there."""
    slices: list[Place] = []
    left_out: list[str] = []
    """Objects that were left out of account, and why."""


def explain(world: World, pod: Pod, policy: Policy) -> Explanation:
    """What the controller would say of the pod if asked now."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if not asks(pod):
        return Explanation(pod=name, stage=Stage.NOT_OURS, since=None, message=_not_ours(pod))
    if why := of_pod(pod):
        message = f"{why}; delete the pod and ask for slices that exist"
        return Explanation(pod=name, stage=Stage.UNREADABLE, since=pod.metadata.creation_timestamp, message=message)
    wants = dict(asked(pod))
    if pod.ended:
        message = (
            f"{pod.status.phase}{f': {pod.status.message}' if pod.status.message else ''}; its slices are given back"
        )
        return Explanation(pod=name, stage=Stage.ENDED, since=_ended(pod), message=message, asks=wants)
    dispatcher, left_out = _dispatcher(world, policy)
    told = _told(world, dispatcher, pod, name, wants)
    return msgspec.structs.replace(told, left_out=left_out)


def _told(world: World, dispatcher: Dispatcher, pod: Pod, name: str, asks: dict[str, int]) -> Explanation:
    uid = pod.metadata.uid
    if uid in dispatcher.queue:
        return _waiting(dispatcher, pod, name, asks)
    if not gated(pod):
        return _past_the_gate(world, dispatcher, pod, name, asks)
    if others := held_by_others(pod):
        message = f"waits for other gates first: {', '.join(others)}; we take it up when they are gone"
        return Explanation(
            pod=name, stage=Stage.HELD, since=pod.metadata.creation_timestamp, message=message, asks=asks
        )
    said, reservation = condition_of(dispatcher, uid), dispatcher.ledger.reservations.get(uid)
    return Explanation(
        pod=name,
        stage=Stage.STARTING if reservation is not None and reservation.created else Stage.CREATING,
        since=_turned(pod),
        message=said.message if said else "is about to be let go",
        asks=asks,
        slices=_places(world, uid),
    )


def _waiting(dispatcher: Dispatcher, pod: Pod, name: str, asks: dict[str, int]) -> Explanation:
    uid, request = pod.metadata.uid, dispatcher.request(pod)
    ahead = dispatcher.queue.ahead(uid)
    said = condition_of(dispatcher, uid)
    if said is not None:
        message = said.message
    elif ahead:
        message = "fits now, and is placed when those ahead of it have been looked at"
    else:
        message = "fits now, and is about to be placed; does the controller run?"
    profiles = [want.profile for want in request.slices]
    could = [
        node
        for node in dispatcher.ledger.nodes
        if dispatcher.could_suffice(pod, request.amounts, node)
        and could_hold(dispatcher.ledger.fleet.open_models(node), profiles)
    ]
    return Explanation(
        pod=name,
        stage=Stage.WAITING,
        since=pod.metadata.creation_timestamp,
        message=message,
        asks=asks,
        ahead=ahead,
        nodes=_ruled_out(dispatcher, pod, request),
        could=sorted(could),
    )


def _ruled_out(dispatcher: Dispatcher, pod: Pod, request: PodRequest) -> dict[str, list[str]]:
    why: dict[str, list[str]] = {}
    for name in sorted(dispatcher.ledger.nodes):
        if told := _why_not(dispatcher, pod, request, name):
            why.setdefault(told, []).append(name)
    return dict(sorted(why.items(), key=lambda item: -len(item[1])))


def _why_not(dispatcher: Dispatcher, pod: Pod, request: PodRequest, name: NodeName) -> str | None:
    """What rules this node out; None if nothing does."""
    node, record = dispatcher.nodes.get(name), dispatcher.ledger.nodes[name]
    if node is None:
        return "is gone"
    if told := node_admission.refusal(pod, node) or dispatcher.capacities.short(name, request.other_amounts):
        return told
    if told := dispatcher.filters.for_pod(pod)(name):
        return told
    plan = dispatcher.ledger.placer.place(request.demand(lambda each: each == name))
    if not isinstance(plan, Refusal):
        return dispatcher.capacities.short(name, request.our_amounts)
    closed = [condition_of for reasons in record.closed.values() for condition_of in reasons.values()]
    if record.gpus and len(record.closed) == len(record.gpus):
        return "; ".join(dict.fromkeys(closed))
    # What would help is said once, for all nodes together.
    told = str(plan).partition(";")[0]
    if "admits the pod" not in told:
        return told
    # GPUs elsewhere have what these lack.
    there = {profile.name for model in record.gpus.values() for profile in model.profiles}
    lacking = [want for want in dict.fromkeys(request.profiles) if want not in there]
    return f"none of its GPUs has {', '.join(lacking)}" if lacking else FULL


def _past_the_gate(world: World, dispatcher: Dispatcher, pod: Pod, name: str, asks: dict[str, int]) -> Explanation:
    said = condition_of(dispatcher, pod.metadata.uid)
    if names.MIG_UUIDS not in pod.metadata.annotations:
        stage, message = (
            Stage.TROUBLED,
            "is past its gate without slices: it was made past the webhook; create it again",
        )
    elif said is None or not said.ready:
        stage, message = Stage.TROUBLED, said.message if said else "nothing is known of its slices"
    elif pod.spec.node_name:
        stage = Stage.RUNNING if pod.status.phase == "Running" else Stage.STARTING
        message = said.message
    else:
        stage, message = Stage.STARTING, f"{said.message}; waits to be bound by the scheduler: {unbound(pod)}"
    if pod.metadata.deletion_timestamp is not None:
        message += "; it is being deleted, and gives back its slices when its containers have ended"
    return Explanation(
        pod=name,
        stage=stage,
        since=_turned(pod),
        message=message,
        asks=asks,
        slices=_places(world, pod.metadata.uid),
    )


def _dispatcher(world: World, policy: Policy) -> tuple[Dispatcher, list[str]]:
    """What the controller would know, and what it could make nothing of."""
    now = world.now.timestamp()
    made = Dispatcher(NullOrders(), policy, lambda: now, Random(0), Limits())
    # As the controller starts: what volumes there are, nodes, what is promised on them, the pods it is promised to.
    made.filters.volumes_known = world.storage is not None
    for namespace in world.namespaces:
        made.namespace_changed(None, namespace)
    for stored in world.storage or ():
        made.storage_changed(None, stored)
    for node in world.nodes:
        made.node_changed(None, node)
    for thing in world.instaslices:
        made.instaslice_changed(None, thing)
    for pod in world.pods:
        made.pod_changed(None, pod)
    made.resume()
    left_out = [f"{unread.object}: {unread.why}" for unread in world.unread]
    for kind, key, why in made.quarantine:
        about = named(world.pod_of[key]) if kind is ObjectKind.POD else f"{kind} {key}"
        left_out.append(f"{about}: {why}")
    return made, left_out


def _places(world: World, uid: str) -> list[Place]:
    indexes = {gpu.uuid: gpu.index for thing in world.instaslices for gpu in thing.status.gpus}
    return [
        _place(
            held.node,
            held.allocation,
            indexes,
            str(held.made.state) if held.made else "not reported yet",
            held.made.mig_uuid if held.made else None,
        )
        for held in world.held_by.get(uid, [])
    ]


def _place(node: str, a: Allocation, indexes: Mapping[str, int], state: str, uuid: str | None) -> Place:
    return Place(
        node=node,
        gpu=a.gpu,
        index=indexes.get(a.gpu),
        profile=a.profile,
        start=a.start,
        container=a.container,
        state=state,
        mig_uuid=uuid,
    )


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
        return f"asks for no slices, yet has the gate {names.GATE}, which nobody will take away; create it without"
    return "asks for no slices; InstaSlice has nothing to do with it"


def _turned(pod: Pod) -> datetime | None:
    condition = pod.condition(names.SLICE_READY)
    return condition.last_transition_time if condition else pod.metadata.creation_timestamp


def _ended(pod: Pod) -> datetime | None:
    condition = pod.condition("Ready")
    return condition.last_transition_time if condition else None
