"""The hardware behind one small interface. Knows GPUs and nothing of Kubernetes; the agent calls it.

driver      the interface and its values
errors      what hardware answers when it refuses
executor    blocking calls for an async caller: one thread per GPU, with a deadline
emulated    emulated GPUs: any model, any number
latencies   how long their steps take
faults      what can be made to go wrong with them
state_file  their slices, kept when the agent is killed
nvml        real GPUs, through NVIDIA's management library
"""

from instaslice.drivers.driver import Driver, Gpu, GpuUuid, MigUuid, Slice, Unhealthy, UnhealthyReason, UnresponsiveGpu
from instaslice.drivers.errors import DriverError, GpuLost, Hung, InUse, SlotTaken, Stuck, Unsupported

__all__ = [
    "Driver",
    "DriverError",
    "Gpu",
    "GpuLost",
    "GpuUuid",
    "Hung",
    "InUse",
    "MigUuid",
    "Slice",
    "SlotTaken",
    "Stuck",
    "Unhealthy",
    "UnhealthyReason",
    "UnresponsiveGpu",
    "Unsupported",
]
