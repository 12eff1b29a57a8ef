"""How many pods wait and why, how many allocations are in each state and since when; one line in the log per change.

Follows the watches beside the dispatcher, and decides nothing; a scrape of a large cluster must not look at every pod.
What an earlier process began is counted and not timed.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from instaslice.api import names
from instaslice.api.instaslice import Allocation, Instaslice, PreparedSlice
from instaslice.api.pods import gated
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.lifecycle import Phase, phase_of_allocation
from instaslice.controller.reservations import Reservation
from instaslice.kube.clock import Clock
from instaslice.kube.core import Pod
from instaslice.observe import registry as registries
from instaslice.observe.logs import about
from instaslice.observe.metrics import STATE_SECONDS

log = logging.getLogger(__name__)

UID: Final = re.compile(r"[0-9a-f-]{1,36}")
"""What is logged of an annotation that anybody may have written."""
TIMED: Final = tuple(phase for phase in Phase if phase is not Phase.DELETED)
"""States that end by something that happens; one that is deleted only waits for its entry to go."""
ALLOCATION_STATES: Final = tuple(phase for phase in TIMED if phase is not Phase.WAITING)


class _Begun(NamedTuple):
    at: float
    exact: bool
    """Whether this process saw it begin."""


class StateTimes:
    """Set `live` once what was there at the start has been taken in."""

    def __init__(self, dispatcher: Dispatcher, clock: Clock, registry: CollectorRegistry) -> None:
        self.live = False
        self._state, self._placer = dispatcher.state, dispatcher.placer
        self._clock = clock
        self._phase: dict[str, Phase] = {}
        """Of each allocation, by id."""
        self._begun: dict[Phase, dict[str, _Begun]] = {phase: {} for phase in Phase}
        """Since when each allocation is in its phase; in the order in which they came to be, so the oldest is first."""
        self._waiting: dict[str, str] = {}
        """Pods with our gate, by uid, and the reason in their condition."""
        seconds = registries.histogram(registry, STATE_SECONDS)
        self._seconds = {phase: seconds.labels(phase.value) for phase in TIMED}

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Call it after the dispatcher has taken note."""
        uid = _uid(old, new)
        if new is None or new.ended or uid not in self._state.pods or not gated(new):
            self._waiting.pop(uid, None)
        else:
            condition = new.condition(names.SLICE_READY)
            self._waiting[uid] = condition.reason if condition is not None else ""
            if old is None and self.live:
                pod = f"{new.metadata.namespace}/{new.metadata.name}"
                request = UID.fullmatch(new.metadata.annotations.get(names.ADMISSION, ""))
                log.info("pod waits for slices", extra=about(pod=pod, uid=uid, request=request and request[0]))
        reservation = self._state.ledger.reservations.get(uid)
        for tracked in reservation.allocations if reservation is not None else ():
            if tracked.allocation.id in self._phase:
                self._take_in(tracked.node, tracked.allocation, tracked.prepared)

    def instaslice_changed(self, old: Instaslice | None, new: Instaslice | None) -> None:
        """Call it after the dispatcher has taken note."""
        instaslice = new or old
        assert instaslice is not None, "a change is of an object"
        node = instaslice.metadata.name
        before, now = dict(_allocations(old)), dict(_allocations(new))
        for name, known in now.items():
            if before.get(name) != known:
                self._take_in(node, *known)
        for name in before.keys() - now.keys():
            self._enter(node, before[name][0], Phase.DELETED, "")
            self._forget(name)

    # What there is now ----------------------------------------------------------------------------------------------

    def allocations(self) -> dict[Phase, int]:
        """How many there are in each state."""
        return {phase: len(self._begun[phase]) for phase in ALLOCATION_STATES}

    def oldest(self) -> dict[Phase, float]:
        """Seconds that the oldest allocation of each state has been in it; 0 where there is none."""
        now = self._clock.monotonic()
        return {
            phase: max((now - begun.at for begun in islice(self._begun[phase].values(), 1)), default=0.0)
            for phase in TIMED
        }

    def waiting(self) -> Counter[str]:
        """Pods with our gate by the reason in their condition, which others may have written."""
        return Counter(self._waiting.values())

    # Inside ---------------------------------------------------------------------------------------------------------

    def _take_in(self, node: str, allocation: Allocation, prepared: PreparedSlice | None) -> None:
        phase = phase_of_allocation(self._state.pods.get(allocation.pod.uid), allocation, prepared)
        if allocation.id not in self._phase:
            self._begin(node, allocation)
        self._enter(node, allocation, phase, allocation.reason or (prepared.reason if prepared is not None else ""))

    def _begin(self, node: str, allocation: Allocation) -> None:
        """An allocation that is new here: created since it was reserved, and before that its pod waited."""
        uid = allocation.pod.uid
        reservation = self._state.ledger.reservations.get(uid)
        if not self.live or reservation is None:
            self._set(allocation.id, Phase.CREATING, _Begun(self._clock.monotonic(), exact=False))
            return
        self._set(allocation.id, Phase.CREATING, _Begun(reservation.since, exact=True))
        waited = None
        queued_at = self._placer.queued_at(uid)
        if queued_at is not None and _is_first(reservation, allocation):
            waited = reservation.since - queued_at
            self._seconds[Phase.WAITING].observe(waited)
        self._say(node, allocation, Phase.CREATING, "", waited)

    def _enter(self, node: str, allocation: Allocation, phase: Phase, reason: str) -> None:
        before = self._phase.get(allocation.id)
        if before is None or before is phase:
            return
        now, begun = self._clock.monotonic(), self._begun[before][allocation.id]
        seconds = now - begun.at if begun.exact else None
        if seconds is not None and before in self._seconds:
            self._seconds[before].observe(seconds)
        self._forget(allocation.id)
        self._set(allocation.id, phase, _Begun(now, exact=self.live))
        if self.live:
            self._say(node, allocation, phase, reason, seconds)

    def _set(self, name: str, phase: Phase, begun: _Begun) -> None:
        self._phase[name] = phase
        self._begun[phase][name] = begun

    def _forget(self, name: str) -> None:
        phase = self._phase.pop(name, None)
        if phase is not None:
            del self._begun[phase][name]

    def _say(self, node: str, allocation: Allocation, phase: Phase, reason: str, seconds: float | None) -> None:
        """`seconds` is how long it was in the state before."""
        pod = f"{allocation.pod.namespace}/{allocation.pod.name}"
        log.info(
            "slice %s at %d is %s%s",
            allocation.profile,
            allocation.start,
            phase,
            f" ({reason})" if reason else "",
            extra=about(pod=pod, uid=allocation.pod.uid, node=node, gpu=allocation.gpu, seconds=seconds),
        )


def _allocations(thing: Instaslice | None) -> Iterator[tuple[str, tuple[Allocation, PreparedSlice | None]]]:
    if thing is not None:
        reported = {each.id: each for each in thing.status.slices}
        for each in thing.spec.allocations:
            yield each.id, (each, reported.get(each.id))


def _uid(old: Pod | None, new: Pod | None) -> str:
    pod = new or old
    assert pod is not None, "a change is of an object"
    return pod.metadata.uid


def _is_first(reservation: Reservation, allocation: Allocation) -> bool:
    return bool(reservation.allocations) and reservation.allocations[0].allocation.id == allocation.id
