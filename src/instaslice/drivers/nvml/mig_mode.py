"""MIG mode: whether it is enabled, and how to enable it.

Hopper and later switch immediately. Ampere, and some GPUs passed through to virtual machines, switch at their next
reset, which ends everything on the GPU: people decide when.
"""

from instaslice.drivers.driver import Unhealthy, UnhealthyReason
from instaslice.drivers.nvml.library import Code, Handle, Library

RESET = "the next reset of this GPU enables MIG mode: drain the node and run nvidia-smi --gpu-reset -i {}, or reboot"
BUSY = Unhealthy("MIG mode cannot be enabled while processes use this GPU: end them")
OFF = Unhealthy("MIG mode is off: allow it to be enabled, or run nvidia-smi -mig 1 on this GPU")


def unhealthy(library: Library, gpu: Handle, enable: bool) -> Unhealthy | None:
    """Enables MIG mode where it is off and `enable` allows it. Why it is off; None where it is on.

    Raises NvmlError, with NOT_SUPPORTED where the GPU has no MIG.
    """
    current, pending = library.mig_mode(gpu)
    if current:
        return None
    if pending:
        return _needs_reset(library, gpu)
    if not enable:
        return OFF
    match library.set_mig_mode(gpu, True):
        case 0:
            return None
        case Code.RESET_REQUIRED:
            return _needs_reset(library, gpu)
        case Code.IN_USE:
            return BUSY
        case other:
            return Unhealthy(f"MIG mode could not be enabled (NVML error {other})")


def _needs_reset(library: Library, gpu: Handle) -> Unhealthy:
    return Unhealthy(RESET.format(library.uuid(gpu)), UnhealthyReason.RESET)
