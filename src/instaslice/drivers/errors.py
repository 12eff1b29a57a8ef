"""What hardware answers when it refuses.

InstasliceError
├── Stuck              the whole driver hangs, not one GPU: the process ends, nobody catches it
└── DriverError
    ├── SlotTaken      the slot is occupied; choose another
    ├── InUse          a process holds the slice; retry when it is gone
    ├── Unsupported    this GPU has no such profile or start; do not retry
    ├── GpuLost        the GPU does not answer sensibly; nothing on it can be changed
    └── Hung           the call has not returned in time; it may still take effect
"""

from instaslice.errors import InstasliceError


class Stuck(InstasliceError):
    """The driver itself hangs, and with it every GPU. Whoever runs the agent restarts it."""


class DriverError(InstasliceError):
    """Base of all; the message names the GPU and what was attempted."""


class SlotTaken(DriverError):
    """The slot is occupied, or the GPU has no compute slice or engine left for it. Nothing was changed."""


class InUse(DriverError):
    """A process holds the slice. It, or at least its GPU instance, still occupies its slot."""

    def __init__(self, message: str, holders: tuple[str, ...]) -> None:
        super().__init__(message)
        self.holders = holders
        """Who holds it, for people: `pid 4711 (python)`. Empty where the driver cannot tell."""


class Unsupported(DriverError):
    """This GPU has no such profile, or not at that start."""


class GpuLost(DriverError):
    """The GPU has failed: fallen off the bus, or in need of a reset."""


class Hung(DriverError):
    """The driver has not returned in time. Whether the call took effect is unknown: list the slices before the next."""

    def __init__(self, gpu: str, what: str) -> None:
        """`gpu` is its UUID, or its index."""
        remedy = f"look for Xid in dmesg, drain the node, and run nvidia-smi --gpu-reset -i {gpu} or reboot"
        super().__init__(f"GPU {gpu}: {what}; {remedy}")
