"""Real GPUs, through NVIDIA's management library. The agent makes an NvmlDriver; everything else is its inside.

driver        the Driver for the GPUs of this machine
library       the calls of NVML that we make, without C
session       one long-lived session, and what its errors become
selection     which GPUs are ours: by index, UUID or model
discovery     what is in the machine, with the geometry that each GPU reports
mig_mode      MIG mode, and how it comes on
instances     slices: listed, made, destroyed
holders       which processes keep a slice from being destroyed
health        what ails which GPU
"""

from instaslice.drivers.nvml.driver import NvmlDriver

__all__ = ["NvmlDriver"]
