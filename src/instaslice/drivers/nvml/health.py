"""The health of each GPU: events from the driver, and what it answers when asked.

An event says that something broke; no event says that it is repaired. So a GPU with a critical XID or an ECC error is
healthy again when the driver has wanted no recovery action for a while. With a driver too old to answer that, the GPU
stays unhealthy until the agent restarts.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from instaslice.drivers.driver import GpuUuid, Unhealthy, UnhealthyReason
from instaslice.drivers.errors import DriverError, GpuLost
from instaslice.drivers.nvml import mig_mode
from instaslice.drivers.nvml.library import ECC_EVENT, XID_EVENT, Handle, NvmlError, NvmlEvent
from instaslice.drivers.nvml.session import LOST, Session

log = logging.getLogger(__name__)

TICK: Final = 5.0
"""Seconds after which GPUs are asked again while no event comes."""

STEP: Final = 1.0
"""Seconds that are waited for an event at a time: a new session can be had only when nobody waits."""

SETTLED: Final = 60.0
"""Seconds without a further event after which the driver's word that all is well is taken."""

RENEWAL: Final = 60.0
"""Seconds between tries to find a lost GPU again in a new session: each disturbs the others a little."""

HARMLESS: Final = frozenset({13, 31, 43, 45, 63, 68, 92, 94, 109})
"""XIDs that a program brings upon itself, or that the hardware has dealt with: the GPU goes on."""

_ACTIONS: Final = {
    1: "the GPU must be reset",
    2: "the node must be rebooted",
    3: "peer-to-peer traffic must be drained",
    4: "the GPU must be drained and reset",
    5: "the IMEX domain must be recovered",
    6: "the GPU must be reset over its bus",
    7: "the system must be rebooted",
}

_RESETS: Final = frozenset({1, 4, 6})


class HealthMonitor:
    """For each GPU one thread at a time may watch, and one that hangs holds up its own GPU alone: each has a set of
    events of its own."""

    def __init__(
        self,
        session: Session,
        enable: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._nvml = session.library
        self._enable = enable
        self._clock, self._sleep = clock, sleep
        self._events: dict[GpuUuid, Handle | None] = {}
        """None where the GPU cannot tell of events: it is only asked."""
        self._struck: dict[GpuUuid, tuple[str, float]] = {}
        self._renewed = -RENEWAL

    def watch(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        """See Driver.watch_health."""
        until = self._clock() + seconds
        while self._note(gpu, 0.0):
            pass
        while True:
            unhealthy = self._unhealthy(gpu)
            now = self._clock()
            if unhealthy != known or now >= until:
                return unhealthy
            tick = min(until, now + TICK)
            while (left := tick - self._clock()) > 0 and not self._note(gpu, min(left, STEP)):
                pass

    def find_again(self) -> None:
        """A GPU that was reset, or came back to the bus, is seen in a new session only."""
        if self._clock() - self._renewed < RENEWAL:
            return
        self._renewed = self._clock()
        try:
            if not self._session.renew(self.close):
                log.info("no new NVML session while calls are under way; tried again in %g s", RENEWAL)
        except DriverError as error:
            log.warning("no new NVML session; tried again in %g s: %s", RENEWAL, error)

    def close(self) -> None:
        """Nobody may watch meanwhile."""
        for gpu in list(self._events):
            self._drop(gpu)

    # Asking ---------------------------------------------------------------------------------------------------------

    def _unhealthy(self, gpu: GpuUuid) -> Unhealthy | None:
        try:
            with self._session.at(gpu, "look after it") as handle:
                unhealthy = mig_mode.unhealthy(self._nvml, handle, self._enable)
                action = self._action(handle)
                if unhealthy is None and action:
                    unhealthy = _wished(gpu, action)
                if unhealthy is None and self._rows_failed(handle):
                    unhealthy = Unhealthy("memory rows are broken and no spare is left: replace the GPU")
        except GpuLost as error:
            self._struck.pop(gpu, None)
            self.find_again()
            return Unhealthy(str(error))
        except DriverError as error:
            return Unhealthy(str(error))
        return unhealthy or self._still_struck(gpu, action)

    def _still_struck(self, gpu: GpuUuid, action: int | None) -> Unhealthy | None:
        words, since = self._struck.get(gpu, ("", 0.0))
        if words and action == 0 and self._clock() - since >= SETTLED:
            del self._struck[gpu]
            return None
        return Unhealthy(words) if words else None

    def _action(self, gpu: Handle) -> int | None:
        """None where this driver cannot tell."""
        try:
            return self._nvml.recovery_action(gpu)
        except NvmlError as error:
            if error.code in LOST:
                raise
            return None

    def _rows_failed(self, gpu: Handle) -> bool:
        try:
            return self._nvml.remapping_failed(gpu)
        except NvmlError as error:
            if error.code in LOST:
                raise
            return False  # this GPU, or this driver, does not remap rows

    # Events ---------------------------------------------------------------------------------------------------------

    def _note(self, gpu: GpuUuid, seconds: float) -> bool:
        """Wait for one event and remember what it says. Whether there was one."""
        try:
            with self._session.at(gpu, "wait for its events") as handle:
                if gpu not in self._events:
                    self._events[gpu] = self._registered(gpu, handle)
                events = self._events[gpu]
                event = self._nvml.next_event(events, int(seconds * 1000)) if events is not None else None
        except DriverError as error:
            # A lost GPU, mostly: asking tells. The set is made anew, since it may be what is broken.
            if not isinstance(error, GpuLost):
                log.warning("no events for now: %s", error)
            with suppress(DriverError), self._session.calls(gpu, "free its events"):
                self._drop(gpu)
            events = event = None
        if events is None:
            self._sleep(seconds)
        if event is None:
            return False
        if words := _message(event):
            self._struck[gpu] = (words, self._clock())
        return True

    def _registered(self, gpu: GpuUuid, handle: Handle) -> Handle | None:
        try:
            events = self._nvml.event_set()
            try:
                self._nvml.register(handle, XID_EVENT | ECC_EVENT, events)
            except NvmlError:
                self._nvml.free_event_set(events)
                raise
        except NvmlError as error:
            if error.code in LOST:
                raise
            log.warning("GPU %s: %s: its health is asked for every %g s instead", gpu, error, TICK)
            return None
        return events

    def _drop(self, gpu: GpuUuid) -> None:
        events = self._events.pop(gpu, None)
        if events is not None:
            with suppress(NvmlError):
                self._nvml.free_event_set(events)


def _wished(gpu: GpuUuid, action: int) -> Unhealthy:
    words = f"the driver says: {_ACTIONS.get(action, f'recovery action {action}')}"
    if action not in _RESETS:
        return Unhealthy(words)
    return Unhealthy(f"{words}; drain the node and run nvidia-smi --gpu-reset -i {gpu}", UnhealthyReason.RESET)


def _message(event: NvmlEvent) -> str:
    """Empty where the GPU goes on."""
    if event.kind == ECC_EVENT:
        return "an ECC error could not be corrected; reset the GPU"
    if event.kind == XID_EVENT and event.data not in HARMLESS:
        return f"Xid {event.data}; see dmesg, and reset the GPU or drain the node"
    return ""
