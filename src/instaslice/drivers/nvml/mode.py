"""MIG mode: whether it is on, and how it comes on.

Hopper and later switch at once. Ampere, and some GPUs passed through to virtual machines, remember the wish and
switch at their next reset, which ends everything on the GPU: that is for people to decide.
"""

from instaslice.drivers.nvml.library import Code, Handle, Library

RESET = "MIG mode comes on with the next reset of this GPU: end what uses it and run nvidia-smi --gpu-reset, or reboot"
BUSY = "MIG mode cannot come on while processes use this GPU: end them"
OFF = "MIG mode is off: allow it to be enabled, or run nvidia-smi -mig 1 on this GPU"


def ill(library: Library, gpu: Handle, enable: bool) -> str:
    """Switches MIG mode on where it is off and `enable` allows; why it is not on, empty where it is.

    Raises Refused, with NOT_SUPPORTED where the GPU has no MIG.
    """
    current, pending = library.mig_mode(gpu)
    if current:
        return ""
    if pending:
        return RESET
    if not enable:
        return OFF
    match library.set_mig_mode(gpu, True):
        case 0:
            return ""
        case Code.RESET_REQUIRED:
            return RESET
        case Code.IN_USE:
            return BUSY
        case other:
            return f"MIG mode did not come on (NVML error {other})"
