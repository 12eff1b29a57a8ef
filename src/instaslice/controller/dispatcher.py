"""Decides: which pods get slices where, when they are let go, when slices are taken back.

Level-based and without a network: it is told what is there (nodes, Instaslice objects, pods), looks at what is and
not at what happened, and gives orders. The controller carries them out; `explain` and tests give it other ears.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from math import ceil
from random import Random
from typing import TypeVar

from instaslice.api import names
from instaslice.api.instaslice import AllocationState, Instaslice, PodRef
from instaslice.api.pods import gated, held_by_others, lost_if_it_fails, pinned, refused_by_scheduler, unbound
from instaslice.controller import node_admission
from instaslice.controller.deadlines import Deadlines
from instaslice.controller.ledger import Ledger, LedgerChanges, NodeRecord
from instaslice.controller.longest_waiting import LongestWaiting
from instaslice.controller.node_capacity import NodeCapacities
from instaslice.controller.orders import Limits, Orders
from instaslice.controller.pod_request import PodRequest, PodRequests
from instaslice.controller.quarantine import ObjectKind, Quarantine
from instaslice.controller.requests import Amounts, effective
from instaslice.controller.reservations import Reservation
from instaslice.controller.scheduling.filters import Filters
from instaslice.controller.scheduling.refused_nodes import owner
from instaslice.controller.scheduling.storage import Stored
from instaslice.kube.core import Namespace, Node, Pod
from instaslice.placement import Demand, FleetError, Grant, NodeName, Placer, Plan, Policy, Refusal, Short, WaitingQueue
from instaslice.placement.pools import bits

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_RETRY = 5.0
LONGEST_RETRY = 600.0
UNHEALTHY = ("GpuUnhealthy", "NotBound", "SliceLost", "SetAside")
"""What a running pod was told and is to be told the end of."""
LOOK_AGAIN, SHORTEST_LOOK = 10.0, 0.1
"""Seconds between two thoughts about for whom to keep room."""
STEP_SECONDS = 0.02
"""After which a pass, or a choice for whom to keep room, is interrupted, so that everything else has its turn."""
MOST_ASKED = 50
"""Of those who wait, the first of so many shapes are asked whether they need what another pod does not use."""
SLOW = 5.0
"""Seconds after which a pod is told that its slices are being made; mostly they are made before it could read that."""


class Dispatcher:
    def __init__(self, orders: Orders, policy: Policy, clock: Callable[[], float], rng: Random, limits: Limits) -> None:
        self.ledger = Ledger(policy, self._ready)
        self.queue = WaitingQueue()
        index = self.ledger.fleet.index
        self.capacities = NodeCapacities(index.changes())
        self.quarantine = Quarantine()
        self.deadlines = Deadlines(partial(self.quarantine.failed, "what is to be done after a deadline"))
        self.limits = limits
        self.longest_waiting = LongestWaiting(self.ledger, limits.patience)
        self.nodes: dict[NodeName, Node] = {}
        self.filters = Filters(self.nodes)
        self.pods: dict[str, Pod] = {}
        """Those that asked for slices, by uid."""
        self.arrivals = 0
        self._orders = orders
        self._clock = clock
        self._rng = rng
        self._requests: dict[str, PodRequest] = {}
        self._admission_changes = index.changes()
        self._request_factory = PodRequests(self.nodes, self._admission_changes, self.capacities, self.ledger.placer)
        self._new: set[str] = set()
        """In line since they were last asked for."""
        self._outdated: dict[str, None] = {}
        """Those whose shape has to be found again."""
        self._lost_reservations: set[str] = set()
        """Ungated pods whose reservation is lost."""
        self._dead_nodes: set[NodeName] = set()
        """Nodes that have not been ready for too long."""
        self._blocked_counts: dict[str, int] = {}
        """How often a pod was not let go though its slices were made."""
        self.backing_off: dict[str, str] = {}
        """Pods that are not placed again for a while for that reason."""
        self._failures: dict[Grant, int] = {}
        self._again = 0.0
        """When to think again about keeping room."""
        self._unkeepable: set[str] = set()
        """Pods that room cannot be kept for, of those that were thought about since then."""
        self._pass_complete = True
        self._complete = False

    @property
    def due(self) -> float | None:
        """When `decide` has to be called though nothing woke it."""
        if not self._pass_complete:
            return self._clock()
        again = self._again if len(self.queue) else None
        return min((each for each in (self.deadlines.next, again) if each is not None), default=None)

    # What is there --------------------------------------------------------------------------------------------------

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        name = NodeName(_changed(old, new).metadata.name)
        self.quarantine.release(ObjectKind.NODE, name)
        try:
            self._handle_node(name, new)
        except Exception as error:
            self.quarantine_object(ObjectKind.NODE, name, error)
        if new is None:
            self.quarantine.release(ObjectKind.NODE, name)

    def instaslice_changed(self, old: Instaslice | None, new: Instaslice | None) -> None:
        name = NodeName(_changed(old, new).metadata.name)
        self.quarantine.release(ObjectKind.INSTASLICE, name)
        try:
            self._handle_instaslice(name, old, new)
        except Exception as error:
            self.quarantine_object(ObjectKind.INSTASLICE, name, error)
        if new is None:
            self.quarantine.release(ObjectKind.INSTASLICE, name)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Any pod of the cluster: all take CPU and memory."""
        uid = _changed(old, new).metadata.uid
        self.quarantine.release(ObjectKind.POD, uid)
        try:
            self._handle_pod(uid, old, new)
        except Exception as error:
            if new is not None and (uid in self.pods or names.REQUESTED in new.metadata.annotations):
                self.pods[uid] = new
            self.quarantine_object(ObjectKind.POD, uid, error)
        if new is None:
            self.quarantine.release(ObjectKind.POD, uid)

    def quarantine_object(self, kind: ObjectKind, key: str, error: Exception) -> None:
        """Leave an object alone until it changes, which could not be handled or cannot be read. Nobody is sent to such
        a node, and such a pod does not wait any more; but what was promised stays promised."""
        why = self.quarantine.add(kind, key, error)
        match kind:
            case ObjectKind.POD:
                self.queue.remove(key)
                self._lost_reservations.discard(key)
                self._orders.update_condition(key)
            case ObjectKind.NODE:
                self.filters.node_changed(self.nodes.pop(NodeName(key), None), None)
                self.capacities.remove_node(key)
                self._admission_changes.add(NodeName(key))
                self._capacity_freed()  # where pods are spread over nodes, one less may be what they wait for
            case ObjectKind.INSTASLICE:
                self.ledger.quarantine(NodeName(key), f"its Instaslice object is set aside ({why})")

    def _handle_node(self, name: NodeName, new: Node | None) -> None:
        if new is None:
            self._node_gone(name)
            return
        old = self.nodes.get(name)
        changed = self.capacities.set_node(new)
        self.nodes[name] = new
        if old is None or node_admission.facts(old) != node_admission.facts(new):
            self._admission_changes.add(name)
            self.filters.node_changed(old, new)
            changed = True
        if new.ready:
            self._dead_nodes.discard(name)
        if old is None or old.ready != new.ready:
            self._apply_changes(self.ledger.reassign_gpus())
            if not new.ready:
                self.deadlines.at(self._clock() + self.limits.node, partial(self._node_overdue, name, new))
        if changed:
            self._capacity_freed()

    def _handle_instaslice(self, name: NodeName, old: Instaslice | None, new: Instaslice | None) -> None:
        if new is None:
            self._apply_changes(self.ledger.remove(name))
            return
        changes = self.ledger.update(new, self._clock())
        if old is None or old.status != new.status:
            self._agent_responded(self.ledger.nodes[name])
        if changes.pods or changes.quarantined:
            changes.nodes.add(name)
        self._apply_changes(changes)
        for uid in [each for each in self._lost_reservations if pinned(self.pods[each]) == name]:
            self.reconcile_pod(uid)

    def _apply_changes(self, changes: LedgerChanges) -> None:
        for place in changes.quarantined:
            self._placement_failed(place)
        for uid in changes.pods:
            self.reconcile_pod(uid)
        for name in changes.nodes:
            self._orders.write_spec(name, soon=False)
        if changes.freed:
            self._capacity_freed()

    def _ready(self, name: NodeName) -> bool:
        node = self.nodes.get(name)
        return node is not None and node.ready

    def _handle_pod(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        if new is None or new.ended:
            self._uncharge(uid)
        else:
            if (
                new.spec.node_name
                and (old is None or old.ended or old.spec != new.spec)
                and self.capacities.charge(uid, new.spec.node_name, effective(new))
            ):
                self._capacity_freed()
            self._update_filters(new)
        if new is not None and (uid in self.pods or names.REQUESTED in new.metadata.annotations or gated(new)):
            self.pods[uid] = new
            if old is not None and (old.spec != new.spec or old.metadata.labels != new.metadata.labels):
                self._refresh_request(new)
            self.reconcile_pod(uid)
        elif self.pods.pop(uid, None) is not None:
            self.reconcile_pod(uid)
            self._requests.pop(uid, None)
            self._reset_backoff(uid)

    def storage_changed(self, old: Stored | None, new: Stored | None) -> None:
        """Claims and volumes, and what says where they can be used."""
        try:
            helps = self.filters.storage_changed(old, new)
        except Exception as error:
            thing = new or old
            name = thing.metadata.name if thing is not None else ""
            self.quarantine.failed(f"{type(thing).__name__} {name} is left as it was", error)
            return
        if helps:
            # Those that waited for a claim may now wait for something else, and are to be told.
            self._new |= self.filters.held_by_claims
            self.filters.held_by_claims.clear()
            self._capacity_freed()

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        try:
            helps = self.filters.namespace_changed(old, new)
        except Exception as error:
            self.quarantine.failed(f"namespace {_changed(old, new).metadata.name} is left as it was", error)
            return
        if helps:
            self._capacity_freed()

    def _update_filters(self, pod: Pod) -> None:
        """What other pods are judged by: where this one is, and what it demands of them."""
        if pod.spec.node_name:
            helps = self.filters.assign(pod, NodeName(pod.spec.node_name))
        else:
            helps = self.filters.refresh(pod)
        if helps:
            self._capacity_freed()
        if told := self.filters.tells_apart(pod):
            self._mark_outdated(uid for uid in self.queue.uids() if told(self.pods[uid]))

    def _mark_outdated(self, uids: Iterable[str]) -> None:
        """More counts for these pods than did when they came. Until they are of other shapes they are only asked for
        too seldom: each is judged by itself."""
        self._outdated.update(dict.fromkeys(uids))
        if self._outdated:
            self._orders.wake()

    def _refresh_outdated(self, over: Callable[[], bool]) -> None:
        while self._outdated and not over():
            uid, _ = self._outdated.popitem()
            if uid not in self.queue:
                continue
            try:
                self._refresh_request(self.pods[uid])
                self._queue(self.pods[uid])
            except Exception as error:
                self.quarantine_object(ObjectKind.POD, uid, error)

    def _refresh_request(self, pod: Pod) -> None:
        """Where a pod may go can be narrowed while it waits: it is of another shape then, and keeps its time."""
        self.queue.remove(pod.metadata.uid)
        if (before := self._requests.pop(pod.metadata.uid, None)) is not None and gated(pod):
            self.request(pod).queued_at = before.queued_at

    def resume(self) -> None:
        """All that is there was told: from now on what is missing is gone. Nothing is decided before."""
        self._complete = True
        for reservation in self.ledger.reservations.values():
            # It was asked for of an earlier process, and tells what to expect.
            self.ledger.placer.arrived(Demand(tuple(tracked.allocation.profile for tracked in reservation.allocations)))
        for uid in {**self.ledger.reservations, **self.pods}:
            self.reconcile_pod(uid)
        for name in self.ledger.nodes:
            self._orders.write_spec(name, soon=False)
        self._orders.wake()

    def _capacity_freed(self) -> None:
        """There may be room for somebody who was refused before."""
        self.queue.retry_all()
        if len(self.queue):
            self._orders.wake()

    def _uncharge(self, uid: str) -> None:
        helps = self.filters.remove(uid)
        if self.capacities.discharge(uid) or helps:
            self._capacity_freed()

    # Decide ---------------------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """One pass along the line, or as much of it as may be done at once: `due` says when to go on."""
        now = self._clock()
        until = now + STEP_SECONDS

        def over() -> bool:
            return self._clock() >= until

        self.deadlines.run(now, over)
        self._refresh_outdated(over)
        self._keep_room(now, until)
        self._pass_complete = self.queue.serve(self._try_place, over) and not self._outdated
        for uid in [each for each in self._new if each not in self.queue or self.queue.was_refused(each)]:
            self._new.discard(uid)
            if uid in self.queue:
                self._orders.update_condition(uid)

    def refusal(self, uid: str) -> Refusal | None:
        """Why a waiting pod finds no room now. Read its words before anything changes."""
        request, pod = self._requests[uid], self.pods[uid]
        if self._plan(pod, request) is not None:
            return None
        answer = self.fits_beside(pod, request)
        if isinstance(answer, Plan):
            # Its GPUs have room, but the node advertises less than they hold, or pods run there whose slices are lost
            # and are still counted. Said only then, as words about GPUs say more.
            verdict = self.filters.for_pod(pod)
            answer = self.ledger.placer.place(
                request.demand(lambda name: name in request.admitted and name in request.fits and verdict(name) is None)
            )
        return answer if isinstance(answer, Refusal) else None

    def fits_beside(self, pod: Pod, request: PodRequest) -> Plan | Refusal:
        """Where the pod would go if nobody counted our own resources."""
        verdict = self.filters.for_pod(pod)
        return self.ledger.placer.place(
            request.demand(
                lambda name: name in request.admitted and name in request.fits_beside and verdict(name) is None
            )
        )

    def request(self, pod: Pod) -> PodRequest:
        """What a pod wants."""
        found = self._requests.get(pod.metadata.uid)
        if found is None:
            found = self._requests[pod.metadata.uid] = self._request_factory.of(pod, self.filters.shape(pod))
        return found

    def _try_place(self, uid: str) -> bool:
        """Whether the pod waits no longer: it is placed, or set aside."""
        try:
            return self._place(uid)
        except Exception as error:
            self.quarantine_object(ObjectKind.POD, uid, error)
            return True

    def _place(self, uid: str) -> bool:
        request, reserved = self._requests[uid], self.longest_waiting.is_for(uid)
        with self.longest_waiting.lifted_for(uid):
            plan = self._plan(self.pods[uid], request)
            if plan is not None:
                self._reserve(self.pods[uid], request, plan)
        if plan is not None and reserved:
            self._capacity_freed()  # what it leaves of what was reserved for it
        return plan is not None

    def _plan(self, pod: Pod, request: PodRequest) -> Plan | None:
        index, verdict = self.ledger.fleet.index, self.filters.for_pod(pod)
        nodes = request.nodes(index.all) if verdict.everywhere is None else 0
        if nodes and verdict.checks:
            nodes = sum(1 << bit for bit in bits(nodes) if verdict(index.name(bit)) is None)
        if not nodes:
            return None

        def among(name: NodeName) -> bool:
            bit = index.bit(name)
            return bit is not None and bool(nodes >> bit & 1)

        prefers = self.filters.preferences(pod, map(index.name, bits(nodes)))
        plan = self.ledger.placer.place(request.demand(among, prefers))
        return plan if isinstance(plan, Plan) else None

    def _reserve(self, pod: Pod, request: PodRequest, plan: Plan) -> None:
        meta = pod.metadata
        reservation = self.ledger.reserve(
            PodRef(namespace=meta.namespace, name=meta.name, uid=meta.uid),
            request.slices,
            plan,
            self._attempt(),
            self._clock(),
            cpu=request.cpu,
            memory=request.memory,
        )
        self._track_deadlines(pod, reservation)
        self._orders.write_spec(plan.node, soon=True)

    def _attempt(self) -> str:
        return f"{self._rng.getrandbits(32):08x}"

    def _track_deadlines(self, pod: Pod, reservation: Reservation) -> None:
        """Count what the pod will use there, and see to it that it does not wait for ever. A reservation that was made
        before this process began has its whole time once more."""
        reservation.charged = True
        if pod.spec.node_name:
            return
        now = self._clock()
        self.capacities.charge(reservation.uid, reservation.node, self.request(pod).amounts)
        if self.filters.assign(pod, reservation.node):
            self._capacity_freed()
        if gated(pod):
            self.deadlines.at(now + self.limits.create, partial(self._create_overdue, reservation))
            # To the second, so that of a burst there is one look a second and not one a pod.
            self.deadlines.at(ceil(now + SLOW), partial(self._create_slow, reservation))
        else:
            self.deadlines.at(now + self.limits.bind, partial(self._bind_overdue, reservation))

    # One pod --------------------------------------------------------------------------------------------------------

    def reconcile_pod(self, uid: str) -> None:
        """Do what the state of a pod asks for. Safe to repeat."""
        if not self._complete or self.quarantine.why(ObjectKind.POD, uid):
            return
        try:
            self._reconcile(uid)
        except Exception as error:
            self.quarantine_object(ObjectKind.POD, uid, error)

    def _reconcile(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if uid in self.ledger.duplicates:
            for other in self.ledger.resolve_duplicates(uid, _assigned_uuids(pod)):
                self._orders.write_spec(other.node, soon=True)
        reservation = self.ledger.reservations.get(uid)
        known = uid in self._lost_reservations
        self._lost_reservations.discard(uid)
        if pod is None or pod.ended or self._terminated_unseen(pod):
            if self.queue.remove(uid) and self.longest_waiting.is_for(uid):
                self._orders.wake()  # what is kept for it is for others now
            if reservation is not None:
                self._release(reservation, _why_gone(pod))
                if pod is not None and not pod.ended:
                    self._orders.update_condition(uid)
        elif reservation is not None and _may_use(pod, reservation):
            # An object that comes back brings reservations for pods that have waited since.
            self.queue.remove(uid)
            self._advance(pod, reservation)
        elif gated(pod):
            if not held_by_others(pod):
                self._queue(pod)
        elif reservation is not None:
            self._release(reservation, f"the pod was let go to node {pinned(pod)} before")
            self._reconcile(uid)
        elif names.MIG_UUIDS in pod.metadata.annotations and not self._restored(pod):
            self._lost_reservations.add(uid)
            self._orders.update_condition(uid)
            if not known and not pod.spec.node_name:
                self.deadlines.at(self._clock() + self.limits.bind, partial(self._lost_overdue, uid))

    def _terminated_unseen(self, pod: Pod) -> bool:
        """It was deleted, and there is no kubelet that would say when it has ended."""
        node = NodeName(pod.spec.node_name)
        return pod.metadata.deletion_timestamp is not None and (not node or node in self._dead_nodes)

    def _advance(self, pod: Pod, reservation: Reservation) -> None:
        uid, failed = reservation.uid, reservation.failed
        if not reservation.charged:
            self._track_deadlines(pod, reservation)
            # Whoever promised it may have been killed before it said so.
            self._orders.update_condition(uid)
        if gated(pod):
            blocked = "" if failed else self._ungate_blocked_by(pod, reservation)
            if failed or blocked:
                self._release(reservation, failed or blocked)
                self._orders.update_condition(uid)
                if blocked:
                    self._back_off(uid, blocked)
                self._queue(pod)
            elif reservation.created and self.ledger.nodes[reservation.node].unready:
                # Ungated now, it would be refused there. `_create_overdue` places it elsewhere if this lasts.
                self._orders.update_condition(uid)
            elif reservation.created:
                for tracked in reservation.allocations if self._failures else ():
                    self._failures.pop(tracked.grant, None)
                self._orders.ungate(uid)
            return
        self._reset_backoff(uid)
        if any(tracked.allocation.state is not AllocationState.UNGATED for tracked in reservation.allocations):
            reservation.set_state(AllocationState.UNGATED)
            self._orders.write_spec(reservation.node, soon=False)
            self._orders.update_condition(uid)
            if not pod.spec.node_name:
                self.deadlines.at(self._clock() + self.limits.bind, partial(self._bind_overdue, reservation))
        told = pod.condition(names.SLICE_READY)
        was_unhealthy = told is not None and told.reason in UNHEALTHY
        closed = self.ledger.nodes[reservation.node].closed
        if failed or was_unhealthy or any(tracked.allocation.gpu in closed for tracked in reservation.allocations):
            self._orders.update_condition(uid)

    def _ungate_blocked_by(self, pod: Pod, reservation: Reservation) -> str:
        """Why a pod that may go now is better not let go: its node was cordoned, say, since it was chosen, and nobody
        would bind the pod there."""
        node = self.nodes.get(reservation.node)
        if not reservation.created or node is None:
            return ""
        refusal = node_admission.refusal(pod, node)
        if refusal is None and (refused := self.filters.for_pod(pod, pinned=reservation.node)(reservation.node)):
            return f"nobody would bind the pod to node {reservation.node} any more: {refused}"
        return f"node {reservation.node} {refusal}" if refusal else ""

    def _back_off(self, uid: str, why: str) -> None:
        """Where a slice that was made was of no use, the second time and from then on, the next is made later and
        later: what we think of a node before it and after it may differ for as long as the pod is there."""
        count = self._blocked_counts[uid] = self._blocked_counts.get(uid, 0) + 1
        if count > 1:
            self.backing_off[uid] = why
            self.deadlines.at(
                self._clock() + min(LONGEST_RETRY, 2.0 ** min(count - 2, 20)), partial(self._backoff_over, uid)
            )

    def _backoff_over(self, uid: str, _: float) -> None:
        if self.backing_off.pop(uid, None) is not None:
            self.reconcile_pod(uid)

    def _reset_backoff(self, uid: str) -> None:
        self._blocked_counts.pop(uid, None)
        self.backing_off.pop(uid, None)

    def _queue(self, pod: Pod) -> None:
        request = self.request(pod)
        if request.invalid:
            self._orders.update_condition(pod.metadata.uid)
        uid, meta = pod.metadata.uid, pod.metadata
        if not request.slices or uid in self.backing_off:
            return
        since = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
        if self.queue.add(uid, request.shape, pod.spec.priority, since, meta.namespace):
            # What was lost with its node's object, or its GPU, would count against the pod itself.
            self._uncharge(uid)
            if request.queued_at is None:
                request.queued_at = self._clock()
                self.arrivals += 1
                self.ledger.placer.arrived(request.demand())
            self._new.add(uid)
            self._orders.wake()

    def _release(self, reservation: Reservation, reason: str) -> None:
        self.ledger.release(reservation.uid, reason)
        pod = self.pods.get(reservation.uid)
        if pod is None or not pod.spec.node_name:
            self._uncharge(reservation.uid)
        self._orders.write_spec(reservation.node, soon=True)

    def _restored(self, pod: Pod) -> bool:
        meta, node = pod.metadata, NodeName(pod.spec.node_name)
        ref = PodRef(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        request, now, told = self.request(pod), self._clock(), _assigned_uuids(pod)
        disputed = {
            uuid
            for other in self.pods.values()
            if other.metadata.uid != meta.uid and not other.ended and pinned(other) == node
            for uuid in _assigned_uuids(other)
        } & set(told)
        if not self.ledger.restore(
            ref,
            request.slices,
            node,
            told,
            self._attempt(),
            now,
            cpu=request.cpu,
            memory=request.memory,
            disputed=disputed,
        ):
            return False
        log.info("pod %s/%s: found its slices on %s again", meta.namespace, meta.name, node)
        self._orders.write_spec(node, soon=True)
        return True

    # When something takes too long ----------------------------------------------------------------------------------

    def _create_slow(self, reservation: Reservation, _: float) -> None:
        if self.ledger.reservations.get(reservation.uid) is reservation and not reservation.created:
            self._orders.update_condition(reservation.uid)

    def _create_overdue(self, reservation: Reservation, now: float) -> None:
        pod = self.pods.get(reservation.uid)
        if self.ledger.reservations.get(reservation.uid) is not reservation or pod is None or not gated(pod):
            return
        unready = self.ledger.nodes[reservation.node].unready
        if reservation.created and not unready:
            # Its gate is about to go, unless the node falls silent before that.
            self.deadlines.at(now + self.limits.create, partial(self._create_overdue, reservation))
            return
        silent = f"the agent of node {reservation.node} has not answered for {now - reservation.since:.0f} s"
        words = unready or silent
        log.warning("pod %s/%s: %s; trying elsewhere", pod.metadata.namespace, pod.metadata.name, words)
        for gpu in self.ledger.nodes[reservation.node].gpus:
            self.ledger.close(gpu, reservation.node, "silent", words)
        self._release(reservation, words)
        self._orders.update_condition(reservation.uid)
        self._queue(pod)

    def _agent_responded(self, record: NodeRecord) -> None:
        """The agent of a node has spoken: it may have been silent before."""
        opened = [self.ledger.reopen(gpu, record.name, "silent") for gpu in record.gpus]
        if any(opened):
            self._capacity_freed()

    def _bind_overdue(self, reservation: Reservation, now: float) -> None:
        """A pod that its owner replaces fails, so that the next one can be sent elsewhere: this one is pinned. Any
        other keeps its slices, as what is in its way may go, until somebody who waits would get them."""
        pod = self.pods.get(reservation.uid)
        if self.ledger.reservations.get(reservation.uid) is not reservation or pod is None or pod.spec.node_name:
            return
        if not reservation.overdue and refused_by_scheduler(pod):
            self._refused(pod, reservation.node, now)
        if lost_if_it_fails(pod) and not self._needed(reservation):
            if not reservation.overdue:
                reservation.overdue = True
                self._orders.update_condition(reservation.uid)
            self.deadlines.at(now + min(LOOK_AGAIN, self.limits.bind), partial(self._bind_overdue, reservation))
            return
        late = f"not bound to node {reservation.node} within {self.limits.bind:.0f} s"
        self._orders.fail(reservation.uid, f"{late} ({unbound(pod)})")

    def _refused(self, pod: Pod, node: NodeName, now: float) -> None:
        """Send no other pod of its owner there for a while: whatever it was that we do not see would refuse it too."""
        wait, name = self.filters.not_bound(pod, node), owner(pod)
        self.deadlines.at(now + wait, partial(self._try_again, name, node))
        self._mark_outdated([uid for uid in self.queue if owner(self.pods[uid]) == name])

    def _try_again(self, name: str, node: NodeName, _: float) -> None:
        self.filters.retry(name, node)
        self._capacity_freed()

    def _needed(self, reservation: Reservation) -> bool:
        """Whether a pod that waits, one of the first, would find room if these slices were given back."""
        there = self.ledger.fleet.nodes.get(reservation.node)
        if there is None or not len(self.queue):
            return False
        emptied = self.ledger.fleet.alone(there)
        with suppress(FleetError):  # of a GPU that is closed nobody gets anything
            for tracked in reservation.allocations:
                emptied.give_back(tracked.grant)
        placer = Placer(emptied, self.ledger.placer.policy)
        self.capacities.discharge(reservation.uid)
        try:
            return any(self._would_take(head.uid, placer) for head in self.queue.heads_round_robin()[:MOST_ASKED])
        finally:
            self.capacities.charge(reservation.uid, reservation.node, self.request(self.pods[reservation.uid]).amounts)

    def _would_take(self, uid: str, placer: Placer) -> bool:
        """Whether a pod that waits would go where the placer places."""
        request, verdict = self._requests[uid], self.filters.for_pod(self.pods[uid])
        if not any(name in request.admitted for name in placer.fleet.nodes):
            return False
        demand = request.demand(
            lambda name: name in request.admitted and name in request.fits and verdict(name) is None
        )
        return isinstance(placer.place(demand), Plan)

    def _lost_overdue(self, uid: str, now: float) -> None:
        """Sent to a node whose Instaslice object went away: it can run nowhere else."""
        if uid not in self._lost_reservations or self.pods[uid].spec.node_name:
            return
        node = pinned(self.pods[uid])
        if self.quarantine.why(ObjectKind.INSTASLICE, node):
            # Its slices may stand in there.
            self.deadlines.at(now + self.limits.bind, partial(self._lost_overdue, uid))
            return
        self._orders.fail(uid, f"its slices on node {node} are gone" if node else "its slices are gone")

    def _node_overdue(self, name: NodeName, then: Node, _: float) -> None:
        node = self.nodes.get(name)
        if node is None or node.ready or node.metadata.uid != then.metadata.uid:
            return
        self._dead_nodes.add(name)
        self._evacuate_node(name, f"node {name} has not been ready for {self.limits.node:.0f} s")

    def _node_gone(self, name: NodeName) -> None:
        self.filters.node_changed(self.nodes.pop(name, None), None)
        self._dead_nodes.discard(name)
        self.capacities.remove_node(name)
        self._admission_changes.add(name)
        self._evacuate_node(name, f"node {name} is gone")
        self._apply_changes(self.ledger.reassign_gpus())
        self._capacity_freed()  # where pods are spread over nodes, one less may be what they wait for

    def _evacuate_node(self, name: NodeName, words: str) -> None:
        """Nothing will come of what was promised there. Pods that did not start yet are placed anew, those that can
        only start there fail, and those that Kubernetes has deleted give back what they held."""
        for reservation in [each for each in self.ledger.reservations.values() if each.node == name]:
            pod = self.pods.get(reservation.uid)
            if pod is None:
                continue
            try:
                self._evacuate_pod(pod, reservation, words)
            except Exception as error:
                self.quarantine_object(ObjectKind.POD, reservation.uid, error)

    def _evacuate_pod(self, pod: Pod, reservation: Reservation, words: str) -> None:
        if gated(pod):
            self._release(reservation, words)
            self._queue(pod)
        elif not pod.spec.node_name:
            self._orders.fail(reservation.uid, words)
        elif pod.metadata.deletion_timestamp is not None or reservation.node not in self.nodes:
            self._release(reservation, words)
        self._orders.update_condition(reservation.uid)

    def _placement_failed(self, place: Grant) -> None:
        """A place that failed is tried again later and later; at once when its agent says that the GPU is well."""
        count = self._failures[place] = self._failures.get(place, 0) + 1
        wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(count - 1, 20))
        self.deadlines.at(self._clock() + wait, partial(self._retry_placement, place))
        self._orders.wake()

    def _retry_placement(self, place: Grant, _: float) -> None:
        if self.ledger.retry_placement(place.node, place):
            self._capacity_freed()

    # Patience -------------------------------------------------------------------------------------------------------

    def _keep_room(self, now: float, until: float) -> None:
        """Once a pod has waited too long, keep room for it: for the first in line that any node could hold. Choose
        anew now and then, since what is in the way there may never end."""
        kept = self.longest_waiting.reserved
        if kept is not None and (kept.uid not in self.queue or kept.until <= now):
            self.longest_waiting.release()
            self.queue.retry_all()
            self._again = now
        if self.longest_waiting.reserved is None and now >= self._again:
            self._again = now + self._choose(now, until)

    def _choose(self, now: float, until: float) -> float:
        """Seconds until there is something to choose again."""
        least = self.limits.patience
        for head in self.queue.heads():
            request, pod = self._requests[head.uid], self.pods[head.uid]
            assert request.queued_at is not None, "it stands in line"
            left = request.queued_at + self.limits.patience - now
            if left > 0:
                least = min(least, left)
            elif head.uid not in self._unkeepable:
                if self._kept(pod, request, now):
                    self._unkeepable.clear()
                    return self.limits.patience
                self._unkeepable.add(head.uid)
                if self._clock() >= until:
                    return SHORTEST_LOOK
        # Those that no node could hold are looked at again: a node may have come.
        self._unkeepable.clear()
        return max(min(least, LOOK_AGAIN), SHORTEST_LOOK)

    def _kept(self, pod: Pod, request: PodRequest, now: float) -> bool:
        try:
            return self._keep(pod, request, now)
        except Exception as error:
            self.quarantine_object(ObjectKind.POD, pod.metadata.uid, error)
            return False

    def _keep(self, pod: Pod, request: PodRequest, now: float) -> bool:
        """Keep room for a pod that has waited too long; False where it fits now, or no node could ever hold it."""
        nodes = request.admitted.among(self.ledger.fleet.index.all)
        held = self.filters.for_pod(pod).everywhere
        refusal = self.refusal(pod.metadata.uid) if nodes and held is None else None
        if refusal is None:
            return False
        could = partial(self.could_admit, pod, request.amounts)
        return self.longest_waiting.reserve(
            pod.metadata.uid, request.profiles, could, refusal.short is Short.NODES, now
        )

    def could_admit(self, pod: Pod, amounts: Amounts, name: NodeName) -> bool:
        """Whether a node would admit the pod if nothing ran there."""
        return self.could_suffice(pod, amounts, name) and self.filters.for_pod(pod)(name, emptied=True) is None

    def could_suffice(self, pod: Pod, amounts: Amounts, name: NodeName) -> bool:
        """The same, whatever volumes and other pods elsewhere say."""
        node = self.nodes.get(name)
        return (
            node is not None and node_admission.refusal(pod, node) is None and self.capacities.could_hold(name, amounts)
        )


def _changed(old: T | None, new: T | None) -> T:
    """The object that a change is of."""
    thing = new or old
    assert thing is not None, "a change has two sides"
    return thing


def _may_use(pod: Pod, reservation: Reservation) -> bool:
    """Whether the pod can still run where it was promised slices. One that was let go to another node cannot: a write
    that had no answer took effect after those slices had failed and others were promised."""
    return gated(pod) or pinned(pod) in ("", reservation.node)


def _assigned_uuids(pod: Pod | None) -> list[str]:
    """The slices that a pod that is past its gate was given."""
    uuids = pod.metadata.annotations.get(names.MIG_UUIDS, "") if pod is not None and not gated(pod) else ""
    return uuids.split(",") if uuids else []


def _why_gone(pod: Pod | None) -> str:
    if pod is None:
        return "the pod is gone"
    return f"the pod has {pod.status.phase.lower()}" if pod.ended else "the pod was deleted"
