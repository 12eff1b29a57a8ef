"""Emulated GPUs of nodes that have none: which ones, where their state is kept, and the faults requested for them.

All of it is read from the Node object, so that `kubectl` is the remote control: labels say which GPUs there are,
annotations which faults they have and when the node was rebooted.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from instaslice.agent import fault_annotation
from instaslice.agent.gpu_source import ApplyAnnotations, Warn
from instaslice.api import names
from instaslice.api.reasons import NodeEvent
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
    """Which GPUs a node has."""

    model: str
    number: int

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
    """The GPUs of emulated nodes. Without `folder` their slices end with the process."""

    folder: Path | None = None
    latencies: Latencies = INSTANT
    fixed: EmulatedGpus | None = None
    """What every node has, whatever its labels say."""

    def gpus(self, node: Node) -> EmulatedGpus:
        """Raises BadInput where the labels do not say it."""
        return self.fixed or EmulatedGpus.of(node)

    def connect(self, node: Node, warn: Warn, changed: Callable[[], None]) -> tuple[Driver, ApplyAnnotations]:
        """Raises what `driver` raises. Faults change with the node's annotations, which are watched anyway."""
        driver = self.driver(node)
        return driver, AnnotationControl(driver, partial(warn, NodeEvent.BAD_FAULT, "Emulate")).apply

    def driver(self, node: Node) -> EmulatedDriver:
        """Raises BadInput, UnknownModel, Unsupported, or DriverError where its state file cannot be read."""
        gpus = self.gpus(node)
        model = models.named(gpus.model)
        file = self.file(node)
        return EmulatedDriver(node.metadata.name, [model] * gpus.number, file=file, latencies=self.latencies)

    def forget(self, node: Node) -> None:
        """The node is gone, and its GPUs with it."""
        if file := self.file(node):
            file.unlink(missing_ok=True)

    async def run(self) -> None:
        """Nothing: emulated GPUs change when their node does."""

    def file(self, node: Node) -> Path | None:
        """Not shared with a later node of the same name: a call that hangs for the old one may still write."""
        # The uid tells nodes apart; names can be longer than file systems take.
        return self.folder / f"{node.metadata.name[:MOST_NAME]}.{node.metadata.uid}.gpus" if self.folder else None


class AnnotationControl:
    """Applies the annotations of one node to its GPUs. Level-based: applying them twice does it once."""

    def __init__(self, driver: EmulatedDriver, warn: Callable[[str], None]) -> None:
        self._driver = driver
        self._warn = warn
        self._faults = ""

    def apply(self, node: Node) -> None:
        """Where a fault cannot be parsed, that is reported once and none is in force."""
        annotations = node.metadata.annotations
        self._reboot(node, annotations.get(names.BOOT, ""))
        text = annotations.get(names.FAULT, "")
        if text == self._faults:
            return
        self._faults = text
        gpus = [gpu.uuid for gpu in self._driver.discover()]
        try:
            fault_annotation.apply(fault_annotation.parse(text), self._driver.faults, gpus)
        except BadInput as error:
            self._driver.faults.replace()
            self._warn(f"annotation {names.FAULT}: {error}")

    def _reboot(self, node: Node, requested: str) -> None:
        if not requested:
            return
        # The boot id follows from the annotation, so that a restarted agent sees whether it was done.
        boot = str(uuid.uuid5(_BOOTS, f"{node.metadata.uid}/{requested}"))
        if self._driver.boot_id() != boot:
            self._driver.reboot(boot)
