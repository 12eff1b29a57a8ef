"""What is reserved for whom: the controller's view in memory, rebuilt from the Instaslice objects at start.

Takes in what agents report and what the dispatcher decides; knows no network and no clock. The spec of a node follows
from it, so writing that spec late, or twice, loses nothing.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    READY,
    Allocation,
    AllocationState,
    ConditionStatus,
    GpuStatus,
    Health,
    Instaslice,
    InstasliceSpec,
    InstasliceStatus,
    PodRef,
    PreparedSlice,
)
from instaslice.api.pods import NeededSlice
from instaslice.api.summary import holds_slot
from instaslice.controller.gpu_claims import GpuClaim, reported_too
from instaslice.controller.held_places import HeldPlaces
from instaslice.controller.lifecycle import Phase, phase_of_slice
from instaslice.controller.node_record import LedgerChanges, NodeRecord
from instaslice.controller.reservations import Reservation, TrackedAllocation, attempt
from instaslice.geometry import Model, ProfileName
from instaslice.observe.logs import about
from instaslice.placement import FleetError, GpuId, Grant, NodeName, Placer, Plan, Policy, UnknownGpu
from instaslice.placement.fleet import Fleet

log = logging.getLogger(__name__)

UNREADABLE, UNREADY, HEALTH = "unreadable", "unready", "health"
"""Kinds of reason to close a GPU: it or the object of its node makes no sense, no pod could start on its node, or it is
unhealthy."""


MOST_MODELS: Final = 64
"""Geometries that are remembered though no node may report them any more."""


class Ledger:
    def __init__(
        self,
        policy: Policy,
        node_exists: Callable[[NodeName], bool] = lambda _: True,
        missing_agent: Callable[[NodeName, InstasliceStatus], str] = lambda _name, _status: "",
    ) -> None:
        """`node_exists`: of two nodes that report one GPU, one that exists has it. `missing_agent` says why the agent
        of a node counts as gone; "" where it does not."""
        self._node_exists = node_exists
        self._missing_agent = missing_agent
        self.fleet = Fleet()
        self.placer = Placer(self.fleet, policy)
        self.held = HeldPlaces(self.placer)
        self.nodes: dict[NodeName, NodeRecord] = {}
        self.reservations: dict[str, Reservation] = {}
        """By pod uid. Of a released one only the allocations are left, in their record, until they are destroyed."""
        self.duplicates: dict[str, list[Reservation]] = {}
        """All found for one pod; `resolve_duplicates` leaves one: two leaders may have made one each."""
        self._models: dict[ModelGeometry, Model | str] = {}
        """A string says why nothing can be placed by it."""
        self._detached = False
        """Whether a GPU has left the fleet that another node may report."""

    # What agents report ---------------------------------------------------------------------------------------------

    def update(self, thing: Instaslice, now: float) -> LedgerChanges:
        """Take in an object. The spec counts only where the object is new here: an earlier process wrote it."""
        name = NodeName(thing.metadata.name)
        changes = LedgerChanges()
        record = self.nodes.get(name)
        adopt = record is None
        if record is None:
            record = self.nodes[name] = NodeRecord(name)
        record.status, record.unreadable = thing.status, False
        record.created = thing.metadata.creation_timestamp
        try:
            self._update_gpus(record, changes)
            self._update_readiness(record, record.status, changes)
            if adopt:
                self._adopt(record, thing.spec, now, changes)
                if record.unusable:
                    # What is reserved on a GPU decides which node has it.
                    self._update_gpus(record, changes)
                    self._update_readiness(record, record.status, changes)
            self._update_slices(record, record.status, changes)
        except Exception:
            if adopt:
                # Its spec must count when it can be read: what is reserved there must not go to others.
                self.remove(name)
            raise
        self._reassign_detached(changes)
        return changes

    def update_readiness(self, node: NodeName) -> LedgerChanges:
        """Whether the agent of a node runs may be judged otherwise than before. Safe to repeat."""
        changes = LedgerChanges()
        record = self.nodes.get(node)
        if record is not None:
            self._update_readiness(record, record.status, changes)
        return changes

    def quarantine(self, node: NodeName, why: str) -> None:
        """The object makes no sense as it is now: what is reserved there stays reserved, and nothing more is until the
        next `update`. Safe to repeat."""
        record = self.nodes.get(node)
        if record is not None:
            record.unreadable = True
            for gpu in record.gpus:
                self.fleet.close(gpu, UNREADABLE, why)

    def remove(self, node: NodeName) -> LedgerChanges:
        """The object is gone, and with it all that was reserved there."""
        changes = LedgerChanges()
        record = self.nodes.pop(node, None)
        if record is None:
            return changes
        for gpu in list(record.gpus):
            self._detach_gpu(record, gpu)
        lost = {tracked.allocation.pod.uid for tracked in record.allocations.values()} & self.reservations.keys()
        changes.pods = {uid for uid in lost if self.reservations[uid].node == node}
        for uid in changes.pods:
            del self.reservations[uid]
        for tracked in record.allocations.values():
            uid = tracked.allocation.pod.uid
            if uid in self.duplicates:
                self.duplicates[uid] = [each for each in self.duplicates[uid] if each.node != node]
        self._reassign_detached(changes)
        return changes

    def reassign_gpus(self) -> LedgerChanges:
        """Decide again which node has a GPU that two report: one of them came or went."""
        changes = LedgerChanges()
        waiting = [each for each in self.nodes.values() if each.unusable and not each.unreadable]
        for record in sorted(waiting, key=lambda each: (not self._node_exists(each.name), each.name)):
            self._update_gpus(record, changes)
            self._update_readiness(record, record.status, changes)
            self._update_slices(record, record.status, changes)
            changes.nodes.add(record.name)
        self._detached = False
        return changes

    # What is decided ------------------------------------------------------------------------------------------------

    def reserve(
        self,
        pod: PodRef,
        wants: Sequence[NeededSlice],
        plan: Plan,
        attempt: str,
        now: float,
        cpu: int = 0,
        memory: int = 0,
    ) -> Reservation:
        """Hold a plan for a pod. `attempt` makes the ids unique. Raises NotFree where the plan is stale."""
        self.placer.commit(plan)
        reservation = Reservation(pod.uid, plan.node, now)
        record = self.nodes[plan.node]
        for number, (want, grant) in enumerate(zip(wants, plan.grants, strict=True)):
            # CPU and memory are the pod's as a whole: they stand at its first slice, so that a sum over all is right.
            first = number == 0
            allocation = Allocation(
                id=f"{pod.uid}-{attempt}-{number}",
                pod=pod,
                container=want.container,
                profile=str(grant.want),
                gpu=grant.gpu,
                start=grant.start,
                size=grant.size,
                state=AllocationState.CREATING,
                cpu=cpu if first else 0,
                memory=memory if first else 0,
                asked_gb=want.ask.gb if want.ask is not None else 0,
            )
            tracked = TrackedAllocation(plan.node, allocation)
            reservation.allocations.append(tracked)
            record.allocations[allocation.id] = tracked
        self.reservations[pod.uid] = reservation
        return reservation

    def release(self, uid: str, reason: str) -> Reservation | None:
        """The pod no longer needs its slices. Their placements stay held until the agent has destroyed them."""
        reservation = self.reservations.pop(uid, None)
        if reservation is not None:
            reservation.release(reason)
        return reservation

    def resolve_duplicates(self, uid: str, uuids: Sequence[str]) -> list[Reservation]:
        """Of several reservations for one pod keep the one whose UUIDs the pod carries, or the first. Returns the
        others, which are released."""
        duplicates = self.duplicates.pop(uid, [])
        kept = next((each for each in duplicates if uuids and sorted(each.uuids) == sorted(uuids)), None)
        if kept is not None:
            self.reservations[uid] = kept
        others = [each for each in duplicates if each is not self.reservations.get(uid)]
        for each in others:
            each.release("other slices were reserved for the pod too")
        return others

    def restore(
        self,
        pod: PodRef,
        wants: Sequence[NeededSlice],
        node: NodeName,
        uuids: Sequence[str],
        attempt: str,
        now: float,
        cpu: int = 0,
        memory: int = 0,
        disputed: Collection[str] = (),
    ) -> bool:
        """Reserve again what a pod bound to the node holds according to its annotation, where the agent reports exactly
        these slices as foreign: the Instaslice object was deleted and created again.

        An annotation alone is not trusted. Where the agent has a kubelet, the kubelet must name this pod as the holder
        of each slice. Without a kubelet the annotation decides, unless the slice is `disputed`: another pod there
        claims it too.
        """
        record = self.nodes.get(node)
        if record is None or not wants or len(uuids) != len(wants):
            return False
        held = {each.id: each.holder for each in record.status.slices}
        left = {
            uuid: record.foreign_slices[uuid]
            for uuid in uuids
            if uuid in record.foreign_slices and _holds(pod, held.get(uuid, ""), disputed=uuid in disputed)
        }
        found: list[str] = []
        # The annotation has them in the order of the wants, which says which is whose where several would do.
        for want in wants:
            uuid = next((each for each, grant in left.items() if _would_do(want, grant)), None)
            if uuid is None:
                return False
            found.append(uuid)
            del left[uuid]
        grants = tuple(record.foreign_slices[uuid] for uuid in found)
        for uuid in found:
            self.fleet.release(record.foreign_slices.pop(uuid))
        self.reserve(pod, wants, Plan(grants), attempt, now, cpu, memory).show(Phase.UNGATED)
        return True

    def closed(self, node: NodeName) -> dict[GpuId, Mapping[str, str]]:
        """The GPUs of a node that are not offered, and why: kind of reason → message."""
        return {gpu: why for gpu in self.nodes[node].gpus if (why := self.fleet.why_closed(gpu))}

    def retry_placement(self, node: NodeName, place: Grant) -> bool:
        """A quarantined placement may be tried again. Whether it was quarantined."""
        record = self.nodes.get(node)
        if record is None or place not in record.quarantined:
            return False
        del record.quarantined[place]
        self.fleet.release(place)
        return True

    # Inside ---------------------------------------------------------------------------------------------------------

    def _update_gpus(self, record: NodeRecord, changes: LedgerChanges) -> None:
        there = {GpuId(gpu.uuid): gpu for gpu in record.status.gpus}
        listed = {model.name: model for model in record.status.models}
        for gone in (record.gpus.keys() | record.unusable.keys()) - there.keys():
            self._remove_gpu(record, gone, changes)
        unusable: dict[GpuId, str] = {}
        for uuid, gpu in there.items():
            model = self._model(gpu, listed)
            if isinstance(model, str):
                unusable[uuid] = model
            else:
                if record.gpus.get(uuid, model) != model:
                    self._remove_gpu(record, uuid, changes)
                if uuid not in record.gpus and (why := self._add(record, uuid, model, changes)):
                    unusable[uuid] = why
            if uuid in unusable and unusable[uuid] != record.unusable.get(uuid):
                keys = about(node=record.name, gpu=uuid)
                log.error(
                    "instaslice %s: nothing is placed on GPU %s: %s", record.name, uuid, unusable[uuid], extra=keys
                )
            if uuid not in record.gpus:
                continue
            if uuid in unusable:
                self.fleet.close(uuid, UNREADABLE, unusable[uuid])
            elif self.fleet.open(uuid, UNREADABLE):
                changes.freed = True
            if (gpu.health is Health.UNHEALTHY) != (HEALTH in self.fleet.why_closed(uuid)):
                changes.pods |= record.pods_on(uuid)
            if gpu.health is Health.UNHEALTHY:
                self.fleet.close(uuid, HEALTH, gpu.reason or "unhealthy")
            elif self.fleet.open(uuid, HEALTH):
                changes.freed = True
                self._retry_placements(record, uuid, changes)
        record.unusable = unusable
        if record.boot_id != record.status.boot_id:
            record.boot_id = record.status.boot_id
            for uuid in record.gpus:
                self._retry_placements(record, uuid, changes)

    def _add(self, record: NodeRecord, gpu: GpuId, model: Model, changes: LedgerChanges) -> str:
        """Put a GPU into the fleet under this node, with what is reserved on it. Why not, where another node has it."""
        try:
            owner = self.fleet.node_of[self.fleet.number(gpu)].name
        except UnknownGpu:
            pass
        else:
            other = self.nodes[owner]
            if not self._claim(record, gpu).outranks(self._claim(other, gpu)):
                return reported_too(owner)
            self._detach_gpu(other, gpu)
            other.unusable[gpu] = reported_too(record.name)
            keys = about(node=owner, gpu=gpu)
            log.error("instaslice %s: GPU %s: node %s has it, and reports it too", owner, gpu, record.name, extra=keys)
        self.fleet.add_gpu(gpu, record.name, model)
        record.gpus[gpu] = model
        changes.freed = True
        for tracked in [each for each in record.allocations.values() if each.allocation.gpu == gpu]:
            try:
                self.fleet.take(tracked.grant)
            except FleetError as error:
                _log_dropped(record.name, tracked.allocation, error)
                self._drop(record, tracked, str(error), changes)
        return ""

    def _claim(self, record: NodeRecord, gpu: GpuId) -> GpuClaim:
        reserved = any(tracked.allocation.gpu == gpu for tracked in record.allocations.values())
        return GpuClaim(record.name, self._node_exists(record.name), reserved, record.created)

    def _detach_gpu(self, record: NodeRecord, gpu: GpuId) -> None:
        """The GPU no longer belongs to this node; what is reserved on it stays in the spec."""
        self.held.release_gpu(gpu)
        self.fleet.remove_gpu(gpu)
        del record.gpus[gpu]
        record.foreign_slices = {name: grant for name, grant in record.foreign_slices.items() if grant.gpu != gpu}
        record.quarantined = {grant: why for grant, why in record.quarantined.items() if grant.gpu != gpu}
        self._detached = True

    def _reassign_detached(self, changes: LedgerChanges) -> None:
        """A GPU that has left one node may be reported by another."""
        if self._detached:
            changes.add(self.reassign_gpus())

    def _update_readiness(self, record: NodeRecord, status: InstasliceStatus, changes: LedgerChanges) -> None:
        """Place nothing where no pod could start: the agent reports that its kubelet is silent, say, or does not
        run."""
        ready = next((each for each in status.conditions if each.type == READY), None)
        before = record.unready
        said = ready is not None and ready.status is ConditionStatus.FALSE and (ready.message or ready.reason)
        record.unready = said or self._missing_agent(record.name, status)
        if bool(before) != bool(record.unready):
            # Gated ones wait for the node to serve again.
            changes.pods |= {tracked.allocation.pod.uid for tracked in record.allocations.values()}
        for gpu in record.gpus:
            if record.unready:
                self.fleet.close(gpu, UNREADY, record.unready)
            elif self.fleet.open(gpu, UNREADY):
                changes.freed = True

    def _retry_placements(self, record: NodeRecord, gpu: GpuId, changes: LedgerChanges) -> None:
        """A GPU is healthy again, or its machine has rebooted: what failed there may be tried again."""
        for place in [each for each in record.quarantined if each.gpu == gpu]:
            changes.freed |= self.retry_placement(record.name, place)

    def _remove_gpu(self, record: NodeRecord, gpu: GpuId, changes: LedgerChanges) -> None:
        """A GPU is gone with all that was on it."""
        if gpu in record.gpus:
            self._detach_gpu(record, gpu)
        for tracked in [each for each in record.allocations.values() if each.allocation.gpu == gpu]:
            self._drop(record, tracked, f"GPU {gpu} is gone", changes)

    def _drop(self, record: NodeRecord, tracked: TrackedAllocation, why: str, changes: LedgerChanges) -> None:
        """An allocation is lost, and with it the reservation that it was part of."""
        uid = tracked.allocation.pod.uid
        del record.allocations[tracked.allocation.id]
        changes.pods.add(uid)
        reservation = self.reservations.get(uid)
        if reservation is not None and tracked in reservation.allocations:
            del self.reservations[uid]
            reservation.release(why)

    def _adopt(self, record: NodeRecord, spec: InstasliceSpec, now: float, changes: LedgerChanges) -> None:
        adopted: dict[tuple[str, str], Reservation] = {}
        for allocation in spec.allocations:
            tracked = TrackedAllocation(record.name, allocation)
            try:
                if allocation.id in record.allocations:
                    raise FleetError("another allocation has that id")
                if tracked.grant.gpu not in record.unusable:
                    self._take(record, tracked.grant)
            except FleetError as error:
                # Not written by a controller, or its GPU is gone: it cannot be kept.
                _log_dropped(record.name, allocation, error)
                continue
            record.allocations[allocation.id] = tracked
            uid = allocation.pod.uid
            changes.pods.add(uid)
            if not allocation.wanted:
                tracked.set_state(AllocationState.DELETING, allocation.reason)
                continue
            key = uid, attempt(allocation)
            if key not in adopted:
                adopted[key] = Reservation(uid, record.name, now)
                before = [self.reservations[uid]] if uid in self.reservations else []
                self.duplicates.setdefault(uid, before).append(adopted[key])
            adopted[key].allocations.append(tracked)
            self.reservations.setdefault(uid, adopted[key])

    def _update_slices(self, record: NodeRecord, status: InstasliceStatus, changes: LedgerChanges) -> None:
        foreign: dict[str, PreparedSlice] = {}
        for made in status.slices:
            tracked = record.allocations.get(made.id)
            if tracked is None:
                if holds_slot(made):
                    foreign[made.id] = made
            elif tracked.prepared != made:
                tracked.prepared = made
                changes.pods.add(tracked.allocation.pod.uid)
                match phase_of_slice(tracked.allocation, made):
                    case Phase.CREATED:
                        tracked.existed = True
                    case Phase.FAILED:
                        tracked.create_error = tracked.failed or ""
                    case Phase.DELETED:
                        self._free(record, tracked, changes)
        self._update_foreign(record, foreign, changes)

    def _free(self, record: NodeRecord, tracked: TrackedAllocation, changes: LedgerChanges) -> None:
        del record.allocations[tracked.allocation.id]
        if tracked.create_error and not tracked.existed and tracked.grant.gpu in record.gpus:
            record.quarantined[tracked.grant] = tracked.create_error
            changes.quarantined.append(tracked.grant)
        elif tracked.grant.gpu in record.gpus:
            self.fleet.release(tracked.grant)
            changes.freed = True

    def _update_foreign(self, record: NodeRecord, there: dict[str, PreparedSlice], changes: LedgerChanges) -> None:
        grants = {
            name: Grant(record.name, GpuId(made.gpu), made.profile, made.start, made.size)
            for name, made in there.items()
        }
        # A half-created slice is named by its number, which the next one may have elsewhere.
        for gone in [name for name, grant in record.foreign_slices.items() if grants.get(name) != grant]:
            self.fleet.release(record.foreign_slices.pop(gone))
            changes.freed = True
        for name, grant in grants.items():
            if name in record.foreign_slices or grant.gpu not in record.gpus:
                continue
            try:
                self._take(record, grant)
            except FleetError as error:
                if any(tracked.grant == grant for tracked in record.allocations.values()):
                    continue  # restored just now: the agent has yet to see that an allocation names it
                # We reserved that placement just now. The agent will refuse, and the pod is placed elsewhere.
                keys = about(node=record.name, gpu=grant.gpu)
                log.warning(
                    "instaslice %s: slice %s lies where something is reserved: %s", record.name, name, error, extra=keys
                )
                continue
            record.foreign_slices[name] = grant

    def _take(self, record: NodeRecord, grant: Grant) -> None:
        """Hold a placement on a GPU of this node. Raises FleetError, also where the GPU belongs to another node."""
        if grant.gpu not in record.gpus:
            raise UnknownGpu(f"node {record.name} has no GPU {grant.gpu}")
        self.fleet.take(grant)

    def _model(self, gpu: GpuStatus, listed: Mapping[str, ModelGeometry]) -> Model | str:
        """The model of a GPU, or why nothing can be placed by what is said of it."""
        geometry = listed.get(gpu.model)
        if geometry is None:
            return f"it is of a model {gpu.model} that is not listed"
        found = self._models.get(geometry)
        if found is None:
            if len(self._models) >= MOST_MODELS:
                reported = {each for record in self.nodes.values() for each in record.status.models}
                self._models = {each: model for each, model in self._models.items() if each in reported}
            found = self._models[geometry] = geometry.checked()
        return found


def _log_dropped(node: NodeName, allocation: Allocation, error: FleetError) -> None:
    pod = allocation.pod
    keys = about(pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, node=node, gpu=allocation.gpu)
    log.error("instaslice %s: allocation %s is dropped: %s", node, allocation.id, error, extra=keys)


def _would_do(want: NeededSlice, grant: Grant) -> bool:
    if want.ask is None:
        return grant.want == want.profile
    return ProfileName.parse(str(grant.want)).gb >= want.ask.gb


def _holds(pod: PodRef, holder: str | None, *, disputed: bool) -> bool:
    return holder == pod.uid or (holder is None and not disputed)
