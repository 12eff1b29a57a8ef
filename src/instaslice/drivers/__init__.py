"""The hardware behind one small interface. Knows GPUs and nothing of Kubernetes; the agent calls it.

driver     the interface, and what goes over it
errors     what hardware can answer instead
executor      how an async caller waits for calls that block
emulated   GPUs that are not there: any model, any number
latencies  how long the emulated ones take
faults     what can be made to go wrong with them
state_file  what they remember when the agent is killed
nvml       real ones, through NVIDIA's management library
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
