"""Hardware for an event loop: every call has a deadline, and a GPU that hangs does not delay the others.

Each GPU is probed and watched in a thread of its own. Its last known health is available immediately.
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
PROBE_SECONDS = 60.0
"""Between two probes of a GPU that did not answer."""
_ALL = GpuUuid("of any index")


class WatchedDriver(Driver):
    """The GPUs of this machine that have answered, and what is known about the others."""

    def __init__(self, driver: NvmlDriver, deadline: float, clock: Clock) -> None:
        self.driver = driver
        self._clock = clock
        # Executors of their own: a create must not wait behind a call that waits for events.
        self._probes = GpuExecutor(deadline, clock.call_later)
        self._watches = GpuExecutor(WATCH_SECONDS + deadline, clock.call_later)
        self._gpus: tuple[Gpu, ...] = ()
        self._unresponsive: dict[int, UnresponsiveGpu] = {}
        self._unhealthy: dict[GpuUuid, Unhealthy | None] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called in the event loop when the health of a GPU has changed, or a GPU has joined."""

    @classmethod
    async def open(cls, opened: Callable[[], NvmlDriver], deadline: float, clock: Clock) -> "WatchedDriver":
        """`opened` blocks. Raises what it raises, and Stuck where NVML itself hangs."""
        executor = GpuExecutor(deadline, clock.call_later)
        try:
            driver = await executor.call(_ALL, "open NVML", opened)
            count = await executor.call(_ALL, "count GPUs", driver.count)
        except Hung:
            raise Stuck(f"NVIDIA's driver has not answered for {deadline:g} s; {REBOOT}") from None
        watched = cls(driver, deadline, clock)
        await watched._probe(range(count))
        return watched

    async def run(self) -> None:
        """Watch the GPUs, and probe those that do not answer, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            watched: set[GpuUuid] = set()
            while True:
                for gpu in self._unhealthy.keys() - watched:
                    tasks.create_task(self._watch(gpu))
                    watched.add(gpu)
                await self._clock.sleep(PROBE_SECONDS)
                before = self.unresponsive()
                await self._probe(list(self._unresponsive))
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
        """The last known health, immediately, whatever `seconds` says."""
        return self._unhealthy[gpu]

    # Inside ---------------------------------------------------------------------------------------------------------

    async def _probe(self, indexes: Iterable[int]) -> None:
        async with asyncio.TaskGroup() as probes:
            for index in indexes:
                probes.create_task(self._probe_gpu(index))

    async def _probe_gpu(self, index: int) -> None:
        name = GpuUuid(str(index))
        try:
            gpu = await self._probes.call(name, "the probe", partial(self.driver.probe, index))
        except DriverError as error:
            kind = UnhealthyReason.HUNG if isinstance(error, Hung) else UnhealthyReason.OTHER
            self._unresponsive[index] = UnresponsiveGpu(index, Unhealthy(str(error), kind), self.driver.uuid(index))
            return
        # Its health comes first: nothing may be placed on a GPU that waits for its reset.
        if gpu is not None and gpu.uuid not in self._unhealthy:
            self._unhealthy[gpu.uuid] = await self._health_of(gpu.uuid, None, 0)
            self._gpus = tuple(sorted((*self._gpus, gpu), key=lambda each: each.index))
        if self._unresponsive.pop(index, None):
            log.info("GPU %d answers now", index)

    async def _watch(self, gpu: GpuUuid) -> None:
        while True:
            before = self._unhealthy[gpu]
            self._unhealthy[gpu] = await self._health_of(gpu, before, WATCH_SECONDS)
            if self._unhealthy[gpu] != before:
                self.changed()

    async def _health_of(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        query = partial(self.driver.watch_health, gpu, known, seconds)
        try:
            return await self._watches.call(gpu, "watch its health", query)
        except Hung:
            # The same message each time: the next call waits behind the one that hangs, and is Hung too.
            hung = Hung(gpu, f"it has not answered for {self._watches.deadline:g} s")
            return Unhealthy(str(hung), UnhealthyReason.HUNG)
