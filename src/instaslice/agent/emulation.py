"""GPUs played for nodes that have none: which ones, where they are remembered, and what is done to them.

All of it is read from the Node object, so that `kubectl` is the remote control: labels say which GPUs there are,
annotations what ails them and when the machine was started.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from instaslice.agent import fault_annotation
from instaslice.agent.gpu_source import Warn
from instaslice.api import names
from instaslice.drivers import Driver
from instaslice.drivers.emulated import EmulatedDriver
from instaslice.drivers.latencies import INSTANT, Latencies
from instaslice.errors import BadInput
from instaslice.geometry import models
from instaslice.kube.core import Node

MOST_GPUS = 64
MOST_NAME = 180
_BOOTS = uuid.UUID("0d6a2f0e-6c0b-5a57-8f3e-3a1d5f7c9b21")


class EmulatedGpus(NamedTuple):
    """Which GPUs a node has. A node of another shape is another machine."""

    model: str
    gpus: int

    @classmethod
    def of(cls, node: Node) -> "EmulatedGpus":
        """Raises BadInput where the labels do not say it."""
        labels, name = node.metadata.labels, node.metadata.name
        count = labels.get(names.GPU_COUNT, "1")
        if not count.isdecimal() or not 1 <= int(count) <= MOST_GPUS:
            raise BadInput(f"node {name}: label {names.GPU_COUNT}={count}: give a number from 1 to {MOST_GPUS}")
        return cls(labels.get(names.EMULATED, ""), int(count))


@dataclass(frozen=True)
class Emulation:
    """How nodes are played. Without `folder` their slices are gone when the process is."""

    folder: Path | None = None
    latencies: Latencies = INSTANT
    fixed: EmulatedGpus | None = None
    """What every node has, whatever its labels say."""

    def shape(self, node: Node) -> EmulatedGpus:
        """Raises BadInput where the labels do not say it."""
        return self.fixed or EmulatedGpus.of(node)

    def machine(self, node: Node, say: Warn, changed: Callable[[], None]) -> tuple[Driver, "AnnotationControl"]:
        """Raises what `driver` raises. What ails them changes with the node's annotations, which wake us anyway."""
        driver = self.driver(node)
        return driver, AnnotationControl(driver, partial(say, "BadFault", "Emulate"))

    def driver(self, node: Node) -> EmulatedDriver:
        """Raises BadInput, UnknownModel, Unsupported, or DriverError where the file is not ours."""
        shape = self.shape(node)
        model = models.named(shape.model)
        file = self.file(node)
        return EmulatedDriver(node.metadata.name, [model] * shape.gpus, file=file, latencies=self.latencies)

    def forget(self, node: Node) -> None:
        """The machine is gone, and its GPUs with it."""
        if file := self.file(node):
            file.unlink(missing_ok=True)

    async def run(self) -> None:
        """Nothing: played GPUs change when their node does."""

    def file(self, node: Node) -> Path | None:
        """Another for a later machine of the same name: a call that hangs in the old one may still write."""
        # The uid tells nodes apart; names can be longer than file systems take.
        return self.folder / f"{node.metadata.name[:MOST_NAME]}.{node.metadata.uid}.gpus" if self.folder else None


class AnnotationControl:
    """Does to the GPUs of one node what its annotations say. Level-based: asked twice, it does it once."""

    def __init__(self, driver: EmulatedDriver, say: Callable[[str], None]) -> None:
        self._driver = driver
        self._say = say
        self._faults = ""

    def obey(self, node: Node) -> None:
        """A fault that cannot be read is said once, and none is in force."""
        annotations = node.metadata.annotations
        self._boot(node, annotations.get(names.BOOT, ""))
        text = annotations.get(names.FAULT, "")
        if text == self._faults:
            return
        self._faults = text
        gpus = [gpu.uuid for gpu in self._driver.discover()]
        try:
            fault_annotation.apply(fault_annotation.parse(text), self._driver.faults, gpus)
        except BadInput as error:
            self._driver.faults.replace()
            self._say(f"annotation {names.FAULT}: {error}")

    def _boot(self, node: Node, asked: str) -> None:
        if not asked:
            return
        # The boot id follows from the annotation, so that a restarted agent sees whether it was obeyed.
        boot = str(uuid.uuid5(_BOOTS, f"{node.metadata.uid}/{asked}"))
        if self._driver.boot_id() != boot:
            self._driver.reboot(boot)
