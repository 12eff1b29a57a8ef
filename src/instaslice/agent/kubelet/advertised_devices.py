"""What the kubelet learns: one device plugin for each profile and one for GPU memory.

Each advertises the most that the GPUs of the node could ever hold, as healthy as they are; the numbers do not change as
slices come and go.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from instaslice.agent.kubelet import registration
from instaslice.agent.kubelet.device_ids import DeviceId, PodSlice, device_id, unhealthy_ids
from instaslice.agent.kubelet.device_plugin import Allocate, DevicePlugin
from instaslice.api import names, node_resources
from instaslice.geometry import Model


@dataclass(frozen=True)
class AdvertisedGpu:
    """A GPU of the node. `unhealthy` is why nothing can be made on it; empty when it is healthy. Of one whose slices
    are not `listed` yet it is not known which exist."""

    uuid: str
    model: Model
    unhealthy: str
    listed: bool = True


class AdvertisedDevices:
    """The device plugins of one node."""

    def __init__(self, folder: Path, allocate: Allocate, kubelet_changed: Callable[[], None]) -> None:
        """`kubelet_changed` is called when the kubelet has read one more of the resources, or disconnects from one."""
        self._folder = folder
        self._allocate = allocate
        self._kubelet_changed = kubelet_changed
        self._plugins: dict[str, DevicePlugin] = {}
        self._resources_changed = asyncio.Event()

    @property
    def known_to_kubelet(self) -> bool:
        """Whether the kubelet has read all resources: it would refuse a pod that comes before."""
        return bool(self._plugins) and all(each.connected for each in self._plugins.values())

    def publish(self, gpus: Sequence[AdvertisedGpu], assigned: Mapping[DeviceId, PodSlice | None]) -> None:
        """Advertise these GPUs. Nothing is sent where nothing has changed."""
        total = node_resources.total(gpu.model for gpu in gpus)
        unhealthy = node_resources.total(gpu.model for gpu in gpus if gpu.unhealthy)
        unhealthy_gpus = {gpu.uuid for gpu in gpus if gpu.unhealthy}
        if total.keys() != self._plugins.keys():
            self._resources_changed.set()
        for gone in self._plugins.keys() - total.keys():
            del self._plugins[gone]
        for resource, count in total.items():
            memory = resource == names.MEMORY
            ids = [DeviceId(f"mem-{n}") if memory else device_id(resource, n) for n in range(count)]
            bad = unhealthy_ids(ids, unhealthy.get(resource, 0), assigned, unhealthy_gpus)
            devices = {each: each not in bad for each in ids}
            if resource in self._plugins:
                self._plugins[resource].publish(devices)
            else:
                allocate = _no_devices if memory else self._allocate
                self._plugins[resource] = DevicePlugin(self._folder, resource, devices, allocate, self._kubelet_changed)

    async def run(self) -> None:
        """Keep the plugins registered until cancelled, from the first `publish` on."""
        async with asyncio.TaskGroup() as tasks:
            serving: asyncio.Task[None] | None = None
            while True:
                # The GPUs may become others: the node got another label, or another driver.
                await self._resources_changed.wait()
                self._resources_changed.clear()
                if serving is not None:
                    serving.cancel()
                    await asyncio.wait([serving])
                serving = tasks.create_task(registration.keep(self._folder, tuple(self._plugins.values())))


def _no_devices(_ids: Sequence[DeviceId]) -> list[str]:
    """Memory is counted, not given: it comes with the slice."""
    return []
