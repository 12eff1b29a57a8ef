"""What ails which GPU: events that the driver tells, and what it answers when asked.

An event says that something broke; that it is mended, no event says. So a GPU with a critical XID or an ECC error is
well again when the driver wants nothing more done to it, for a while. A driver too old to be asked that leaves it ill
until the agent is started anew.
"""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from instaslice.drivers.driver import Gpu, GpuUuid, Ills
from instaslice.drivers.errors import DriverError, GpuLost
from instaslice.drivers.nvml import mode
from instaslice.drivers.nvml.library import ECC_EVENT, XID_EVENT, Code, Event, Handle, Refused
from instaslice.drivers.nvml.session import LOST, Session

log = logging.getLogger(__name__)

TICK: Final = 5.0
"""Seconds after which GPUs are asked again while no event comes."""

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


class Health:
    """One thread at a time may watch. `gpus` are those to be asked, at each look."""

    def __init__(
        self,
        session: Session,
        gpus: Callable[[], Iterable[Gpu]],
        enable: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._nvml = session.library
        self._gpus = gpus
        self._enable = enable
        self._clock, self._sleep = clock, sleep
        self._events: Handle | None = None
        self._registered: set[GpuUuid] = set()
        self._struck: dict[GpuUuid, tuple[str, float]] = {}
        self._renewed = -RENEWAL

    def watch(self, known: Ills, seconds: float) -> Ills:
        """See Driver.watch_health."""
        until = self._clock() + seconds
        self._register()
        while self._note(0.0):
            pass
        while True:
            ills = self._look()
            left = until - self._clock()
            if ills != dict(known) or left <= 0:
                return ills
            self._register()
            self._note(min(left, TICK))

    def close(self) -> None:
        events, self._events, self._registered = self._events, None, set()
        if events is not None:
            self._nvml.free_event_set(events)

    # Asking ---------------------------------------------------------------------------------------------------------

    def _look(self) -> dict[GpuUuid, str]:
        return {gpu.uuid: words for gpu in self._gpus() if (words := self._ill(gpu.uuid))}

    def _ill(self, gpu: GpuUuid) -> str:
        try:
            with self._session.at(gpu, "look after it") as handle:
                words = mode.ill(self._nvml, handle, self._enable)
                action = self._action(handle)
                if not words and action:
                    words = f"the driver says: {_ACTIONS.get(action, f'recovery action {action}')}"
                if not words and self._rows_failed(handle):
                    words = "memory rows are broken and no spare is left: replace the GPU"
        except GpuLost as error:
            self._struck.pop(gpu, None)
            self._find_again()
            return str(error)
        except DriverError as error:
            return str(error)
        return words or self._still_struck(gpu, action)

    def _still_struck(self, gpu: GpuUuid, action: int | None) -> str:
        words, since = self._struck.get(gpu, ("", 0.0))
        if words and action == 0 and self._clock() - since >= SETTLED:
            del self._struck[gpu]
            return ""
        return words

    def _action(self, gpu: Handle) -> int | None:
        """None where this driver cannot tell."""
        try:
            return self._nvml.recovery_action(gpu)
        except Refused as error:
            if error.code in LOST:
                raise
            return None

    def _rows_failed(self, gpu: Handle) -> bool:
        try:
            return self._nvml.remapping_failed(gpu)
        except Refused as error:
            if error.code in LOST:
                raise
            return False  # this GPU, or this driver, does not remap rows

    def _find_again(self) -> None:
        """A GPU that was reset, or came back to the bus, is seen in a new session only."""
        if self._clock() - self._renewed < RENEWAL:
            return
        self._renewed = self._clock()
        try:
            self.close()
            self._session.renew()
        except DriverError as error:
            log.warning("no new NVML session; tried again in %g s: %s", RENEWAL, error)

    # Events ---------------------------------------------------------------------------------------------------------

    def _register(self) -> None:
        """GPUs that cannot tell of events are only asked."""
        new = [gpu.uuid for gpu in self._gpus() if gpu.uuid not in self._registered]
        for gpu in new:
            try:
                with self._session.at(gpu, "watch for events") as handle:
                    if self._events is None:
                        self._events = self._nvml.event_set()
                    self._nvml.register(handle, XID_EVENT | ECC_EVENT, self._events)
            except GpuLost:
                continue  # tried again when it is back
            except DriverError as error:
                log.warning("%s: its health is asked for every %g s instead", error, TICK)
            self._registered.add(gpu)

    def _note(self, seconds: float) -> bool:
        """Wait for one event and remember what it says. Whether there was one."""
        if self._events is None:
            self._sleep(seconds)
            return False
        try:
            event = self._nvml.next_event(self._events, int(seconds * 1000))
        except Refused as error:
            # A lost GPU, mostly: asking tells which. The set is made anew, since it may be what is broken.
            if error.code not in LOST:
                log.warning("no events of GPUs for now: %s", error)
            with suppress(Refused):
                self.close()
            self._sleep(seconds)
            return False
        if event is None:
            return False
        words = _words(event)
        for gpu in self._concerned(event) if words else ():
            self._struck[gpu] = (words, self._clock())
        return True

    def _concerned(self, event: Event) -> list[GpuUuid]:
        """All of them where the driver cannot say which."""
        everyone = [gpu.uuid for gpu in self._gpus()]
        try:
            uuid = self._nvml.uuid(event.device)
        except Refused as error:
            if error.code not in {*LOST, Code.INVALID_ARGUMENT, Code.NOT_FOUND}:
                raise
            return everyone
        return [gpu for gpu in everyone if gpu == uuid]


def _words(event: Event) -> str:
    """Empty where the GPU goes on."""
    if event.kind == ECC_EVENT:
        return "an ECC error could not be corrected; reset the GPU"
    if event.kind == XID_EVENT and event.data not in HARMLESS:
        return f"Xid {event.data}; see dmesg, and reset the GPU or drain the node"
    return ""
