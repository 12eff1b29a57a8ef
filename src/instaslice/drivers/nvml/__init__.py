"""Real GPUs, through NVIDIA's management library. The agent uses NvmlDriver; everything else is internal.

driver     the Driver for the GPUs of this machine
library    the NVML calls that we make, without C types
session    one long-lived session, and how its errors are translated
selection  which GPUs are ours: by index, UUID or model
discovery  the GPUs of the machine, with the geometry that each reports
mig_mode   MIG mode, and how it is enabled
instances  list, create and destroy slices
holders    which processes keep a slice from being destroyed
health     the health of each GPU
"""

from instaslice.drivers.nvml.driver import NvmlDriver

__all__ = ["NvmlDriver"]
