"""A driver whose health is watched from a thread, so that an event loop may ask for it at any time."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from instaslice.drivers import Driver, Gpu, GpuUuid, Ills, Slice
from instaslice.drivers.errors import DriverError

WATCH_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""After which a driver that does not say how its GPUs are is taken to hang."""


class WatchedDriver(Driver):
    """Another driver, with what is static read once. Blocks while it is made."""

    def __init__(self, driver: Driver, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._clock = clock
        self._gpus = driver.discover()
        self._ills: Ills = {}
        self._heard = clock()
        self._thread: threading.Thread | None = None
        self._changed: Callable[[], None] = lambda: None

    def watch(self, changed: Callable[[], None]) -> None:
        """From an event loop: call `changed` in it whenever another GPU is ill or well. The last caller is told."""
        self._changed = changed
        if self._thread is None:
            loop = asyncio.get_running_loop()
            # A daemon: a hung driver must not keep the agent from ending.
            self._thread = threading.Thread(target=self._listen, args=(loop,), name="health", daemon=True)
            self._heard = self._clock()
            self._thread.start()

    def prompt(self, gpu: GpuUuid) -> bool:
        return self._driver.prompt(gpu)

    def boot_id(self) -> str:
        return self._driver.boot_id()

    def discover(self) -> tuple[Gpu, ...]:
        return self._gpus

    def slices(self, gpu: GpuUuid) -> tuple[Slice, ...]:
        return self._driver.slices(gpu)

    def create(self, gpu: GpuUuid, profile: str, start: int) -> Slice:
        return self._driver.create(gpu, profile, start)

    def destroy(self, doomed: Slice) -> None:
        self._driver.destroy(doomed)

    def watch_health(self, known: Ills, seconds: float) -> Ills:
        """What was heard last, at once, whatever `seconds` says."""
        silent = self._clock() - self._heard
        if silent > SILENT_SECONDS:
            return {gpu.uuid: "its driver does not answer" for gpu in self._gpus}
        return self._ills

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        while not loop.is_closed():
            try:
                ills = dict(self._driver.watch_health(self._ills, WATCH_SECONDS))
            except DriverError as error:
                ills = {gpu.uuid: str(error) for gpu in self._gpus}
                time.sleep(WATCH_SECONDS)
            news = ills != self._ills
            self._ills, self._heard = ills, self._clock()
            if news:
                with suppress(RuntimeError):  # the loop has ended, and with it whoever listened
                    loop.call_soon_threadsafe(lambda: self._changed())
