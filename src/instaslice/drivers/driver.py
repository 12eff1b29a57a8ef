"""What the agent asks of hardware: find GPUs, make and destroy slices, list them, tell what ails."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

from instaslice.geometry import Model, Placement

GpuUuid = NewType("GpuUuid", str)
MigUuid = NewType("MigUuid", str)


class UnhealthyReason(StrEnum):
    """What kind of trouble a GPU is in, the worst first."""

    HUNG = "GpuHung"
    RESET = "ResetNeeded"
    OTHER = "GpuUnhealthy"


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """What is wrong with a GPU that is not well, with the remedy."""

    message: str
    reason: UnhealthyReason = UnhealthyReason.OTHER


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU with the geometry that its driver reports. `index` is its place in the machine."""

    uuid: GpuUuid
    index: int
    model: Model


@dataclass(frozen=True, slots=True)
class Slice:
    """A GPU instance on the hardware, with the compute instance that fills it.

    `ci` and `mig_uuid` are None where a create or a destroy was cut off between the two: nothing can run in such a
    slice, yet it takes its slot. Destroy it. The next slice at the same place may get the same ids and MIG UUID, so
    neither tells an old slice from a new one.
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
    """A GPU that is in the machine and has not answered when it was looked for: its geometry is not known, and its
    UUID only where it got as far as that."""

    index: int
    unhealthy: Unhealthy
    uuid: GpuUuid | None = None

    def matches(self, uuid: str, index: int) -> bool:
        return self.uuid == uuid if self.uuid else self.index == index


class Driver(Protocol):
    """The GPUs of one node.

    Every call blocks for as long as the hardware takes: milliseconds to a second, or for ever on a sick GPU. So no
    call is made from an event loop, unless `immediate` says that it may. The hardware serialises what concerns one GPU;
    the caller makes such calls one after another from one thread, and calls for different GPUs side by side, so that
    a hung GPU holds up itself alone. `executor.GpuExecutor` does this for an async caller, with a deadline.

    Nothing is kept by the caller's side of a driver: after a kill at any moment, `slices` on a new driver tells what
    there is. All calls raise GpuLost where the GPU has failed.
    """

    def immediate(self, gpu: GpuUuid) -> bool:
        """Whether the next calls for this GPU come back at once: true of nothing but memory. Hardware never is."""
        return False

    def boot_id(self) -> str:
        """Changes when the machine was started anew, and with that all slices were lost."""
        ...

    def discover(self) -> tuple[Gpu, ...]:
        """All GPUs that can be sliced, by index; also those that are not well."""
        ...

    def unresponsive(self) -> tuple[UnresponsiveGpu, ...]:
        """GPUs that may belong to `discover` one day: they do not answer yet."""
        return ()

    def slices(self, gpu: GpuUuid) -> tuple[Slice, ...]:
        """All slices of a GPU by start, whoever made them."""
        ...

    def create(self, gpu: GpuUuid, profile: str, start: int) -> Slice:
        """Make a slice and return it whole. Not safe to repeat: a slot that is already taken, also by an earlier try,
        is SlotTaken. Raises Unsupported where the GPU has no such placement. GpuLost, or a kill, may leave it half
        made: `slices` tells."""
        ...

    def destroy(self, doomed: Slice) -> None:
        """Remove what is at the slice's place, if it is still of its profile. Safe to repeat: a slice that is gone
        is fine. Raises InUse; the compute instance may be gone by then and the GPU instance still there."""
        ...

    def watch_health(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        """What ails a GPU: at once where that differs from `known`, else when it changes or after `seconds`.

        Needs a thread of its own for each GPU, except with 0 seconds, which waits for no change.
        """
        ...
