"""Where the GPUs of a node come from: emulated from its labels, or found in this machine."""

from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Protocol

from instaslice.agent.health_watch import WatchedDriver
from instaslice.api.reasons import NodeEvent
from instaslice.drivers import Driver
from instaslice.drivers.nvml.driver import NvmlDriver
from instaslice.kube.clock import Clock
from instaslice.kube.core import Node

ApplyAnnotations = Callable[[Node], None]
"""Applies the faults and reboots that the annotations of a node request for its GPUs."""
Warn = Callable[[str, str, str], None]
"""Records an Event on the object of the node: reason, action, note."""


class GpuSource(Protocol):
    """The GPUs of nodes."""

    def gpus(self, node: Node) -> Hashable:
        """Which GPUs the node has; where that changes, it gets a new driver. Raises BadInput."""
        ...

    def connect(self, node: Node, warn: Warn, changed: Callable[[], None]) -> tuple[Driver, ApplyAnnotations]:
        """Raises InstasliceError where the node has none that can be used. `changed` is called, in the event loop, when
        their health has changed."""
        ...

    def forget(self, node: Node) -> None:
        """The node is gone, and its GPUs with it."""
        ...

    async def run(self) -> None:
        """Whatever runs beside all nodes."""
        ...


class Hardware:
    """The GPUs of this machine, through NVIDIA's library. One that does not answer joins when it does."""

    def __init__(self, watched: WatchedDriver) -> None:
        self.driver = watched.driver
        self._watched = watched

    @classmethod
    async def open(
        cls, gpus: tuple[str, ...], *, enable_mig: bool, proc: Path, deadline: float, clock: Clock
    ) -> "Hardware":
        """Raises DriverError where the library cannot be opened, and Stuck where it hangs."""
        opened = partial(NvmlDriver, gpus, enable_mig=enable_mig, proc=proc)
        return cls(await WatchedDriver.open(opened, deadline, clock))

    def gpus(self, node: Node) -> Hashable:
        return "hardware"

    def connect(self, node: Node, warn: Warn, changed: Callable[[], None]) -> tuple[Driver, ApplyAnnotations]:
        for gpu, why in self.driver.left_alone.items():
            warn(NodeEvent.GPU_LEFT_ALONE, "Discover", f"{gpu} is left alone: {why}")
        for each in self._watched.unresponsive():
            warn(each.unhealthy.reason, "Discover", f"{each.unhealthy.message}; it is not used until it answers")
        self._watched.changed = changed
        return self._watched, lambda _node: None

    def forget(self, node: Node) -> None:
        """Hardware stays."""

    async def run(self) -> None:
        await self._watched.run()
