"""What hardware answers when it does not do what was asked.

InstasliceError
├── Stuck              not one GPU but the whole driver does not come back: the process ends, nobody catches it
└── DriverError
    ├── SlotTaken      something is where the slice should be; choose another slot
    ├── InUse          a process holds the slice; try again when it is gone
    ├── Unsupported    this GPU has no such profile or start; never try again
    ├── GpuLost        the GPU does not answer sensibly; nothing on it can be changed
    └── Hung           the call has not come back in time; it may still take effect
"""

from instaslice.errors import InstasliceError


class Stuck(InstasliceError):
    """The driver itself hangs, and with it every GPU. Whoever runs the agent starts it anew."""


class DriverError(InstasliceError):
    """Base of all; the message names the GPU and what was tried."""


class SlotTaken(DriverError):
    """Something is in the way, or the GPU has no compute slice or engine left for it. Nothing was changed."""


class InUse(DriverError):
    """The slice is held. It, or at least its GPU instance, still takes its slot."""

    def __init__(self, message: str, holders: tuple[str, ...]) -> None:
        super().__init__(message)
        self.holders = holders
        """Who holds it, for people: `pid 4711 (python)`. Empty where the driver cannot tell."""


class Unsupported(DriverError):
    """This GPU has no such profile, or not at that start."""


class GpuLost(DriverError):
    """The GPU has failed: fallen off the bus, or in need of a reset."""


class Hung(DriverError):
    """The driver has not come back in time. Whether it took effect is unknown: look before the next step."""

    def __init__(self, gpu: str, what: str) -> None:
        """`gpu` is its UUID, or its index."""
        remedy = f"look for Xid in dmesg, drain the node, and run nvidia-smi --gpu-reset -i {gpu} or reboot"
        super().__init__(f"GPU {gpu}: {what}; {remedy}")
