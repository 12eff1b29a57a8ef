"""One slice size of one GPU model: what it takes and where it may start."""

from dataclasses import dataclass
from typing import Final, NamedTuple


class Placement(NamedTuple):
    """A profile at a start: memory slices `start` to `start + size - 1` of one GPU."""

    profile: str
    start: int
    size: int

    @property
    def mask(self) -> int:
        """The memory slices it covers, as bits."""
        return ((1 << self.size) - 1) << self.start

    def __str__(self) -> str:
        return f"{self.profile} at {self.start}"


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines that a slice takes from its GPU. Media engines are counted out, so they can be what is short."""

    copy: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0

    @property
    def media(self) -> tuple[int, int, int, int]:
        # Copy engines are left out: they are shared where they are short (Thor has one for two slices).
        return (self.decoders, self.encoders, self.jpeg, self.ofa)


NO_ENGINES: Final = Engines()


@dataclass(frozen=True, slots=True)
class Profile:
    """What one slice of this size takes. Memory is counted in memory slices of its model, MiB is for information.

    `starts` is empty if the placements are not published: such a profile exists but cannot be placed before NVML was
    queried. The driver's three numbers differ: `nvml_enum` queries the profile, `gi_id` creates a GPU instance,
    `ci_enum` is the compute instance that fills it.
    """

    name: str
    compute: int
    size: int
    starts: tuple[int, ...]
    limit: int
    gb: int
    memory_mib: int | None = None
    sms: int | None = None
    engines: Engines = NO_ENGINES
    nvml_enum: int | None = None
    gi_id: int | None = None
    ci_enum: int | None = None
    note: str = ""

    def placements(self) -> tuple[Placement, ...]:
        return tuple(Placement(self.name, start, self.size) for start in self.starts)
