"""Where the GPUs of a node come from: played from its labels, or found in it."""

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol

from instaslice.agent.watched import WatchedDriver
from instaslice.drivers import Driver
from instaslice.drivers.nvml.driver import NvmlDriver
from instaslice.kube.core import Node

Say = Callable[[str, str, str], None]
"""Tells people, on the object of the node: why, at what, and in words."""


class Control(Protocol):
    """What is done to the GPUs of one node from outside."""

    def obey(self, node: Node) -> None: ...


class Machines(Protocol):
    """The GPUs of nodes."""

    def shape(self, node: Node) -> Hashable:
        """A node of another shape is another machine. Raises BadInput."""
        ...

    def machine(self, node: Node, say: Say, changed: Callable[[], None]) -> tuple[Driver, Control]:
        """Raises InstasliceError where the node has none that could be used. `changed` is called, in the event loop,
        when their health has changed by itself."""
        ...

    def forget(self, node: Node) -> None:
        """The machine is gone, and its GPUs with it."""
        ...


class Hardware:
    """The GPUs that are in this machine when the agent starts, through NVIDIA's library."""

    def __init__(self, gpus: tuple[str, ...] = (), *, enable_mig: bool = False, proc: Path = Path("/proc")) -> None:
        """Blocks while the GPUs are looked for. Raises DriverError where the library cannot be opened."""
        self.driver = NvmlDriver(gpus, enable_mig=enable_mig, proc=proc)
        self._watched = WatchedDriver(self.driver)

    def shape(self, node: Node) -> Hashable:
        return "hardware"

    def machine(self, node: Node, say: Say, changed: Callable[[], None]) -> tuple[Driver, Control]:
        for gpu, why in self.driver.left_alone.items():
            say("GpuLeftAlone", "Discover", f"{gpu} is left alone: {why}")
        self._watched.watch(changed)
        return self._watched, _Nobody()

    def forget(self, node: Node) -> None:
        """Hardware stays."""


class _Nobody:
    """Nobody controls hardware by annotations."""

    def obey(self, node: Node) -> None:
        return
