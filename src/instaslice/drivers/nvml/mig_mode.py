"""MIG mode: whether it is on, and how it comes on.

Hopper and later switch at once. Ampere, and some GPUs passed through to virtual machines, remember the wish and
switch at their next reset, which ends everything on the GPU: that is for people to decide.
"""

from instaslice.drivers.driver import Unhealthy, UnhealthyReason
from instaslice.drivers.nvml.library import Code, Handle, Library

RESET = (
    "MIG mode comes on with the next reset of this GPU: drain the node and run nvidia-smi --gpu-reset -i {}, or reboot"
)
BUSY = Unhealthy("MIG mode cannot come on while processes use this GPU: end them")
OFF = Unhealthy("MIG mode is off: allow it to be enabled, or run nvidia-smi -mig 1 on this GPU")


def unhealthy(library: Library, gpu: Handle, enable: bool) -> Unhealthy | None:
    """Switches MIG mode on where it is off and `enable` allows; why it is not on, None where it is.

    Raises NvmlError, with NOT_SUPPORTED where the GPU has no MIG.
    """
    current, pending = library.mig_mode(gpu)
    if current:
        return None
    if pending:
        return _waits(library, gpu)
    if not enable:
        return OFF
    match library.set_mig_mode(gpu, True):
        case 0:
            return None
        case Code.RESET_REQUIRED:
            return _waits(library, gpu)
        case Code.IN_USE:
            return BUSY
        case other:
            return Unhealthy(f"MIG mode did not come on (NVML error {other})")


def _waits(library: Library, gpu: Handle) -> Unhealthy:
    return Unhealthy(RESET.format(library.uuid(gpu)), UnhealthyReason.RESET)
