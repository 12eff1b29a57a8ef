"""Where the GPUs of a node come from: played from its labels, or found in it."""

from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Protocol

from instaslice.agent.health_watch import WatchedDriver
from instaslice.drivers import Driver
from instaslice.drivers.nvml.driver import NvmlDriver
from instaslice.kube.clock import Clock
from instaslice.kube.core import Node

Warn = Callable[[str, str, str], None]
"""Tells people, on the object of the node: why, at what, and in words."""


class Control(Protocol):
    """What is done to the GPUs of one node from outside."""

    def obey(self, node: Node) -> None: ...


class GpuSource(Protocol):
    """The GPUs of nodes."""

    def shape(self, node: Node) -> Hashable:
        """A node of another shape is another machine. Raises BadInput."""
        ...

    def machine(self, node: Node, say: Warn, changed: Callable[[], None]) -> tuple[Driver, Control]:
        """Raises InstasliceError where the node has none that could be used. `changed` is called, in the event loop,
        when their health has changed by itself."""
        ...

    def forget(self, node: Node) -> None:
        """The machine is gone, and its GPUs with it."""
        ...

    async def run(self) -> None:
        """What goes on beside all nodes, if anything."""
        ...


class Hardware:
    """The GPUs that are in this machine, through NVIDIA's library. One that does not answer joins when it does."""

    def __init__(self, watched: WatchedDriver) -> None:
        self.driver = watched.driver
        self._watched = watched

    @classmethod
    async def found(
        cls, gpus: tuple[str, ...], *, enable_mig: bool, proc: Path, deadline: float, clock: Clock
    ) -> "Hardware":
        """Raises DriverError where the library cannot be opened, and Stuck where it does not come back."""
        opened = partial(NvmlDriver, gpus, enable_mig=enable_mig, proc=proc)
        return cls(await WatchedDriver.found(opened, deadline, clock))

    def shape(self, node: Node) -> Hashable:
        return "hardware"

    def machine(self, node: Node, say: Warn, changed: Callable[[], None]) -> tuple[Driver, Control]:
        for gpu, why in self.driver.left_alone.items():
            say("GpuLeftAlone", "Discover", f"{gpu} is left alone: {why}")
        for each in self._watched.unresponsive():
            say(each.unhealthy.reason, "Discover", f"{each.unhealthy.message}; until it answers it is not used")
        self._watched.changed = changed
        return self._watched, _NoControl()

    def forget(self, node: Node) -> None:
        """Hardware stays."""

    async def run(self) -> None:
        await self._watched.run()


class _NoControl:
    """Nobody controls hardware by annotations."""

    def obey(self, node: Node) -> None:
        return
