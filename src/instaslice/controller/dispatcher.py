"""Decides which pods get slices, and when: takes in what the watches report, and serves the waiting queue.

Level-based and without a network: it compares what is with what should be, whatever happened in between, and gives
orders. The controller carries them out; `explain` and tests pass `NullOrders`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TypeVar

from instaslice.api import names
from instaslice.api.instaslice import Instaslice
from instaslice.api.memory_terms import terms_of
from instaslice.api.pods import gated, pinned_node, was_mutated
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.deadlines import Deadlines
from instaslice.controller.node_record import LedgerChanges, NodeRecord
from instaslice.controller.orders import Limits, Orders
from instaslice.controller.placement_check.workload_holds import WorkloadHolds
from instaslice.controller.pod_placer import PodPlacer
from instaslice.controller.pod_queue import PodQueue
from instaslice.controller.pod_reconciler import SILENT, PodReconciler
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.requests import effective
from instaslice.kube.core import Lease, Namespace, Node, Pod
from instaslice.kube.heartbeat import Renewals
from instaslice.kube.meta import key_of
from instaslice.kube.storage import StorageObject
from instaslice.placement import Demand, NodeName, Short
from instaslice.placement.longest_waiting import LongestWaiting

T = TypeVar("T")

STEP_SECONDS = 0.02
"""After which a pass, or the choice of the pod that GPUs are reserved for, is interrupted: all else has its turn."""


class Dispatcher:
    def __init__(
        self, state: ClusterState, orders: Orders, clock: Callable[[], float], rng: Random, limits: Limits
    ) -> None:
        self.state = state
        self.limits = limits
        self.placer = PodPlacer(state)
        self.deadlines = Deadlines(partial(state.quarantine.failed, "what is to be done after a deadline"), orders.wake)
        self.longest_waiting = LongestWaiting(state.ledger.fleet, state.queue, limits.patience)
        self._queue = PodQueue(state, self.placer, orders, clock)
        self.holds = WorkloadHolds(state, self.placer, self._queue.retry_all)
        self.placer.held_for = self.holds.key
        self._pods = PodReconciler(
            state, self.placer, self._queue, self.longest_waiting, self.deadlines, orders, clock, rng, limits
        )
        self._orders = orders
        self._clock = clock
        self._renewals = Renewals()
        self._pass_complete = True

    # What the watches report ----------------------------------------------------------------------------------------

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        name = NodeName(_changed(old, new).metadata.name)
        with self._contained(ObjectKind.NODE, name, gone=new is None):
            self._handle_node(name, new)

    def instaslice_changed(self, old: Instaslice | None, new: Instaslice | None) -> None:
        name = NodeName(_changed(old, new).metadata.name)
        with self._contained(ObjectKind.INSTASLICE, name, gone=new is None):
            self._handle_instaslice(name, old, new)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Any pod of the cluster: all take CPU and memory."""
        uid, pods = _changed(old, new).metadata.uid, self.state.pods
        if new is not None and (uid in pods or was_mutated(new) or gated(new)):
            pods[uid] = new
        with self._contained(ObjectKind.POD, uid, gone=new is None):
            self._handle_pod(uid, old, new)

    def storage_changed(self, old: StorageObject | None, new: StorageObject | None) -> None:
        """Claims and volumes, and what says where they can be used."""
        filters = self.state.filters
        try:
            helps = filters.storage_changed(old, new)
        except Exception as error:
            thing = new or old
            name = thing.metadata.name if thing is not None else ""
            self.state.quarantine.failed(f"{type(thing).__name__} {name} is left as it was", error)
            return
        if helps:
            # Pods that waited for a claim may wait for something else now, which their condition must say.
            self._queue.newly_queued |= filters.held_by_claims
            filters.held_by_claims.clear()
            self._queue.retry_all()

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        try:
            helps = self.state.filters.namespace_changed(old, new)
        except Exception as error:
            name = _changed(old, new).metadata.name
            self.state.quarantine.failed(f"namespace {name} is left as it was", error)
            return
        if helps:
            self._queue.retry_all()

    def set_silent_leases(self, silent: frozenset[str]) -> None:
        """The Leases that agents do not renew any more: nothing is placed on their nodes until they do."""
        changed, self.state.silent_leases = silent ^ self.state.silent_leases, silent
        if changed:
            for name in [each.name for each in self.state.ledger.nodes.values() if each.status.lease in changed]:
                self._apply(self.state.ledger.update_readiness(name))
            self._queue.retry_asks_by_memory()

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """Of an agent that serves nodes without a kubelet. Without a Lease nothing is said of it."""
        if new is None:
            self._renewals.forget(key_of(_changed(old, new)))
        else:
            self.deadlines.at(self._renewals.observe(new, self._clock()), self._judge_leases)
        self._judge_leases(self._clock())

    def _judge_leases(self, now: float) -> None:
        self.set_silent_leases(frozenset(each.name for each in self._renewals.expired(now)))

    def start(self) -> None:
        """Every object is known: from now on what is missing is gone. Nothing is decided before."""
        self._pods.started = True
        ledger = self.state.ledger
        policy = ledger.placer.policy
        recalled = dict(policy.asked)
        policy.recall({})
        for reservation in ledger.reservations.values():
            ledger.placer.arrived(Demand(tuple(tracked.allocation.profile for tracked in reservation.allocations)))
        for uid in {**ledger.reservations, **self.state.pods}:
            self._pods.reconcile(uid)
        # Pods that run or wait arrived in an earlier process, which counted them, unless it ended just after.
        present = policy.asked
        policy.recall({name: max(recalled.get(name, 0.0), present.get(name, 0.0)) for name in {**recalled, **present}})
        for name in ledger.nodes:
            self._orders.write_spec(name, soon=False)
        self._orders.wake()

    @contextmanager
    def _contained(self, kind: ObjectKind, key: str, *, gone: bool) -> Iterator[None]:
        """A change of an object in quarantine gives it another chance; what fails costs that object alone."""
        self.state.quarantine.release(kind, key)
        try:
            yield
        except Exception as error:
            self.quarantine(kind, key, error)
        if gone:
            self.state.quarantine.release(kind, key)

    def quarantine(self, kind: ObjectKind, key: str, error: Exception) -> None:
        """Leave an object alone until it changes, as it cannot be read or handled. Such a node gets no pods, and such a
        pod does not wait any more; but what is reserved stays reserved."""
        if kind is ObjectKind.POD:
            self._pods.quarantine(key, error)
            return
        why, name = self.state.quarantine.add(kind, key, error), NodeName(key)
        if kind is ObjectKind.NODE:
            self.state.remove_node(name)
            self._queue.retry_all()  # a pod may wait for its kind to spread over one node less
        else:
            self.state.ledger.quarantine(name, f"its Instaslice object is set aside ({why})")
            self._queue.retry_asks_by_memory()

    def _handle_node(self, name: NodeName, new: Node | None) -> None:
        old = self.state.nodes.get(name)
        if new is None:
            self._node_gone(name)
            return
        helps = self.state.set_node(new)
        if new.ready:
            self.state.dead_nodes.discard(name)
        if old is None:
            self._apply(self.state.ledger.reassign_gpus())
        if not new.ready and (old is None or old.ready):
            self.deadlines.at(self._clock() + self.limits.node, partial(self._node_overdue, name, new))
        if helps:
            self._apply(self.state.ledger.update_readiness(name))
            self._queue.retry_all()

    def _node_gone(self, name: NodeName) -> None:
        self.state.remove_node(name)
        self.state.dead_nodes.discard(name)
        self._evacuate(name, f"node {name} is gone")
        self._apply(self.state.ledger.reassign_gpus())
        self._queue.retry_all()  # a pod may wait for its kind to spread over one node less

    def _node_overdue(self, name: NodeName, then: Node, _: float) -> None:
        node = self.state.nodes.get(name)
        if node is not None and not node.ready and node.metadata.uid == then.metadata.uid:
            self.state.dead_nodes.add(name)
            self._evacuate(name, f"node {name} has not been ready for {self.limits.node:.0f} s")

    def _evacuate(self, name: NodeName, why: str) -> None:
        """Nothing will come of what is reserved there."""
        for reservation in [each for each in self.state.ledger.reservations.values() if each.node == name]:
            pod = self.state.pods.get(reservation.uid)
            if pod is None:
                continue
            try:
                self._pods.evacuate(pod, reservation, why)
            except Exception as error:
                self.quarantine(ObjectKind.POD, reservation.uid, error)

    def _handle_instaslice(self, name: NodeName, old: Instaslice | None, new: Instaslice | None) -> None:
        ledger = self.state.ledger
        if new is None:
            self._apply(ledger.remove(name))
            self._queue.retry_asks_by_memory()
            return
        changes = ledger.update(new, self._clock())
        if old is None or old.status != new.status:
            self._agent_responded(ledger.nodes[name])
        if old is None or _usable_by(old) != _usable_by(new):
            self._queue.retry_asks_by_memory()
        if changes.pods or changes.quarantined:
            changes.nodes.add(name)
        self._apply(changes)
        for uid in [each for each in self._pods.lost if pinned_node(self.state.pods[each]) == name]:
            self._pods.reconcile(uid)

    def _agent_responded(self, record: NodeRecord) -> None:
        """The agent of a node is alive: its GPUs may have been closed because it did not answer."""
        opened = [self.state.ledger.fleet.open(gpu, SILENT) for gpu in record.gpus]
        if any(opened):
            self._queue.retry_all()

    def _apply(self, changes: LedgerChanges) -> None:
        for placement in changes.quarantined:
            self._pods.placement_failed(placement)
        for uid in changes.pods:
            self._pods.reconcile(uid)
        for name in changes.nodes:
            self._orders.write_spec(name, soon=False)
        if changes.freed:
            self._queue.retry_all()

    def _handle_pod(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        if new is None or new.ended:
            self._queue.unassign(uid)
        else:
            self._count(old, new)
        if new is None:
            if self.state.pods.pop(uid, None) is not None:
                self._pods.reconcile(uid)
                self._pods.forget(uid)
        elif uid in self.state.pods:
            if old is not None and _asks_otherwise(old, new):
                self._queue.drop_request(new)
            self._pods.reconcile(uid)

    def _count(self, old: Pod | None, new: Pod) -> None:
        """What other pods are judged by: where this one is, what it takes there, and what it demands of them."""
        state, helps = self.state, False
        if node := NodeName(new.spec.node_name):
            if old is None or old.ended or old.spec != new.spec:
                helps = state.capacities.charge(new.metadata.uid, node, effective(new))
            helps |= state.filters.assign(new, node)
        else:
            helps = state.filters.refresh(new)
        if helps:
            self._queue.retry_all()
        if tells_apart := state.filters.tells_apart(new):
            self._queue.mark_outdated(uid for uid in state.queue.uids() if tells_apart(state.pods[uid]))

    @property
    def lost_pods(self) -> int:
        """Pods past their gate whose slices are not known any more."""
        return len(self._pods.lost)

    # Decide ---------------------------------------------------------------------------------------------------------

    @property
    def pass_complete(self) -> bool:
        """Whether every waiting pod has had its turn."""
        return self._pass_complete

    @property
    def due(self) -> float | None:
        """When `decide` has to be called though nothing woke it."""
        if not self._pass_complete:
            return self._clock()
        return min((each for each in (self.deadlines.next, self.longest_waiting.due) if each is not None), default=None)

    def decide(self) -> None:
        """Serve the queue once, or as much of it as may be done in one step: `due` says when to go on."""
        now = self._clock()
        until = now + STEP_SECONDS

        def expired() -> bool:
            return self._clock() >= until

        self.deadlines.run(now, expired)
        refreshed = self._queue.refresh_outdated(expired)
        self.longest_waiting.choose(now, self._queued_at, partial(self._reserve_gpus, now), expired)
        self._pass_complete = self.state.queue.serve(self._try_place, expired) and refreshed
        self._report_refused()

    def _try_place(self, uid: str) -> bool:
        """Whether the pod waits no longer: it is placed, or quarantined."""
        try:
            return self._place(uid)
        except Exception as error:
            self.quarantine(ObjectKind.POD, uid, error)
            return True

    def _place(self, uid: str) -> bool:
        reserved = self.longest_waiting.is_for(uid)
        placed = self.longest_waiting.open_for(uid, partial(self._reserve_where_it_fits, self.state.pods[uid]))
        if placed and reserved:
            self._queue.retry_all()  # what it leaves of what was reserved for it
        return placed

    def _reserve_where_it_fits(self, pod: Pod) -> bool:
        plan = self.holds.take(pod) or self.placer.plan(pod)
        if plan is not None:
            self._pods.reserve(pod, plan)
        return plan is not None

    def _report_refused(self) -> None:
        queue, new = self.state.queue, self._queue.newly_queued
        for uid in [each for each in new if each not in queue or queue.was_refused(each)]:
            new.discard(uid)
            if uid in queue:
                self._orders.update_condition(uid)

    def _queued_at(self, uid: str) -> float:
        queued_at = self.placer.request(self.state.pods[uid]).queued_at
        assert queued_at is not None, "it is in the queue"
        return queued_at

    def _reserve_gpus(self, now: float, uid: str) -> bool:
        """False where the pod fits now, or no node could ever hold it."""
        pod = self.state.pods[uid]
        try:
            request, index = self.placer.request(pod), self.state.ledger.fleet.index
            if not request.choices or not request.admitted.among(index.all):
                return False
            if self.state.filters.for_pod(pod).rules_out_all is not None:
                return False
            refusal = self.placer.refusal(pod)
            if refusal is None:
                return False
            could, whole_node = partial(self.placer.could_admit, pod), refusal.short is Short.NODES
            return self.longest_waiting.reserve(uid, request.profiles, could, whole_node, now)
        except Exception as error:
            self.quarantine(ObjectKind.POD, uid, error)
            return False


def _usable_by(thing: Instaslice) -> tuple[object, ...]:
    """What says which GPUs of a node can be used."""
    return thing.status.models, thing.status.gpus, thing.status.conditions, thing.status.lease


def _asks_otherwise(old: Pod, new: Pod) -> bool:
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.metadata.annotations.get(names.HELD_FOR) != new.metadata.annotations.get(names.HELD_FOR)
        or terms_of(old.metadata.annotations) != terms_of(new.metadata.annotations)
    )


def _changed(old: T | None, new: T | None) -> T:
    """The object that a change is of."""
    thing = new or old
    assert thing is not None, "a change is of an object"
    return thing
