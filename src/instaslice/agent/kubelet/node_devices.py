"""The devices of a real node, as its kubelet sees them: who holds which id, the CDI files, and what is advertised."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from instaslice.agent.kubelet import cdi
from instaslice.agent.kubelet.advertised_devices import AdvertisedDevices, AdvertisedGpu
from instaslice.agent.kubelet.cdi_files import AllocatedSlice, CdiFiles
from instaslice.agent.kubelet.device_holders import DeviceHolders
from instaslice.agent.kubelet.device_ids import DeviceId, PodSlice, SliceAddress
from instaslice.agent.kubelet.device_plugin import KUBELET
from instaslice.agent.kubelet.paths import NodePaths
from instaslice.agent.kubelet.wiring import Wiring
from instaslice.api.instaslice import Allocation
from instaslice.drivers import Slice
from instaslice.drivers.executor import GpuExecutor
from instaslice.kube.clock import Clock

log = logging.getLogger(__name__)

FIRST_POLL = 0.01
LONGEST_POLL = 1.0
"""Seconds between two questions who holds an open id: at first, and at most. The kubelet has no watch for it."""
RESYNC_SECONDS = 60.0


class NodeDevices:
    """One node. `update` says what is allocated and what exists; `run` does the rest."""

    def __init__(self, paths: NodePaths, wiring: Wiring, *, executor: GpuExecutor, clock: Clock) -> None:
        """Raises InstasliceError where the assignments of an earlier process cannot be read."""
        self._paths = paths
        self._warn: Callable[[str], None] = log.warning
        self._status_changed: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self.holders = DeviceHolders(paths, clock, lambda note: self._warn(note))
        self._files = CdiFiles(
            paths.cdi,
            wiring,
            executor=executor,
            clock=clock,
            spawn=self._spawn,
            warn=lambda note: self._warn(note),
            described=self._changed.set,
        )
        self._advertised = AdvertisedDevices(paths.plugins, self.allocate, lambda: self._status_changed())
        self._slices: dict[PodSlice, AllocatedSlice] = {}
        self._named: set[PodSlice] = set()
        """Slices that an allocation names, also one that ends."""
        self._foreign: frozenset[SliceAddress] = frozenset()
        self._gpus: tuple[AdvertisedGpu, ...] = ()

    # Called by the node ---------------------------------------------------------------------------------------------

    def update(
        self,
        allocations: Sequence[Allocation],
        slices: Mapping[str, Slice],
        foreign: Collection[SliceAddress],
        gpus: Sequence[AdvertisedGpu],
    ) -> None:
        """All allocations, the slices that can be used (by allocation id), and the slices without an allocation.

        The file of an allocation that ends is removed immediately: call this before its slice is destroyed, too. Where
        allocations are lost while their slices exist, as with the object of the node, files stay: containers may have
        to be restarted.
        """
        usable = {
            PodSlice.of(each): (each, slices[each.id]) for each in allocations if each.wanted and each.id in slices
        }
        now = usable, set(map(PodSlice.of, allocations)), frozenset(foreign), tuple(gpus)
        if now == (self._slices, self._named, self._foreign, self._gpus):
            return
        self._slices, self._named, self._foreign, self._gpus = now
        for device in self._files.devices() - self._orphaned():
            if self.holders.assigned.get(device) not in usable:
                self._files.remove(device)
        self._publish_devices()
        self._changed.set()

    @property
    def kubelet_silence(self) -> str:
        """Why pods cannot start here, where the kubelet does not listen to us."""
        if self._advertised.known_to_kubelet:
            return ""
        socket = self._paths.plugins / KUBELET
        return (
            f"no kubelet listens to our device plugins at {socket}: is it running, is that its folder (--kubelet-dir)?"
        )

    # Called by the kubelet ------------------------------------------------------------------------------------------

    def allocate(self, devices: Sequence[DeviceId]) -> list[str]:
        """Hand out ids to a container that is not known yet. Raises NoSlice."""
        self.holders.allocate(devices, self._wanted)
        for each in devices:
            self._files.remove(each)
        self._changed.set()
        return [cdi.device(each) for each in devices]

    # The loop -------------------------------------------------------------------------------------------------------

    async def run(self, warn: Callable[[str], None], status_changed: Callable[[], None]) -> None:
        """Until cancelled. Nothing is advertised before the first `update`; `warn` informs people, `status_changed`
        says that the kubelet connected or disconnected, or that other pods hold slices without an allocation."""
        self._warn, self._status_changed = warn, status_changed
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._advertised.run())
            self._tasks.create_task(self._poll())

    async def _poll(self) -> None:
        # Before the first update no slice is known, and the files of an earlier process would be removed.
        await self._changed.wait()
        wait = FIRST_POLL
        while True:
            self._changed.clear()
            unknown = await self._reconcile()
            wait = min(LONGEST_POLL, wait * 1.5) if unknown else FIRST_POLL
            try:
                async with asyncio.timeout(wait if unknown else RESYNC_SECONDS):
                    await self._changed.wait()
                wait = FIRST_POLL
            except TimeoutError:
                continue

    async def _reconcile(self) -> bool:
        """Learn who holds what and act on it; whether there are ids whose holder is still unknown."""
        bound = list(self.holders.assigned.values())
        others = await self.holders.refresh(self._wanted)
        bound += self.holders.assigned.values()
        # An id whose holder has ended is no longer bound.
        if others and any(held is not None and held not in self._slices for held in bound):
            self._status_changed()
        self._write_cdi()
        self._publish_devices()
        return bool(self.holders.opened)

    def _write_cdi(self) -> None:
        bound = {
            device: self._slices[held]
            for device, held in self.holders.assigned.items()
            if held is not None and held in self._slices
        }
        self._files.update(bound, tuple(self._slices.values()), keep=self._orphaned())

    def _publish_devices(self) -> None:
        self._advertised.publish(self._gpus, self.holders.assigned)

    def _orphaned(self) -> set[DeviceId]:
        """Ids that are bound to a slice that exists, or may exist, and that no allocation names."""
        unlisted = {gpu.uuid for gpu in self._gpus if not gpu.listed}

        def orphaned(held: PodSlice) -> bool:
            may_exist = held.gpu in unlisted and held not in self._named
            return may_exist or held.address in self._foreign

        return {device for device, held in self.holders.assigned.items() if held is not None and orphaned(held)}

    @property
    def _wanted(self) -> list[Allocation]:
        return [allocation for allocation, _ in self._slices.values()]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None
        self._tasks.create_task(work)
