"""Faults of emulated GPUs. Safe to call from any thread, while calls are in progress."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from instaslice.drivers.driver import GpuUuid, Unhealthy
from instaslice.drivers.errors import GpuLost

FALLEN = "Xid 79: GPU has fallen off the bus; reset the GPU or drain the node"


@dataclass(frozen=True, slots=True)
class SliceHold:
    """Somebody uses a slice. A monitor releases the compute instance but not the GPU instance."""

    holders: tuple[str, ...]
    monitor: bool = False


class Faults:
    """The faults of one node. Each lasts until it is removed, except refused creates, which are counted."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._refusals: Counter[GpuUuid] = Counter()
        self._holds: dict[tuple[GpuUuid, int], SliceHold] = {}
        self._unhealthy: dict[GpuUuid, Unhealthy] = {}
        self._hanging: set[GpuUuid] = set()

    def replace(
        self,
        *,
        refusals: Mapping[GpuUuid, int] | None = None,
        holds: Mapping[tuple[GpuUuid, int], SliceHold] | None = None,
        unhealthy: Mapping[GpuUuid, str] | None = None,
        hanging: Iterable[GpuUuid] = (),
    ) -> None:
        """Have these faults and no others, atomically: a GPU that hung and still does lets no call through in
        between."""
        with self._changed:
            self._refusals = Counter(refusals or {})
            self._holds = dict(holds or {})
            self._unhealthy = {gpu: Unhealthy(reason) for gpu, reason in (unhealthy or {}).items()}
            self._hanging = set(hanging)
            self._changed.notify_all()

    # Called by the emulated driver ----------------------------------------------------------------------------------

    def check(self, gpu: GpuUuid, what: str) -> None:
        """Before every step: wait while the GPU hangs, then raise GpuLost if it has failed."""
        with self._changed:
            self._changed.wait_for(lambda: gpu not in self._hanging)
            if unhealthy := self._unhealthy.get(gpu):
                raise GpuLost(f"GPU {gpu}: {what}: {unhealthy.message}")

    def hangs(self, gpu: GpuUuid) -> bool:
        with self._changed:
            return gpu in self._hanging

    def take_refusal(self, gpu: GpuUuid) -> bool:
        """Whether to refuse a create; counts it."""
        with self._changed:
            if not self._refusals[gpu]:
                return False
            self._refusals[gpu] -= 1
            return True

    def held(self, gpu: GpuUuid, start: int) -> SliceHold | None:
        with self._changed:
            return self._holds.get((gpu, start))

    def watch(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        with self._changed:
            if seconds:
                self._changed.wait_for(lambda: self._unhealthy.get(gpu) != known, timeout=seconds)
            return self._unhealthy.get(gpu)
