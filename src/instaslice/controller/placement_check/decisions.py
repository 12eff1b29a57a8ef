"""Which workloads of Kueue can be placed now: those are Ready, and their places are held; the others have to Retry.

Without a network, and level-based: what is to be written about a workload follows from its status and from the ledger.
All pods of a workload are placed or none. One pod at a time: a workload of thousands is interrupted like a pass over
the waiting queue, and goes on from where it was. Waiting pods come first, as Kueue has admitted those already.

One that has been refused for longer than the controller's patience is admitted without places, one of a namespace at a
time: its pods wait in our queue, which reserves GPUs for the first pod that has waited too long. So it is not passed by
smaller ones indefinitely.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from functools import partial
from math import inf
from typing import Final

from instaslice.api import names
from instaslice.api.bounds import truncated
from instaslice.api.largest_node import LargestNode
from instaslice.api.pods import gated
from instaslice.controller.dispatcher import STEP_SECONDS, Dispatcher
from instaslice.controller.feasible_nodes import some
from instaslice.controller.orders import Orders
from instaslice.controller.placement_check.retries import (
    LONGEST_RETRY_SECONDS,
    CheckDecision,
    DelayedRetry,
    retry_seconds,
    waited_seconds,
)
from instaslice.controller.placement_check.workload_pods import PodSetPods, held_for, pods_with_slices
from instaslice.controller.pod_condition import why_refused
from instaslice.controller.quarantine import ObjectKind
from instaslice.errors import BadInput
from instaslice.kube.clock import Clock
from instaslice.kube.meta import key_of
from instaslice.kueue.objects import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PENDING,
    QUOTA_RESERVED,
    READY,
    RETRY,
    AdmissionCheckState,
    KueueWorkload,
    ResourceFlavor,
)
from instaslice.observe.logs import about
from instaslice.placement import WaitingQueue

log = logging.getLogger(__name__)

HOLD_SECONDS: Final = 60.0
"""How long places are held, counted from the admission: where nobody says otherwise."""
PODS_FIRST_SECONDS: Final = 1.0
"""For how long waiting pods come before workloads where they cannot all be tried in one step."""
Attempt = Generator[None, None, CheckDecision]


class PlacementCheck:
    """Takes in workloads, and `decide`s; `decided` is called with the uid of each of which something is to be written.

    Nothing is decided before `start`. `checks` are the names of the AdmissionChecks that are ours, `flavors` those of
    Kueue by name: both may grow.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        orders: Orders,
        clock: Clock,
        decided: Callable[[str], None],
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self.checks: set[str] = set()
        self.flavors: dict[str, ResourceFlavor] = {}
        self.workloads: dict[str, KueueWorkload] = {}
        """Those with reserved quota that have one of our checks, by uid."""
        self.decisions: dict[str, CheckDecision] = {}
        """What is to be written, by the uid of the workload."""
        self.holds = dispatcher.holds
        self._dispatcher = dispatcher
        self._state = dispatcher.state
        self._clock = clock
        self._decided = decided
        self._orders = orders
        self._hold_seconds = hold_seconds
        self._largest = LargestNode()
        self._queue = WaitingQueue()
        self._refused: list[str] = []
        """Of the queue, in this pass."""
        self._attempt: tuple[str, Attempt] | None = None
        """The workload whose pods are being placed."""
        self._complete = True
        self._gives_way_until: float | None = None
        """To waiting pods; None where none are left, or no workload waits."""
        self._refusals: dict[str, DelayedRetry] = {}
        """Until Kueue has noted when they come back. After a restart they come back at once."""
        self._held_until: dict[str, float] = {}
        """Ready workloads for which places are or were held, and until when."""
        self._let_through: dict[str, tuple[str, float]] = {}
        """By namespace: the workload that was admitted without places, and until when it counts at most."""
        self._started = False

    # What the watches report ----------------------------------------------------------------------------------------

    def start(self, workloads: list[KueueWorkload]) -> None:
        """Everything is known, and no pod has been placed since. Places are held again for pods that have not come yet,
        first for those that were Ready first."""
        self._started = True
        for workload in sorted(workloads, key=self._ready_at):
            self.workload_changed(workload)

    def workload_changed(self, workload: KueueWorkload) -> None:
        """Also one that has not: safe to repeat. What fails costs this workload alone."""
        if not self._started:
            return
        self._state.quarantine.release(ObjectKind.WORKLOAD, workload.metadata.uid)
        try:
            self._reconcile(workload)
        except Exception as error:
            self._set_aside(workload.metadata.uid, error)

    def workload_gone(self, uid: str) -> None:
        self._state.quarantine.release(ObjectKind.WORKLOAD, uid)
        self._forget(uid)

    def states(self, workload: KueueWorkload) -> list[AdmissionCheckState]:
        """What it says of our checks: nearly always of one."""
        return [each for each in workload.status.admission_checks or () if each.name in self.checks]

    def _reconcile(self, workload: KueueWorkload) -> None:
        uid, found = workload.metadata.uid, {each.state for each in self.states(workload)}
        if not found or workload.has(FINISHED) or workload.metadata.deletion_timestamp is not None:
            self._forget(uid)
            return
        if not workload.has(QUOTA_RESERVED) or workload.has(EVICTED) or not found <= {PENDING, READY}:
            refusal = self._refusals.get(uid)
            self._forget(uid)
            if refusal is not None:
                self._postpone(workload, found, refusal)
            return
        self.workloads[uid] = workload
        decision = self.decisions.get(uid)
        if found == {READY}:
            if decision is None or decision.state == READY:
                self.decisions.pop(uid, None)
                self._watch_over(workload)
        elif decision is None and not self._is_attempted(uid):
            self._refusals.pop(uid, None)
            self._end_hold(uid)
            since = workload.metadata.creation_timestamp
            if self._queue.add(
                uid,
                uid,
                workload.spec.priority or 0,
                since.timestamp() if since is not None else 0.0,
                workload.metadata.namespace,
            ):
                self._orders.wake()

    def _postpone(self, workload: KueueWorkload, found: set[str], refusal: DelayedRetry) -> None:
        """Have Kueue bring back a workload that was refused after its delay, and not at once."""
        uid, done = workload.metadata.uid, refusal.done(workload, self._clock)
        if done and found == {PENDING}:
            return
        self.workloads[uid], self._refusals[uid] = workload, refusal
        if (decision := refusal.to_write(workload, found, self._clock)) is not None:
            self._write(uid, decision)

    def _write(self, uid: str, decision: CheckDecision) -> None:
        self.decisions[uid] = decision
        self._decided(uid)

    def _forget(self, uid: str) -> None:
        self._refusals.pop(uid, None)
        self.workloads.pop(uid, None)
        self.decisions.pop(uid, None)
        self._queue.remove(uid)
        self._end_hold(uid)
        self._let_through = {each: let for each, let in self._let_through.items() if let[0] != uid}

    def _end_hold(self, uid: str) -> None:
        if self._is_attempted(uid):
            self._attempt = None
        self._held_until.pop(uid, None)
        self.holds.release(uid)

    def _is_attempted(self, uid: str) -> bool:
        return self._attempt is not None and self._attempt[0] == uid

    # Decide ---------------------------------------------------------------------------------------------------------

    @property
    def due(self) -> float | None:
        """When `decide` has to be called though nothing woke it; the ends of holds are among the dispatcher's."""
        return None if self._complete else self._clock.monotonic()

    def decide(self) -> None:
        """Try to place the workloads that wait for us, or as many as may be tried in one step."""
        if self._gives_way():
            self._complete = False
            return
        until = self._clock.monotonic() + STEP_SECONDS

        def expired() -> bool:
            return self._clock.monotonic() >= until

        if self._attempt is not None and not self._go_on(expired):
            self._complete = False
            return
        if self._complete:
            # None waits for room here: whoever is refused leaves, and Kueue brings it back.
            self._queue.retry_all()
        served = self._queue.serve(partial(self._try, expired), expired)
        for uid in self._refused:
            self._queue.remove(uid)
        self._refused.clear()
        self._complete = served and self._attempt is None

    def _gives_way(self) -> bool:
        """Whether waiting pods have their turn first. Those of one tenant may be so many that room becomes free more
        often than all can be tried: then workloads have a step in between."""
        now = self._clock.monotonic()
        if self._dispatcher.pass_complete or (not len(self._queue) and self._attempt is None):
            self._gives_way_until = None
            return not self._dispatcher.pass_complete
        if self._gives_way_until is None:
            self._gives_way_until = now + PODS_FIRST_SECONDS
        if now < self._gives_way_until:
            return True
        self._gives_way_until = None
        return False

    def _try(self, expired: Callable[[], bool], uid: str) -> bool:
        """False where the workload was refused: after some refusals it is the turn of other namespaces."""
        self._attempt = uid, self._place_all(self.workloads[uid])
        self._go_on(expired)
        decision = self.decisions.get(uid)
        if decision is not None and decision.state == RETRY:
            self._refused.append(uid)
            return False
        return True

    def _go_on(self, expired: Callable[[], bool]) -> bool:
        """Whether the attempt has come to its end."""
        assert self._attempt is not None
        uid, attempt = self._attempt
        try:
            while True:
                next(attempt)
                if expired():
                    return False
        except StopIteration as ended:
            self._attempt = None
            self._decide(uid, ended.value)
        except Exception as error:
            self._set_aside(uid, error)
        return True

    def _place_all(self, workload: KueueWorkload) -> Attempt:
        """Pauses after each pod."""
        uid = workload.metadata.uid
        try:
            sets = self._pods_of(workload)
        except BadInput as error:
            return CheckDecision(RETRY, f"the webhook would reject its pods: {error}", LONGEST_RETRY_SECONDS)
        if not sets:
            return CheckDecision(READY, "asks for no slices")
        placed, total = 0, sum(each.count for each in sets)
        for each in sets:
            # Held on to, as what is known of the nodes for such pods would be worked out for each of them.
            request = self._dispatcher.placer.request(each.template)
            try:
                for number in range(each.count):
                    if not self.holds.add(uid, _owner(workload), each.pod(number), each.template.metadata.uid):
                        return self._refuse(workload, each, number, placed, total)
                    placed += 1
                    yield
            finally:
                # Also of an attempt that is given up between two pods.
                self.holds.forget(each.template)
                del request
        where = some(self.holds.nodes(uid))
        pods = "1 pod" if total == 1 else f"{total} pods"
        return CheckDecision(READY, f"places for {pods} are held for {self._hold_seconds:.0f} s on {where}")

    def _pods_of(self, workload: KueueWorkload) -> list[PodSetPods]:
        return pods_with_slices(workload, self.flavors, self._state.pods, self._largest)

    def _refuse(self, workload: KueueWorkload, pods: PodSetPods, number: int, placed: int, total: int) -> CheckDecision:
        """Read why before what was held for the others is released: it is what this one lacks."""
        uid, pod = workload.metadata.uid, pods.pod(number)
        why = why_refused(self._state, self._dispatcher.placer, pod, _owner(workload))
        self.holds.forget(pod)
        self.holds.release(uid)
        others = f"{placed} of its {total} pods would fit now, all at once do not: " if placed else ""
        retries = max((each.retry_count or 0 for each in self.states(workload)), default=0)
        if why.never:
            return CheckDecision(RETRY, why.message, LONGEST_RETRY_SECONDS)
        if waited_seconds(retries) >= self._dispatcher.limits.patience and self._may_pass(workload):
            waits = f"refused for longer than {self._dispatcher.limits.patience:.0f} s"
            return CheckDecision(READY, f"{waits}: its pods wait in the queue of InstaSlice ({others}{why.message})")
        return CheckDecision(RETRY, others + why.message, retry_seconds(retries))

    def _decide(self, uid: str, decision: CheckDecision) -> None:
        message = truncated(decision.message)
        if decision.state == READY:
            self._write(uid, CheckDecision(READY, message))
            self._hold_until(uid, self._clock.monotonic() + self._hold_seconds)
        else:
            self._refusals[uid] = DelayedRetry(CheckDecision(RETRY, message, decision.retry_seconds))
            self._write(uid, CheckDecision(RETRY, message, 0))

    def _set_aside(self, uid: str, error: Exception) -> None:
        """A workload that cannot be handled releases its quota too. It is tried again when it comes back."""
        why = self._state.quarantine.add(ObjectKind.WORKLOAD, uid, error)
        self._queue.remove(uid)
        self._end_hold(uid)
        if uid in self.workloads:
            message = f"InstaSlice cannot handle this workload: {why}"
            self._decide(uid, CheckDecision(RETRY, message, LONGEST_RETRY_SECONDS))

    # One that was refused for too long ------------------------------------------------------------------------------

    def _may_pass(self, workload: KueueWorkload) -> bool:
        """Whether no other workload of its namespace is being admitted without places. Such a one counts until its pods
        have their slices, and for no longer than our queue needs to reserve GPUs for two of them. One for each
        namespace: who has thousands would be let through time after time, and others never."""
        now, namespace = self._clock.monotonic(), workload.metadata.namespace
        other, until = self._let_through.get(namespace, ("", now))
        if now < until and self._waits(other):
            return False
        counts = max(self._hold_seconds, 2 * self._dispatcher.limits.patience)
        self._let_through[namespace] = workload.metadata.uid, now + counts
        return True

    def _waits(self, uid: str) -> bool:
        """Whether pods of a workload wait, or have not come yet."""
        workload = self.workloads.get(uid)
        if workload is None:
            return False
        needed = sum(each.count for each in self._pods_of(workload))
        placed = self._placed(workload)
        return sum(placed[held_for(workload, each.name)] for each in workload.spec.pod_sets or ()) < needed

    # Places that are held -------------------------------------------------------------------------------------------

    def _watch_over(self, workload: KueueWorkload) -> None:
        """It is Ready: its places are held from the admission on for as long as was said."""
        uid = workload.metadata.uid
        due = self._clock.monotonic() + self._left(workload)
        if uid not in self._held_until:
            # An earlier process held them.
            if due <= self._clock.monotonic() and not workload.has(ADMITTED) and self._pods_of(workload):
                self._not_admitted(workload)
                return
            self._hold_again(workload)
            self._hold_until(uid, due)
        elif workload.has(ADMITTED) and uid in self.holds and due > self._held_until[uid]:
            self._hold_until(uid, due)

    def _hold_again(self, workload: KueueWorkload) -> None:
        if self._left(workload) <= 0:
            return
        uid, placed = workload.metadata.uid, self._placed(workload)
        for each in self._pods_of(workload):
            missing = each.count - placed[each.template.metadata.uid]
            for number in range(missing):
                pod = each.pod(number)
                if not self.holds.add(uid, _owner(workload), pod, each.template.metadata.uid):
                    self.holds.forget(pod)
                    log.warning(
                        "workload %s: no place is left for %d of its pods, which wait for one",
                        key_of(workload),
                        missing - number,
                        extra=about(uid=uid),
                    )
                    break

    def _placed(self, workload: KueueWorkload) -> Mapping[str, int]:
        """By the annotation HELD_FOR: its pods that need no place any more. Those that are being deleted are of an
        earlier admission, and anybody may write the annotation into pods of another namespace."""
        reserved, namespace = self._state.ledger.reservations, workload.metadata.namespace
        return Counter(
            pod.metadata.annotations[names.HELD_FOR]
            for uid, pod in self._state.pods.items()
            if names.HELD_FOR in pod.metadata.annotations
            and pod.metadata.namespace == namespace
            and pod.metadata.deletion_timestamp is None
            and (uid in reserved or not gated(pod))
        )

    def _left(self, workload: KueueWorkload) -> float:
        """Seconds for which its places are yet to be held."""
        admitted, since = workload.condition(ADMITTED), self._ready_since(workload)
        if workload.has(ADMITTED) and admitted is not None and admitted.last_transition_time is not None:
            since = admitted.last_transition_time
        ago = (self._clock.now() - since).total_seconds() if since is not None else 0.0
        return self._hold_seconds - max(0.0, ago)

    def _ready_since(self, workload: KueueWorkload) -> datetime | None:
        found = [each.last_transition_time for each in self.states(workload) if each.state == READY]
        return max((each for each in found if each is not None), default=None)

    def _ready_at(self, workload: KueueWorkload) -> float:
        since = self._ready_since(workload)
        return inf if since is None else since.timestamp()

    def _hold_until(self, uid: str, due: float) -> None:
        self._held_until[uid] = due
        self._dispatcher.deadlines.at(due, partial(self._hold_over, uid))

    def _hold_over(self, uid: str, now: float) -> None:
        if self._held_until.get(uid, now + 1) > now:
            return  # held for longer since, or for nobody
        workload, left = self.workloads.get(uid), self.holds.left(uid)
        if left and workload is not None:
            late = f"{left} of its pods did not come within {self._hold_seconds:.0f} s, and their places are released"
            log.info("workload %s: %s", key_of(workload), late, extra=about(uid=uid))
        self.holds.release(uid)
        if workload is not None and left and not workload.has(ADMITTED):
            self._not_admitted(workload)

    def _not_admitted(self, workload: KueueWorkload) -> None:
        """Its places are released; it would be admitted without any."""
        message = f"its places were held for {self._hold_seconds:.0f} s, and it was not admitted: see its other checks"
        retries = max((each.retry_count or 0 for each in self.states(workload)), default=0)
        self._end_hold(workload.metadata.uid)
        self._decide(workload.metadata.uid, CheckDecision(RETRY, message, retry_seconds(retries)))


def _owner(workload: KueueWorkload) -> str:
    return f"workload {key_of(workload)}"
