"""The fleet at one moment: who holds which slot of each GPU, what still fits, and who waits in which position.

Pure: a snapshot comes in. What is said of GPUs follows from Instaslice objects and nodes alone, so it is also there for
those who may not read pods. Who waits, and why, is `explain`'s answer.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from instaslice.api import names
from instaslice.api.agent_presence import missing_agent
from instaslice.api.instaslice import READY, ConditionStatus, GpuStatus, Health, Instaslice
from instaslice.api.pods import gated
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.explain import Explainer
from instaslice.controller.explanation import Stage, WaitingPod, by_itself, held_message
from instaslice.controller.gpu_claims import GpuClaim, reported_too
from instaslice.controller.held_slots import HeldSlot, SlotState, held_slots
from instaslice.controller.slice_holders import held_since
from instaslice.geometry import Model, States
from instaslice.kube.core import Node, Pod
from instaslice.kube.meta import Key, key_of
from instaslice.kueue.hold import KueueHolds
from instaslice.placement import Policy


class SlotHolder(msgspec.Struct, frozen=True, kw_only=True):
    """One slot that is not free, and who holds it: no pod where no allocation names it."""

    start: int
    size: int
    profile: str
    state: SlotState
    pod: str = ""
    container: str = ""
    since: datetime | None = None
    """When the slices of the pod were ready, or when it was created; None where the pod is gone or may not be read."""
    mig_uuid: str = ""
    reason: str = ""


class GpuOccupancy(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. Where nothing may be placed (`out_of_use` says why), its free memory counts as out of use."""

    uuid: str
    index: int | None
    """None where slices are reserved on a GPU that its node does not report."""
    model: str
    memory_slices: int
    healthy: bool
    out_of_use: str = ""
    slots: list[SlotHolder] = []
    largest_fit: str = ""
    """The largest profile that can still be placed; "" where none can."""
    total_gb: float = 0
    held_gb: float = 0
    free_gb: float = 0
    unusable_gb: float = 0
    """Free, and of no use: no further slices can reach it as the GPU is cut now. The metrics count the same."""
    out_of_use_gb: float = 0


