"""Profile names: read, printed, and made from a slice's memory as NVIDIA makes them.

NVIDIA writes `1g.5gb+me`; a Kubernetes resource name cannot hold a `+`, so its device plugin writes
`nvidia.com/mig-1g.5gb.me`. `-me` stays as it is.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from instaslice.geometry.errors import UnknownProfile

RESOURCE_PREFIX: Final = "mig-"
_NAME = re.compile(r"(?P<compute>[1-9]\d*)g\.(?P<gb>\d+)gb(?P<extra>([+.-])(me\.all|me|gfx))?")

# What the driver appends to a name, by its profile number (NVML_GPU_INSTANCE_PROFILE_*). Needed only where the driver
# is too old to report the name.
EXTRA_BY_ENUM: Final = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}


@dataclass(frozen=True, slots=True, order=True)
class ProfileName:
    """`<compute>g.<gb>gb` and what follows it: nothing, `+me`, `+me.all`, `+gfx` or `-me`."""

    compute: int
    gb: int
    extra: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `1g.5gb+me`, `1g.5gb.me`, `mig-1g.5gb.me` or `nvidia.com/mig-1g.5gb.me`. Raises UnknownProfile."""
        bare = text.rpartition("/")[2].removeprefix(RESOURCE_PREFIX)
        found = _NAME.fullmatch(bare)
        if found is None:
            raise UnknownProfile(f"{text!r} is not a profile name; it looks like 1g.5gb, 3g.20gb or 1g.5gb+me")
        extra = found["extra"] or ""
        if extra.startswith("."):
            extra = "+" + extra[1:]
        return cls(int(found["compute"]), int(found["gb"]), extra)

    def __str__(self) -> str:
        return f"{self.compute}g.{self.gb}gb{self.extra}"

    @property
    def resource(self) -> str:
        """The part of a Kubernetes resource name after the domain: `mig-1g.5gb.me`."""
        return RESOURCE_PREFIX + str(self).replace("+", ".")


def label_gb(slice_mib: int, gpu_bytes: int) -> int:
    """The number before `gb` in a profile's name, as NVIDIA's go-nvlib computes it.

    The slice is rounded up to eighths of the GPU, the GPU up to whole GiB, and a half is rounded away from zero
    (Python's `round` would call H200's 3g slice 70gb; NVIDIA calls it 71gb).
    """
    gib = 1 << 30
    eighths = -(-8 * slice_mib * (1 << 20) // gpu_bytes)
    whole = -(-gpu_bytes // gib)
    return (2 * eighths * whole + 8) // 16
