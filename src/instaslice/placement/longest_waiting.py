"""GPUs reserved for the pod that has waited longest, so that smaller pods do not pass it indefinitely.

One pod at a time: the first in the queue, once it has waited longer than its patience. The GPUs are closed to all other
pods until it fits there. `gpu_reservation` chooses them; designs/0006 says why this ends.

The caller passes every time. The controller counts seconds, the simulator milliseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from instaslice.placement.demands import GpuId, NodeName
from instaslice.placement.fleet import Fleet
from instaslice.placement.gpu_reservation import Eligible, gpus_to_reserve
from instaslice.placement.waiting_queue import WaitingQueue

RESERVED = "reserved"
"""The kind of reason for which the GPUs are closed."""
PATIENCE: Final = 300.0
"""Seconds, where nobody says otherwise."""

RECHECK_SECONDS, SHORTEST_PAUSE = 10.0, 0.1
"""Between two choices of the pod that GPUs are reserved for."""


@dataclass(frozen=True, slots=True)
class ReservedGpus:
    """GPUs that are reserved for a pod, until when."""

    uid: str
    node: NodeName
    gpus: tuple[GpuId, ...]
    until: float


class LongestWaiting:
    """`patience` is how long the first in the queue lets others pass, and how long one choice is held before the next,
    in seconds; `second` is a second in the caller's unit of time."""

    def __init__(self, fleet: Fleet, queue: WaitingQueue, patience: float = PATIENCE, second: float = 1.0) -> None:
        self.patience = patience
        self.reserved: ReservedGpus | None = None
        self._fleet = fleet
        self._queue = queue
        self._second = second
        self._patience = patience * second
        # Without a pause a patience of 0 would choose again at once, and never do anything else.
        self._held_for = max(patience, RECHECK_SECONDS) * second
        self._choose_at = 0.0
        """When to choose again for whom to reserve GPUs."""
        self._hopeless: set[str] = set()
        """Pods that no node could hold, of those considered in this choice."""

    @property
    def due(self) -> float | None:
        """When `choose` has to be called again, even if nothing happens until then."""
        return self._choose_at if len(self._queue) else None

    def choose(
        self,
        now: float,
        queued_at: Callable[[str], float],
        reserve: Callable[[str], bool],
        expired: Callable[[], bool] = lambda: False,
    ) -> None:
        """Once a pod has waited too long, reserve GPUs for it: for the first in the queue that any node could hold.
        Choose again now and then, since what occupies them may never end. Call it before each pass over the queue.

        `reserve` is asked for one pod after another to call `self.reserve`; it returns False where the pod fits now or
        no node could ever hold it. A choice stops when its time has `expired`, and is resumed after SHORTEST_PAUSE.
        """
        reserved = self.reserved
        if reserved is not None and (reserved.uid not in self._queue or reserved.until <= now):
            self.release()
            self._queue.retry_all()
            self._choose_at = now
        if self.reserved is None and now >= self._choose_at and len(self._queue):
            self._choose_at = now + self._choose(now, queued_at, reserve, expired)

    def reserve(self, uid: str, profiles: Sequence[str], eligible: Eligible, whole_node: bool, now: float) -> bool:
        """Reserve GPUs for a pod; whether any node could ever hold it. `eligible` says of a node whether it would admit
        the pod if it were empty, `whole_node` whether all GPUs of a node are reserved and not only one."""
        self.release()
        gpus = gpus_to_reserve(self._fleet, profiles, eligible, whole_node)
        if not gpus:
            return False
        node = self._fleet.node_of[self._fleet.number(gpus[0])].name
        self._close(ReservedGpus(uid, node, gpus, now + self._held_for))
        return True

    def is_for(self, uid: str) -> bool:
        return self.reserved is not None and self.reserved.uid == uid

    def open_for(self, uid: str, place: Callable[[], bool]) -> bool:
        """Call `place`, which says whether the pod was placed, with what is reserved for this pod open to it. Once it
        is placed, nothing is reserved for it any more."""
        reserved = self.reserved
        if reserved is None or reserved.uid != uid:
            return place()
        self.release()
        if place():
            self._choose_at = 0.0  # the next pod may have waited too long already
            return True
        if self._still_there(reserved):
            self._close(reserved)
        return False

    def release(self) -> None:
        """Reserve nothing. Safe to repeat."""
        if self.reserved is not None:
            reserved, self.reserved = self.reserved, None
            for gpu in self._still_there(reserved):
                self._fleet.open(gpu, RESERVED)

    def _choose(
        self, now: float, queued_at: Callable[[str], float], reserve: Callable[[str], bool], expired: Callable[[], bool]
    ) -> float:
        """The time until there is something to choose again."""
        soonest, shortest = self._patience, SHORTEST_PAUSE * self._second
        for head in self._queue.heads():
            left = queued_at(head.uid) + self._patience - now
            if left > 0:
                soonest = min(soonest, left)
            elif head.uid not in self._hopeless:
                if reserve(head.uid):
                    self._hopeless.clear()
                    return self._held_for
                self._hopeless.add(head.uid)
                if expired():
                    return shortest
        # Those that no node could hold are considered again: a node may have come.
        self._hopeless.clear()
        return max(min(soonest, RECHECK_SECONDS * self._second), shortest)

    def _close(self, reserved: ReservedGpus) -> None:
        self.reserved = reserved
        for gpu in self._still_there(reserved):
            why = f"reserved for a pod that has waited longer than {self.patience:.0f} s"
            self._fleet.close(gpu, RESERVED, why)

    def _still_there(self, reserved: ReservedGpus) -> list[GpuId]:
        """A GPU may have gone since, or have come back on another node."""
        return [gpu for gpu in reserved.gpus if self._fleet.where(gpu) == reserved.node]
