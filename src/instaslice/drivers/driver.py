"""What the agent needs from hardware: find GPUs, create, list and destroy slices, watch the health of GPUs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

from instaslice.geometry import Model, Placement

GpuUuid = NewType("GpuUuid", str)
MigUuid = NewType("MigUuid", str)


class UnhealthyReason(StrEnum):
    """Why a GPU is unhealthy, as the reason of a condition; the worst first."""

    HUNG = "GpuHung"
    """It does not answer."""
    RESET = "ResetNeeded"
    """It has to be reset; the message has the command."""
    OTHER = "GpuUnhealthy"
    """Anything else; the message says what, with the remedy."""


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """What is wrong with a GPU, with the remedy."""

    message: str
    reason: UnhealthyReason = UnhealthyReason.OTHER


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU with the geometry that its driver reports. `index` is its number in the machine."""

    uuid: GpuUuid
    index: int
    model: Model


@dataclass(frozen=True, slots=True)
class Slice:
    """A GPU instance on the hardware, with the compute instance that fills it.

    `ci` and `mig_uuid` are None where a create or a destroy was interrupted between the two: nothing can run in such a
    slice, yet it occupies its slot. Destroy it. The next slice at the same place may get the same ids and MIG UUID, so
    they do not tell an old slice from a new one.
    """

    gpu: GpuUuid
    placement: Placement
    gi: int
    ci: int | None = None
    mig_uuid: MigUuid | None = None

    @property
    def whole(self) -> bool:
        return self.mig_uuid is not None


@dataclass(frozen=True, slots=True)
class UnresponsiveGpu:
    """A GPU in the machine that did not answer when it was probed: its geometry is unknown, and its UUID is known only
    where it got that far."""

    index: int
    unhealthy: Unhealthy
    uuid: GpuUuid | None = None

    def matches(self, uuid: str, index: int) -> bool:
        return self.uuid == uuid if self.uuid else self.index == index


class Driver(Protocol):
    """The GPUs of one node.

    Every call blocks for as long as the hardware takes: milliseconds to a second, or indefinitely on a hung GPU. So
    none is made from an event loop, unless `immediate` allows it. The hardware serialises the calls for one GPU; the
    caller makes them one after another from one thread, and calls for different GPUs in parallel, so that a hung GPU
    delays only itself. `executor.GpuExecutor` does this for an async caller, with a deadline.

    A driver keeps no state of its own: after a kill at any moment, `slices` on a new driver returns what exists. All
    calls raise GpuLost where the GPU has failed.
    """

    def immediate(self, gpu: GpuUuid) -> bool:
        """Whether the next calls for this GPU do not block: true only of emulated GPUs without latency."""
        return False

    def boot_id(self) -> str:
        """Changes when the machine reboots, which removes all slices."""
        ...

    def discover(self) -> tuple[Gpu, ...]:
        """All GPUs that can be sliced, by index; also unhealthy ones."""
        ...

    def unresponsive(self) -> tuple[UnresponsiveGpu, ...]:
        """GPUs that do not answer yet; once they do, `discover` may include them."""
        return ()

    def slices(self, gpu: GpuUuid) -> tuple[Slice, ...]:
        """All slices of a GPU by start, whoever made them."""
        ...

    def create(self, gpu: GpuUuid, profile: str, start: int) -> Slice:
        """Create a slice and return it whole. Not safe to repeat: raises SlotTaken where the slot is taken, also by an
        earlier try, and Unsupported where the GPU has no such placement. GpuLost, or a kill, may leave it half made:
        check with `slices`."""
        ...

    def destroy(self, doomed: Slice) -> None:
        """Remove the slice in this place, if it still has this profile. Safe to repeat: does nothing where it is gone.
        Raises InUse; the compute instance may be gone by then and the GPU instance still exist."""
        ...

    def watch_health(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        """Why a GPU is unhealthy: returns immediately where that differs from `known`, else when it changes or after
        `seconds`.

        Needs a thread of its own for each GPU, except with 0 seconds, which does not wait.
        """
        ...
