"""Moves one pod along its lifecycle: queued, reserved, ungated, released; and watches over what takes too long.

Level-based: `reconcile` compares the pod with its reservation and with what the agent reports, orders what is missing,
and is safe to repeat. What concerns one pod alone happens here; the dispatcher decides who is placed.
"""

import logging
from collections.abc import Callable
from functools import partial
from math import ceil
from random import Random

from instaslice.api import names
from instaslice.api.instaslice import PodRef
from instaslice.api.pods import (
    gated,
    is_irreplaceable,
    is_unschedulable,
    mig_uuids,
    other_gates,
    pinned_node,
    was_given_slices,
    why_unbound,
)
from instaslice.api.reasons import PodReason
from instaslice.controller import node_admission
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.deadlines import Deadlines
from instaslice.controller.lifecycle import Phase, phase_of
from instaslice.controller.orders import Limits, Orders
from instaslice.controller.pod_placer import PodPlacer
from instaslice.controller.pod_queue import PodQueue
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.reservations import Reservation
from instaslice.controller.scheduling.refused_nodes import owner
from instaslice.kube.core import Pod
from instaslice.kube.limits import exponential_delay
from instaslice.observe.logs import about
from instaslice.placement import Grant, NodeName, Plan
from instaslice.placement.longest_waiting import LongestWaiting

log = logging.getLogger(__name__)

SILENT = "silent"
"""The kind of reason for which the GPUs of a node are closed whose agent does not answer."""
FIRST_RETRY, LONGEST_RETRY = 5.0, 600.0
TROUBLE = (PodReason.GPU_UNHEALTHY, PodReason.NOT_BOUND, PodReason.SLICE_LOST, PodReason.SET_ASIDE)
"""Reasons of a running pod's condition that must be revised when the trouble is over."""
RECHECK_SECONDS = 10.0
MOST_ASKED = 50
"""Of the waiting pods, the first of so many shapes are asked whether they need what another pod does not use."""
SLOW_SECONDS = 5.0
"""After which a pod's condition says that its slices are being created; mostly they exist before anybody reads it."""


