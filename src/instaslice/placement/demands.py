"""What is asked for and what is granted: the plain values that cross the border of this package."""

import math
from collections.abc import Callable
from typing import NamedTuple, NewType

NodeName = NewType("NodeName", str)
GpuId = NewType("GpuId", str)

Admits = Callable[[NodeName], bool]
"""Whether a node admits the pod: CPU, memory, selector, taints. Called only for nodes with room; must not change
its answer during one call."""


Prefers = Callable[[NodeName], float]
"""How much the pod prefers an admitted node. Decides only between candidates that a policy finds equally good."""


class Share(NamedTuple):
    """A part of a GPU's memory, without MIG: so many MiB, or a fraction of the GPU it is placed on."""

    mib: int = 0
    fraction: float = 0.0

    def of(self, memory_mib: int) -> int:
        """MiB to reserve on a GPU of that size; a fraction is rounded up, so that no pod gets less than promised."""
        return max(self.mib, math.ceil(self.fraction * memory_mib), 1)

    def __str__(self) -> str:
        return f"{self.mib} MiB of a shared GPU" if self.mib else f"{self.fraction:g} of a shared GPU"


Want = str | Share
"""One slice: a profile's name as NVIDIA writes it (`3g.20gb`, `1g.5gb+me`) or a share."""


class Demand(NamedTuple):
    """All slices of one pod. They go to one node, since a pod runs on one; several GPUs of it may be used."""

    wants: tuple[Want, ...]
    admits: Admits | None = None
    prefers: Prefers | None = None


class Grant(NamedTuple):
    """One slice promised: memory slices `start` to `start + size - 1` of a GPU. For a share `size` is MiB."""

    node: NodeName
    gpu: GpuId
    want: Want
    start: int
    size: int


class Plan(NamedTuple):
    """Grants for every want of a demand, in the same order. Nothing is held until it is committed."""

    grants: tuple[Grant, ...]

    @property
    def node(self) -> NodeName:
        return self.grants[0].node