class NodeOccupancy(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `out_of_use` says why nothing is placed there: cordoned, not ready, or its agent says so or does
    not run."""

    name: str
    gpus: list[GpuOccupancy]
    out_of_use: str = ""


class QueuedPod(WaitingPod, frozen=True, kw_only=True):
    """A pod that does not run yet. `position` counts from 1; None where it waits for something other than room."""

    position: int | None = None


class ModelTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs of one model."""

    model: str
    nodes: int
    gpus: int
    unhealthy: int
    total_gb: float
    held_gb: float
    free_gb: float
    unusable_gb: float
    out_of_use_gb: float
    largest_fit: dict[str, int]
    """Profile → on how many GPUs it is the largest that still fits; "" where none does."""


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `instaslice status` prints."""

    nodes: list[NodeOccupancy]
    waiting: list[QueuedPod]
    models: list[ModelTotals]
    slots: dict[str, int]
    """State → how many slots are in it."""
    missing: dict[str, str]
    """Kind that may not be listed (pods, nodes, instaslices) → what is not shown for that, and what to grant."""
    left_out: list[str]
    """Objects that could not be read, and why."""
    now: datetime

    def only(self, names: Collection[str]) -> "FleetStatus":
        """Without other nodes. Totals are of the nodes that are left; pods wait for all."""
        nodes = [node for node in self.nodes if node.name in names]
        return msgspec.structs.replace(self, nodes=nodes, models=_totals(nodes), slots=_slots(nodes))


def fleet_status(cluster: ClusterSnapshot, policy: Policy, holds: KueueHolds | None = None) -> FleetStatus:
    """Everything there is to say of the fleet now. `holds` says why Kueue holds pods, where its objects were read."""
    pods = {pod.metadata.uid: pod for pod in cluster.pods}
    nodes = None if "nodes" in cluster.forbidden else {node.metadata.name: node for node in cluster.nodes}
    by_name = sorted(cluster.instaslices, key=lambda each: each.metadata.name)
    disputed = _disputed(by_name, nodes)
    found = [_node(each, pods, nodes, cluster.silent_leases, disputed) for each in by_name]
    waiting, left_out = _waiting(cluster, policy, holds)
    return FleetStatus(
        nodes=found,
        waiting=waiting,
        models=_totals(found),
        slots=_slots(found),
        missing={kind: _missing(kind) for kind in cluster.forbidden},
        left_out=left_out,
        now=cluster.now,
    )


def _waiting(cluster: ClusterSnapshot, policy: Policy, holds: KueueHolds | None) -> tuple[list[QueuedPod], list[str]]:
    """Who waits, and the objects that were left out."""
    if cluster.forbidden:
        # Without one of the lists the controller's view cannot be built: what it wrote into the pods has to do.
        listed = sorted(filter(gated, cluster.pods), key=lambda pod: str(pod.metadata.creation_timestamp))
        return [_as_written(pod, holds) for pod in listed], [f"{each.object}: {each.why}" for each in cluster.unread]
    explainer = Explainer(cluster, policy, holds)
    found: list[QueuedPod] = []
    position = 0
    for each in explainer.waiting():
        in_queue = each.stage is Stage.WAITING
        position += in_queue
        found.append(QueuedPod(**msgspec.structs.asdict(each), position=position if in_queue else None))
    return found, explainer.left_out


def _as_written(pod: Pod, holds: KueueHolds | None) -> QueuedPod:
    brief = by_itself(pod)
    if brief.stage is Stage.HELD_BY_KUEUE:
        message = held_message(pod, holds.of_pod(pod)) if holds is not None else brief.message
        return QueuedPod(**{**msgspec.structs.asdict(brief), "message": message})
    condition = pod.condition(names.SLICE_READY)
    message = condition.message if condition else "nothing says why"
    created = pod.metadata.creation_timestamp
    return QueuedPod(pod=str(key_of(pod)), stage=Stage.WAITING, since=created, asks={}, message=message)


def _disputed(instaslices: Iterable[Instaslice], nodes: Mapping[str, Node] | None) -> dict[tuple[str, str], str]:
    """Node and GPU → why it is not used there, as another node has it."""
    claims: dict[str, list[GpuClaim]] = {}
    for each in instaslices:
        exists = nodes is None or each.metadata.name in nodes
        for gpu in each.status.gpus:
            claims.setdefault(gpu.uuid, []).append(GpuClaim.of(each, gpu.uuid, exists=exists))
    found = {}
    for uuid, claiming in claims.items():
        holder = claiming[0]
        for claim in claiming[1:]:
            holder = claim if claim.outranks(holder) else holder
        found.update({(claim.node, uuid): reported_too(holder.node) for claim in claiming if claim is not holder})
    return found


def _node(
    instaslice: Instaslice,
    pods: Mapping[str, Pod],
    nodes: Mapping[str, Node] | None,
    silent_leases: Collection[str],
    disputed: Mapping[tuple[str, str], str],
) -> NodeOccupancy:
    name = instaslice.metadata.name
    out_of_use = _node_out(instaslice, nodes, silent_leases)
    models = {gpu.model: _model(instaslice, gpu.model) for gpu in instaslice.status.gpus}
    in_order = sorted(instaslice.status.gpus, key=lambda gpu: gpu.index)
    gpus = [
        _gpu(instaslice, gpu, *models[gpu.model], pods, disputed.get((name, gpu.uuid)) or out_of_use)
        for gpu in in_order
    ]
    reported = {gpu.uuid for gpu in in_order}
    lost = dict.fromkeys(each.gpu for each in instaslice.spec.allocations if each.gpu not in reported)
    gpus += [_lost(instaslice, uuid, pods) for uuid in lost]
    return NodeOccupancy(name=name, gpus=gpus, out_of_use=out_of_use)


def _node_out(instaslice: Instaslice, nodes: Mapping[str, Node] | None, silent_leases: Collection[str]) -> str:
    """Why nothing is placed on the node, as far as `nodes` may be read."""
    node = None
    if nodes is not None:
        node = nodes.get(instaslice.metadata.name)
        if node is None:
            return "the node does not exist"
        if not node.ready:
            return "not ready"
    serving = next((each for each in instaslice.status.conditions if each.type == READY), None)
    if serving is not None and serving.status is ConditionStatus.FALSE:
        return f"its agent does not serve: {serving.message or serving.reason}"
    if missing := missing_agent(instaslice.status, node, silent_leases):
        return missing
    return "cordoned" if node is not None and node.spec.unschedulable else ""


class _Room(NamedTuple):
    """What still fits a GPU, and how many of its free memory slices no further slices can reach."""

    largest_fit: str
    unusable: int


def _gpu(
    instaslice: Instaslice, gpu: GpuStatus, model: Model | None, unknown: str, pods: Mapping[str, Pod], node_out: str
) -> GpuOccupancy:
    """`unknown` says what is wrong with its model."""
    slots = held_slots(instaslice, gpu.uuid)
    unhealthy = "" if gpu.health is Health.HEALTHY else f"unhealthy: {gpu.reason}" if gpu.reason else "unhealthy"
    out_of_use = unhealthy or unknown or node_out
    width = model.memory_slices if model else 0
    held = len({place for slot in slots for place in range(slot.start, min(slot.start + slot.size, width))})
    gb = model.memory_gb / width if model and width else 0.0
    room = _room(model, slots, width - held) if model and not out_of_use else _Room("", 0)
    return GpuOccupancy(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        memory_slices=width,
        healthy=not unhealthy,
        out_of_use=out_of_use,
        slots=[_holder(slot, pods) for slot in slots],
        largest_fit=room.largest_fit,
        total_gb=float(model.memory_gb) if model else 0.0,
        held_gb=round(gb * held, 1),
        free_gb=0.0 if out_of_use else round(gb * (width - held), 1),
        unusable_gb=round(gb * room.unusable, 1),
        out_of_use_gb=round(gb * (width - held), 1) if out_of_use else 0.0,
    )


def _model(instaslice: Instaslice, name: str) -> tuple[Model | None, str]:
    """The model of a GPU, or why nothing can be placed by it."""
    listed = next((each for each in instaslice.status.models if each.name == name), None)
    if listed is None:
        return None, f"it is of a model {name} that its node does not list"
    found = listed.checked()
    return (None, found) if isinstance(found, str) else (found, "")


def _room(model: Model, slots: Iterable[HeldSlot], free: int) -> _Room:
    states = States.of(model)
    indexes = [states.placement(slot.profile, slot.start) for slot in slots]
    state = states.state([index for index in indexes if index is not None])
    if None in indexes or state < 0:
        return _Room("", free)  # no legal layout: somebody else cut it, and nothing can be said to fit
    largest = states.largest_fit(state)
    # An entry may give another size than its profile has.
    return _Room(largest.name if largest else "", min(states.unusable(state), free))


def _lost(instaslice: Instaslice, uuid: str, pods: Mapping[str, Pod]) -> GpuOccupancy:
    slots = held_slots(instaslice, uuid)
    return GpuOccupancy(
        uuid=uuid,
        index=None,
        model="",
        memory_slices=max((slot.start + slot.size for slot in slots), default=0),
        healthy=False,
        out_of_use="its node does not report it",
        slots=[_holder(slot, pods) for slot in slots],
    )


def _holder(slot: HeldSlot, pods: Mapping[str, Pod]) -> SlotHolder:
    held, made = slot.allocation, slot.prepared
    uid = held.pod.uid if held else (made.holder if made else None) or ""
    pod = pods.get(uid)
    name = str(Key(held.pod.namespace, held.pod.name)) if held else str(key_of(pod)) if pod else ""
    return SlotHolder(
        start=slot.start,
        size=slot.size,
        profile=slot.profile,
        state=slot.state,
        pod=name,
        container=held.container if held else "",
        since=held_since(pod) if pod else None,
        mig_uuid=(made.mig_uuid if made else None) or "",
        reason=(made.reason if made else "") or (held.reason if held else ""),
    )


def _slots(nodes: Iterable[NodeOccupancy]) -> dict[str, int]:
    return dict(Counter(str(slot.state) for node in nodes for gpu in node.gpus for slot in gpu.slots))


def _totals(nodes: Iterable[NodeOccupancy]) -> list[ModelTotals]:
    found: dict[str, list[tuple[str, GpuOccupancy]]] = {}
    for node in nodes:
        for gpu in node.gpus:
            if gpu.index is not None:
                found.setdefault(gpu.model, []).append((node.name, gpu))
    return [_total(model, found[model]) for model in sorted(found)]


def _total(model: str, gpus: list[tuple[str, GpuOccupancy]]) -> ModelTotals:
    """Of the GPUs of a model, each with its node."""

    def gb(amount: Callable[[GpuOccupancy], float]) -> float:
        return round(sum(amount(gpu) for _, gpu in gpus), 1)

    return ModelTotals(
        model=model,
        nodes=len({node for node, _ in gpus}),
        gpus=len(gpus),
        unhealthy=sum(not gpu.healthy for _, gpu in gpus),
        total_gb=gb(lambda gpu: gpu.total_gb),
        held_gb=gb(lambda gpu: gpu.held_gb),
        free_gb=gb(lambda gpu: gpu.free_gb),
        unusable_gb=gb(lambda gpu: gpu.unusable_gb),
        out_of_use_gb=gb(lambda gpu: gpu.out_of_use_gb),
        largest_fit=dict(Counter(gpu.largest_fit for _, gpu in gpus).most_common()),
    )


def _missing(kind: str) -> str:
    costs = {
        "pods": "who waits and since when slots are held",
        "nodes": "which nodes are ready and cordoned, and positions in the queue",
        "instaslices": "GPUs",
    }
    resource = f"{kind}.{names.GROUP}" if kind == "instaslices" else kind
    return f"{kind} may not be listed, so {costs[kind]} are not shown: grant `list` on {resource}"