class PodReconciler:
    def __init__(
        self,
        state: ClusterState,
        placer: PodPlacer,
        queue: PodQueue,
        longest_waiting: LongestWaiting,
        deadlines: Deadlines,
        orders: Orders,
        clock: Callable[[], float],
        rng: Random,
        limits: Limits,
    ) -> None:
        self.state = state
        self.placer = placer
        self._queue = queue
        self.longest_waiting = longest_waiting
        self.limits = limits
        self.started = False
        """Whether all objects are known: nothing is done before."""
        self.lost: set[str] = set()
        """Ungated pods without a reservation."""
        self._deadlines = deadlines
        self._orders = orders
        self._clock = clock
        self._rng = rng
        self._failures: dict[Grant, int] = {}
        self._displaced: dict[str, str] = {}
        """Why a pod is to be placed again, by its uid."""

    def reconcile(self, uid: str) -> None:
        """Do what the state of a pod asks for. Safe to repeat."""
        if not self.started or self.state.quarantine.why(ObjectKind.POD, uid):
            return
        try:
            self._reconcile(uid)
        except Exception as error:
            self.quarantine(uid, error)

    def quarantine(self, uid: str, error: Exception) -> None:
        """Leave a pod alone, with all it holds, until it changes."""
        self._queue.quarantine(uid, error)
        self.lost.discard(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self.placer.forget(uid)
        self._queue.reset_backoff(uid)
        self._displaced.pop(uid, None)

    # The lifecycle --------------------------------------------------------------------------------------------------

    def _reconcile(self, uid: str) -> None:
        pod, reservation = self.state.pods.get(uid), self._reservation(uid)
        known_as_lost = uid in self.lost
        self.lost.discard(uid)
        match self._phase(pod, reservation):
            case Phase.DELETING | Phase.DELETED:
                self._end(uid, pod, reservation)
            case Phase.WAITING if pod is not None:
                if not other_gates(pod):
                    self._queue.add(pod)
            case _ if pod is not None and reservation is not None:
                # An object that comes back brings reservations for pods that have waited since.
                self.state.queue.remove(uid)
                self._advance(pod, reservation)
            case Phase.FAILED if pod is not None and was_given_slices(pod):
                if not self._restore(pod):
                    self.lost.add(uid)
                    self._orders.update_condition(uid)
                    if not known_as_lost and not pod.spec.node_name:
                        self._deadlines.at(self._clock() + self.limits.bind, partial(self._lost_overdue, uid))

    def _reservation(self, uid: str) -> Reservation | None:
        """The one that the pod can use; any other is released."""
        pod, ledger = self.state.pods.get(uid), self.state.ledger
        if uid in ledger.duplicates:
            for other in ledger.resolve_duplicates(uid, _assigned_uuids(pod)):
                self._orders.write_spec(other.node, soon=True)
        reservation = ledger.reservations.get(uid)
        if reservation is not None and pod is not None and _was_sent_elsewhere(pod, reservation):
            # A write without an answer took effect after those slices had failed and others were reserved.
            self.release(reservation, f"the pod was ungated to node {pinned_node(pod)} before")
            return None
        return reservation

    def _phase(self, pod: Pod | None, reservation: Reservation | None) -> Phase:
        if pod is not None and pod.metadata.deletion_timestamp is not None:
            node = NodeName(pod.spec.node_name)
            if not node or node in self.state.dead_nodes:
                return Phase.DELETING  # no kubelet will report its end
        return reservation.phase(pod) if reservation is not None else phase_of(pod, ())

    def _end(self, uid: str, pod: Pod | None, reservation: Reservation | None) -> None:
        if self.state.queue.remove(uid) and self.longest_waiting.is_for(uid):
            self._orders.wake()  # what is reserved for it is for others now
        if reservation is not None:
            self.release(reservation, _why_ended(pod))
            if pod is not None and not pod.ended:
                self._orders.update_condition(uid)

    def _advance(self, pod: Pod, reservation: Reservation) -> None:
        if not reservation.charged:
            self._track_deadlines(pod, reservation)
            # The process that made the reservation may have been killed before the condition was written.
            self._orders.update_condition(reservation.uid)
        phase = reservation.phase(pod)
        if reservation.show(phase):
            self._orders.write_spec(reservation.node, soon=False)
        if not gated(pod):
            self._watch_over(pod, reservation)
        elif phase is Phase.FAILED:
            self._place_again(pod, reservation, reservation.failed or "")
        elif phase is Phase.CREATED:
            self._ungate(pod, reservation)
        elif reservation.slow:
            self._orders.update_condition(reservation.uid)

    def _ungate(self, pod: Pod, reservation: Reservation) -> None:
        if blocked := self._ungate_blocked_by(pod, reservation):
            wait = self._queue.back_off(reservation.uid, blocked)
            if wait is not None:
                self._deadlines.at(self._clock() + wait, partial(self._backoff_over, reservation.uid))
            self._place_again(pod, reservation, blocked)
        elif self.state.ledger.nodes[reservation.node].unready:
            # The node would refuse the pod now. `_create_overdue` places it elsewhere if this lasts.
            self._orders.update_condition(reservation.uid)
        else:
            for tracked in reservation.allocations if self._failures else ():
                self._failures.pop(tracked.grant, None)
            self._orders.ungate(reservation.uid)

    def _backoff_over(self, uid: str, _: float) -> None:
        if self.state.backing_off.pop(uid, None) is not None:
            self.reconcile(uid)

    def _ungate_blocked_by(self, pod: Pod, reservation: Reservation) -> str:
        """Why a pod should keep its gate though its slices exist: its node has been cordoned since, say, and nobody
        would bind the pod there."""
        node = self.state.nodes.get(reservation.node)
        if node is None:
            return ""
        if refusal := node_admission.refusal(pod, node):
            return f"node {reservation.node} {refusal}"
        if refused := self.state.filters.for_pod(pod, pinned=reservation.node)(reservation.node):
            return f"nobody would bind the pod to node {reservation.node} any more: {refused}"
        return ""

    def _watch_over(self, pod: Pod, reservation: Reservation) -> None:
        """A pod past its gate: its condition follows the health of its slices and GPUs."""
        self._queue.reset_backoff(reservation.uid)
        if not reservation.ungated:
            reservation.mark_ungated()
            self._orders.update_condition(reservation.uid)
            if not pod.spec.node_name:
                self._deadlines.at(self._clock() + self.limits.bind, partial(self._bind_overdue, reservation))
        condition = pod.condition(names.SLICE_READY)
        had_trouble = condition is not None and condition.reason in TROUBLE
        closed = self.state.ledger.closed(reservation.node)
        if had_trouble or reservation.failed or any(tracked.grant.gpu in closed for tracked in reservation.allocations):
            self._orders.update_condition(reservation.uid)

    # Reserve and release ----------------------------------------------------------------------------------------

    def reserve(self, pod: Pod, plan: Plan) -> None:
        request = self.placer.request(pod)
        reservation = self.state.ledger.reserve(
            _reference(pod),
            request.slices,
            plan,
            self._attempt(),
            self._clock(),
            cpu=request.cpu,
            memory=request.memory,
        )
        reservation.replaces = self._displaced.pop(pod.metadata.uid, "")
        self._track_deadlines(pod, reservation)
        self._orders.write_spec(plan.node, soon=True)

    def release(self, reservation: Reservation, reason: str) -> None:
        self.state.ledger.release(reservation.uid, reason)
        pod = self.state.pods.get(reservation.uid)
        if pod is None or not pod.spec.node_name:
            self._queue.unassign(reservation.uid)
        self._orders.write_spec(reservation.node, soon=True)

    def evacuate(self, pod: Pod, reservation: Reservation, why: str) -> None:
        """The node is lost. A gated pod is placed again, one that can start only there fails, and one that Kubernetes
        has deleted releases what it held."""
        if gated(pod):
            self._place_again(pod, reservation, why)
            return
        if not pod.spec.node_name:
            self._orders.fail(reservation.uid, why)
        elif pod.metadata.deletion_timestamp is not None or reservation.node not in self.state.nodes:
            self.release(reservation, why)
        self._orders.update_condition(reservation.uid)

    def _place_again(self, pod: Pod, reservation: Reservation, why: str) -> None:
        self.release(reservation, why)
        self._displaced[reservation.uid] = why
        self._orders.update_condition(reservation.uid)
        self._queue.add(pod)

    def _restore(self, pod: Pod) -> bool:
        """Reserve again what a running pod holds, where its Instaslice object was deleted and created again."""
        node, request, uuids = NodeName(pod.spec.node_name), self.placer.request(pod), _assigned_uuids(pod)
        claimed_by_others = {
            uuid
            for other in self.state.pods.values()
            if other is not pod and not other.ended and pinned_node(other) == node
            for uuid in _assigned_uuids(other)
        }
        if not self.state.ledger.restore(
            _reference(pod),
            request.slices,
            node,
            uuids,
            self._attempt(),
            self._clock(),
            cpu=request.cpu,
            memory=request.memory,
            disputed=claimed_by_others,
        ):
            return False
        log.info("found the slices of the pod again", extra=_about(pod, node))
        self._orders.write_spec(node, soon=True)
        return True

    def _attempt(self) -> str:
        return f"{self._rng.getrandbits(32):08x}"

    def placement_failed(self, placement: Grant) -> None:
        """It is tried again later and later; at once when its agent reports the GPU as healthy again."""
        count = self._failures[placement] = self._failures.get(placement, 0) + 1
        wait = exponential_delay(FIRST_RETRY, LONGEST_RETRY, count - 1)
        self._deadlines.at(self._clock() + wait, partial(self._retry_placement, placement))
        self._orders.wake()

    def _retry_placement(self, placement: Grant, _: float) -> None:
        if self.state.ledger.retry_placement(placement.node, placement):
            self._queue.retry_all()

    # Deadlines ------------------------------------------------------------------------------------------------------

    def _track_deadlines(self, pod: Pod, reservation: Reservation) -> None:
        """Count what the pod will use on the node, and limit how long it waits there. A reservation of an earlier
        process gets its full time again."""
        reservation.charged, reservation.create_seconds = True, self.limits.create
        if not gated(pod):
            reservation.mark_ungated()
        if pod.spec.node_name:
            return
        now = self._clock()
        if self.state.assign(pod, reservation.node, self.placer.request(pod).amounts):
            self._queue.retry_all()
        if gated(pod):
            self._deadlines.at(now + self.limits.create, partial(self._create_overdue, reservation))
            # To the second, so that a burst is looked at once a second and not once per pod.
            self._deadlines.at(ceil(now + SLOW_SECONDS), partial(self._create_slow, reservation))
        else:
            self._deadlines.at(now + self.limits.bind, partial(self._bind_overdue, reservation))

    def _current(self, reservation: Reservation) -> Pod | None:
        """The pod of a reservation that still holds."""
        holds = self.state.ledger.reservations.get(reservation.uid) is reservation
        return self.state.pods.get(reservation.uid) if holds else None

    def _create_slow(self, reservation: Reservation, _: float) -> None:
        if self._current(reservation) is not None and not reservation.created:
            reservation.slow = True
            self._orders.update_condition(reservation.uid)

    def _create_overdue(self, reservation: Reservation, now: float) -> None:
        pod, record = self._current(reservation), self.state.ledger.nodes.get(reservation.node)
        if pod is None or record is None or not gated(pod):
            return
        if reservation.created and not record.unready:
            # Its gate is about to go, unless the node falls silent before that.
            self._deadlines.at(now + self.limits.create, partial(self._create_overdue, reservation))
            return
        silent = f"the agent of node {reservation.node} has not answered for {now - reservation.since:.0f} s"
        why = record.unready or silent
        log.warning("%s; trying elsewhere", why, extra=_about(pod, reservation.node))
        for gpu in record.gpus:
            self.state.ledger.fleet.close(gpu, SILENT, why)
        self._place_again(pod, reservation, why)

    def _bind_overdue(self, reservation: Reservation, now: float) -> None:
        """A pod that its owner replaces fails, so that the next one can be sent elsewhere: this one is pinned. Any
        other keeps its slices, as the obstacle may go, until a waiting pod would get them."""
        pod, node = self._current(reservation), reservation.node
        if pod is None or pod.spec.node_name:
            return
        if not reservation.overdue and is_unschedulable(pod):
            self._avoid(pod, node, now)
        if is_irreplaceable(pod) and not self._needed(reservation):
            if not reservation.overdue:
                reservation.overdue = True
                self._orders.update_condition(reservation.uid)
            self._deadlines.at(now + min(RECHECK_SECONDS, self.limits.bind), partial(self._bind_overdue, reservation))
            return
        late = f"not bound to node {node} within {self.limits.bind:.0f} s"
        self._orders.fail(reservation.uid, f"{late} ({why_unbound(pod)})")

    def _needed(self, reservation: Reservation) -> bool:
        heads = self.state.queue.heads_round_robin()[:MOST_ASKED]
        return self.placer.needed_by_any(reservation, (self.state.pods[head.uid] for head in heads))

    def _avoid(self, pod: Pod, node: NodeName, now: float) -> None:
        """Send no other pod of its owner there for a while: the reason, which we do not see, would hold for it too."""
        wait, name = self.state.filters.not_bound(pod, node), owner(pod)
        self._deadlines.at(now + wait, partial(self._avoid_no_longer, name, node))
        self._queue.mark_outdated([uid for uid in self.state.queue if owner(self.state.pods[uid]) == name])

    def _avoid_no_longer(self, name: str, node: NodeName, _: float) -> None:
        self.state.filters.retry(name, node)
        self._queue.retry_all()

    def _lost_overdue(self, uid: str, now: float) -> None:
        """Ungated to a node whose Instaslice object went away: it can run nowhere else."""
        if uid not in self.lost or self.state.pods[uid].spec.node_name:
            return
        node = pinned_node(self.state.pods[uid])
        if self.state.quarantine.why(ObjectKind.INSTASLICE, node):
            # Its slices may be listed in there.
            self._deadlines.at(now + self.limits.bind, partial(self._lost_overdue, uid))
            return
        self._orders.fail(uid, f"its slices on node {node} are gone" if node else "its slices are gone")


def _reference(pod: Pod) -> PodRef:
    return PodRef(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid)


def _about(pod: Pod, node: NodeName) -> dict[str, object]:
    meta = pod.metadata
    return about(pod=f"{meta.namespace}/{meta.name}", uid=meta.uid, node=node)


def _was_sent_elsewhere(pod: Pod, reservation: Reservation) -> bool:
    return not pod.ended and not gated(pod) and pinned_node(pod) not in ("", reservation.node)


def _assigned_uuids(pod: Pod | None) -> list[str]:
    """The slices that a pod past its gate was given."""
    return mig_uuids(pod) if pod is not None and not gated(pod) else []


def _why_ended(pod: Pod | None) -> str:
    if pod is None:
        return "the pod is gone"
    return f"the pod has {pod.status.phase.lower()}" if pod.ended else "the pod was deleted"
