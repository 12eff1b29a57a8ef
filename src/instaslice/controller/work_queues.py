"""Orders of the dispatcher that are yet to be carried out, one queue per kind. The controller's workers empty them."""

import asyncio
from typing import Final

from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.spec_writer import SpecWriter
from instaslice.kube.clock import Clock
from instaslice.kube.queue import Queue
from instaslice.placement import NodeName

NOT_URGENT_SECONDS: Final = 10.0
"""How long a change of a spec that nobody waits for may wait for others to share one write."""
BUSY_SECONDS: Final = 0.3
"""How long after an order that a pod waits for conditions still wait: a burst comes in waves."""


class WorkQueues:
    """Implements `Orders`."""

    def __init__(self, state: ClusterState, specs: SpecWriter, clock: Clock) -> None:
        self.specs: Queue[NodeName] = Queue(clock=clock)
        self.ungates: Queue[str] = Queue(clock=clock)
        self.failures: Queue[str] = Queue(clock=clock)
        self.why_failed: dict[str, str] = {}
        self.waiting_conditions: Queue[str] = Queue(clock=clock)
        """Pods whose condition says why they wait, or what is wrong."""
        self.ready_conditions: Queue[str] = Queue(clock=clock)
        self.woken = asyncio.Event()
        """Whether the dispatcher has something to decide."""
        self._state = state
        self._spec_writer = specs
        self._clock = clock
        self._busy_until = 0.0

    def write_spec(self, node: NodeName, *, soon: bool) -> None:
        if soon:
            self.specs.add_after(node, self._spec_writer.changed(node))
            self._busy_until = self._clock.monotonic() + BUSY_SECONDS
        else:
            self.specs.add_after(node, NOT_URGENT_SECONDS)

    def ungate(self, uid: str) -> None:
        self.ungates.add(uid)
        self._busy_until = self._clock.monotonic() + BUSY_SECONDS

    def fail(self, uid: str, reason: str) -> None:
        self.why_failed[uid] = reason
        self.failures.add(uid)

    def update_condition(self, uid: str) -> None:
        reservation = self._state.ledger.reservations.get(uid)
        ready = reservation is not None and reservation.created and not reservation.ungate_refused
        (self.ready_conditions if ready else self.waiting_conditions).add(uid)

    def wake(self) -> None:
        self.woken.set()

    def busy(self) -> bool:
        """Whether pods wait for a write of ours, or did a moment ago."""
        return bool(len(self.ungates) or len(self.specs)) or self._clock.monotonic() < self._busy_until
