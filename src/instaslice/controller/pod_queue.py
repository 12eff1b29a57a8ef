"""Pods enter and leave the waiting queue here, are asked for again when room may be free, and back off.

`state.queue` holds the order; this adds what goes with a change of it.
"""

from collections.abc import Callable, Iterable

from instaslice.api.pods import gated
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.orders import Orders
from instaslice.controller.pod_placer import PodPlacer
from instaslice.controller.quarantine import ObjectKind
from instaslice.kube.core import Pod
from instaslice.kube.limits import exponential_delay
from instaslice.placement import Demand

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 600.0


class PodQueue:
    def __init__(self, state: ClusterState, placer: PodPlacer, orders: Orders, clock: Callable[[], float]) -> None:
        self.newly_queued: set[str] = set()
        """Not asked for since they were queued."""
        self._state = state
        self._placer = placer
        self._orders = orders
        self._clock = clock
        self._outdated: dict[str, None] = {}
        """Waiting pods whose request must be worked out again."""
        self._backoffs: dict[str, int] = {}
        self._by_memory: set[str] = set()
        """Pods that ask by memory. Those that wait no longer are removed when it is next read."""

    def add(self, pod: Pod) -> None:
        """Have a pod wait for a placement. Safe to repeat."""
        request, uid, meta = self._placer.request(pod), pod.metadata.uid, pod.metadata
        if request.invalid:
            self._orders.update_condition(uid)
        if not request.slices or uid in self._state.backing_off:
            return
        since = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
        if self._state.queue.add(uid, request.key, pod.spec.priority, since, meta.namespace):
            # What was lost with its node's object, or its GPU, would count against the pod itself.
            self.unassign(uid)
            if request.queued_at is None:
                request.queued_at = self._clock()
                self._state.arrivals += 1
                if request.choices:
                    self._state.ledger.placer.arrived(Demand(request.profiles))
            if request.models is not None:
                self._by_memory.add(uid)
            self.newly_queued.add(uid)
            self._orders.wake()

    def drop_request(self, pod: Pod) -> None:
        """Take a pod out of the queue that asks for something else now: where it may go can be narrowed while it waits.
        It keeps its time."""
        self._state.queue.remove(pod.metadata.uid)
        before = self._placer.forget(pod.metadata.uid)
        if before is not None and gated(pod):
            self._placer.request(pod).queued_at = before.queued_at

    def mark_outdated(self, uids: Iterable[str]) -> None:
        """More counts for these waiting pods than when they came. Until their requests are refreshed they are only
        asked for too seldom: each is judged by itself."""
        self._outdated.update(dict.fromkeys(uids))
        if self._outdated:
            self._orders.wake()

    def refresh_outdated(self, expired: Callable[[], bool]) -> bool:
        """Refresh outdated requests until the time has `expired`. Whether all are."""
        while self._outdated and not expired():
            uid, _ = self._outdated.popitem()
            if uid not in self._state.queue:
                continue
            try:
                self.drop_request(self._state.pods[uid])
                self.add(self._state.pods[uid])
            except Exception as error:
                self.quarantine(uid, error)
        return not self._outdated

    def quarantine(self, uid: str, error: Exception) -> None:
        """Leave a pod alone, with all it holds, until it changes."""
        self._state.quarantine.add(ObjectKind.POD, uid, error)
        self._state.queue.remove(uid)
        self._orders.update_condition(uid)

    # Room -----------------------------------------------------------------------------------------------------------

    def retry_all(self) -> None:
        """There may be room for a pod that was refused before."""
        self._state.queue.retry_all()
        if len(self._state.queue):
            self._orders.wake()

    def retry_asks_by_memory(self) -> None:
        """What nodes there are has changed, so another profile may be the first choice of a pod that asks by memory:
        a larger one, where the tightest is gone."""
        self._by_memory = {uid for uid in self._by_memory if uid in self._state.queue}
        if self._by_memory:
            self.retry_all()

    def unassign(self, uid: str) -> None:
        """Count a pod nowhere any more."""
        if self._state.unassign(uid):
            self.retry_all()

    # Back off -------------------------------------------------------------------------------------------------------

    def back_off(self, uid: str, why: str) -> float | None:
        """A slice was created in vain. From the second time on the pod is placed again later and later: the reasons for
        and against a node may alternate for as long as the pod exists. Returns the seconds until then."""
        count = self._backoffs[uid] = self._backoffs.get(uid, 0) + 1
        if count == 1:
            return None
        self._state.backing_off[uid] = why
        return exponential_delay(FIRST_BACKOFF, LONGEST_BACKOFF, count - 2)

    def reset_backoff(self, uid: str) -> None:
        self._backoffs.pop(uid, None)
        self._state.backing_off.pop(uid, None)
