"""Hardware for an event loop: every question has a deadline, and a GPU that hangs keeps nobody from the others.

Each GPU is looked for and looked after in a lane of its own. What was heard last is there at once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from instaslice.drivers import (
    Driver,
    DriverError,
    Gpu,
    GpuUuid,
    Hung,
    Slice,
    Stuck,
    Unhealthy,
    UnhealthyReason,
    UnresponsiveGpu,
)
from instaslice.drivers.executor import GpuExecutor
from instaslice.drivers.nvml.driver import NvmlDriver
from instaslice.drivers.nvml.session import REBOOT
from instaslice.kube.clock import Clock

log = logging.getLogger(__name__)

WATCH_SECONDS = 10.0
AGAIN_SECONDS = 60.0
"""Between two looks for a GPU that did not answer."""
_ALL = GpuUuid("of any index")


class WatchedDriver(Driver):
    """The GPUs of this machine that have answered, and what is known of the others."""

    def __init__(self, driver: NvmlDriver, deadline: float, clock: Clock) -> None:
        self.driver = driver
        self._clock = clock
        # GpuExecutor of their own: nobody who makes a slice waits behind somebody who waits for news.
        self._looks = GpuExecutor(deadline, clock.call_later)
        self._health = GpuExecutor(WATCH_SECONDS + deadline, clock.call_later)
        self._gpus: tuple[Gpu, ...] = ()
        self._unresponsive: dict[int, UnresponsiveGpu] = {}
        self._unhealthy: dict[GpuUuid, Unhealthy | None] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called in the event loop when another GPU is unhealthy or well, or has joined."""

    @classmethod
    async def found(cls, opened: Callable[[], NvmlDriver], deadline: float, clock: Clock) -> "WatchedDriver":
        """Of what `opened` blocks for. Raises what it raises, and Stuck where NVML itself does not come back."""
        executor = GpuExecutor(deadline, clock.call_later)
        try:
            driver = await executor.call(_ALL, "open NVML", opened)
            count = await executor.call(_ALL, "count GPUs", driver.count)
        except Hung:
            raise Stuck(f"NVIDIA's driver has not answered for {deadline:g} s; {REBOOT}") from None
        watched = cls(driver, deadline, clock)
        await watched._look(range(count))
        return watched

    async def run(self) -> None:
        """Look after the GPUs, and for those that do not answer, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            watched: set[GpuUuid] = set()
            while True:
                for gpu in self._unhealthy.keys() - watched:
                    tasks.create_task(self._watch(gpu))
                    watched.add(gpu)
                await self._clock.sleep(AGAIN_SECONDS)
                before = self.unresponsive()
                await self._look(list(self._unresponsive))
                if self.unresponsive() != before:
                    self.changed()

    # The interface --------------------------------------------------------------------------------------------------

    def boot_id(self) -> str:
        return self.driver.boot_id()

    def discover(self) -> tuple[Gpu, ...]:
        return self._gpus

    def unresponsive(self) -> tuple[UnresponsiveGpu, ...]:
        return tuple(self._unresponsive.values())

    def slices(self, gpu: GpuUuid) -> tuple[Slice, ...]:
        return self.driver.slices(gpu)

    def create(self, gpu: GpuUuid, profile: str, start: int) -> Slice:
        return self.driver.create(gpu, profile, start)

    def destroy(self, doomed: Slice) -> None:
        self.driver.destroy(doomed)

    def watch_health(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        """What was heard last, at once, whatever `seconds` says."""
        return self._unhealthy[gpu]

    # Inside ---------------------------------------------------------------------------------------------------------

    async def _look(self, indexes: Iterable[int]) -> None:
        async with asyncio.TaskGroup() as looks:
            for index in indexes:
                looks.create_task(self._look_at(index))

    async def _look_at(self, index: int) -> None:
        name = GpuUuid(str(index))
        try:
            gpu = await self._looks.call(name, "a look at it", partial(self.driver.probe, index))
        except DriverError as error:
            kind = UnhealthyReason.HUNG if isinstance(error, Hung) else UnhealthyReason.OTHER
            self._unresponsive[index] = UnresponsiveGpu(index, Unhealthy(str(error), kind), self.driver.uuid(index))
            return
        # How it is comes first: nothing may be placed on a GPU that waits for its reset.
        if gpu is not None and gpu.uuid not in self._unhealthy:
            self._unhealthy[gpu.uuid] = await self._ask(gpu.uuid, None, 0)
            self._gpus = tuple(sorted((*self._gpus, gpu), key=lambda each: each.index))
        if self._unresponsive.pop(index, None):
            log.info("GPU %d answers now", index)

    async def _watch(self, gpu: GpuUuid) -> None:
        while True:
            before = self._unhealthy[gpu]
            self._unhealthy[gpu] = await self._ask(gpu, before, WATCH_SECONDS)
            if self._unhealthy[gpu] != before:
                self.changed()

    async def _ask(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        ask = partial(self.driver.watch_health, gpu, known, seconds)
        try:
            return await self._health.call(gpu, "look after it", ask)
        except Hung:
            # The same words each time: the next question waits behind the one that hangs, and is Hung too.
            return Unhealthy(
                str(Hung(gpu, f"it has not said for {self._health.deadline:g} s how it is")), UnhealthyReason.HUNG
            )
