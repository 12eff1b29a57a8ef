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
"""Seconds after which GPUs are queried again while no event comes."""

STEP: Final = 1.0
"""Seconds of one wait for an event: a new session can be opened only while no thread waits."""

SETTLED: Final = 60.0
"""Seconds without a further event after which the driver's answer that no action is needed counts."""

RENEWAL: Final = 60.0
"""Seconds between tries to find a lost GPU in a new session: each disturbs the others a little."""

HARMLESS: Final = frozenset({13, 31, 43, 45, 63, 68, 92, 94, 109})
"""XIDs that a program causes to itself, or that the hardware has handled: the GPU works on."""

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
    """One thread at a time may watch each GPU, and a GPU that hangs delays only its own: each has its own set of
    events."""

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
        """None where the GPU has no events: it is only queried."""
        self._critical: dict[GpuUuid, tuple[str, float]] = {}
        self._renewed = -RENEWAL

    def watch(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        """See Driver.watch_health."""
        until = self._clock() + seconds
        while self._receive(gpu, 0.0):
            pass
        while True:
            unhealthy = self._unhealthy(gpu)
            now = self._clock()
            if unhealthy != known or now >= until:
                return unhealthy
            tick = min(until, now + TICK)
            while (left := tick - self._clock()) > 0 and not self._receive(gpu, min(left, STEP)):
                pass

    def renew_session(self) -> None:
        """A GPU that was reset, or came back to the bus, appears only in a new session."""
        if self._clock() - self._renewed < RENEWAL:
            return
        self._renewed = self._clock()
        try:
            if not self._session.renew(self.close):
                log.info("no new NVML session while calls are in progress; trying again in %g s", RENEWAL)
        except DriverError as error:
            log.warning("no new NVML session; trying again in %g s: %s", RENEWAL, error)

    def close(self) -> None:
        """No thread may watch meanwhile."""
        for gpu in list(self._events):
            self._drop(gpu)

    # Queries --------------------------------------------------------------------------------------------------------

    def _unhealthy(self, gpu: GpuUuid) -> Unhealthy | None:
        try:
            with self._session.at(gpu, "query its health") as handle:
                unhealthy = mig_mode.unhealthy(self._nvml, handle, self._enable)
                action = self._action(handle)
                if unhealthy is None and action:
                    unhealthy = _recovery_wanted(gpu, action)
                if unhealthy is None and self._rows_failed(handle):
                    unhealthy = Unhealthy("memory rows are broken and no spare is left: replace the GPU")
        except GpuLost as error:
            self._critical.pop(gpu, None)
            self.renew_session()
            return Unhealthy(str(error))
        except DriverError as error:
            return Unhealthy(str(error))
        return unhealthy or self._still_critical(gpu, action)

    def _still_critical(self, gpu: GpuUuid, action: int | None) -> Unhealthy | None:
        message, since = self._critical.get(gpu, ("", 0.0))
        if message and action == 0 and self._clock() - since >= SETTLED:
            del self._critical[gpu]
            return None
        return Unhealthy(message) if message else None

    def _action(self, gpu: Handle) -> int | None:
        """None where this driver does not support it."""
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

    def _receive(self, gpu: GpuUuid, seconds: float) -> bool:
        """Wait for one event and record it. Whether there was one."""
        try:
            with self._session.at(gpu, "wait for its events") as handle:
                if gpu not in self._events:
                    self._events[gpu] = self._registered(gpu, handle)
                events = self._events[gpu]
                event = self._nvml.next_event(events, int(seconds * 1000)) if events is not None else None
        except DriverError as error:
            # Mostly a lost GPU, which the next query shows. The set is recreated, since it may be what is broken.
            if not isinstance(error, GpuLost):
                log.warning("no events for now: %s", error)
            with suppress(DriverError), self._session.calls(gpu, "free its events"):
                self._drop(gpu)
            events = event = None
        if events is None:
            self._sleep(seconds)
        if event is None:
            return False
        if message := _message(event):
            self._critical[gpu] = (message, self._clock())
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
            log.warning("GPU %s: %s: its health is queried every %g s instead", gpu, error, TICK)
            return None
        return events

    def _drop(self, gpu: GpuUuid) -> None:
        events = self._events.pop(gpu, None)
        if events is not None:
            with suppress(NvmlError):
                self._nvml.free_event_set(events)


def _recovery_wanted(gpu: GpuUuid, action: int) -> Unhealthy:
    message = f"the driver says: {_ACTIONS.get(action, f'recovery action {action}')}"
    if action not in _RESETS:
        return Unhealthy(message)
    return Unhealthy(f"{message}; drain the node and run nvidia-smi --gpu-reset -i {gpu}", UnhealthyReason.RESET)


def _message(event: NvmlEvent) -> str:
    """Empty where the GPU works on."""
    if event.kind == ECC_EVENT:
        return "an ECC error could not be corrected; reset the GPU"
    if event.kind == XID_EVENT and event.data not in HARMLESS:
        return f"Xid {event.data}; see dmesg, and reset the GPU or drain the node"
    return ""
