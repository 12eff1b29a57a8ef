"""A driver that is killed: `deadly_agent.py INDEX CALL START` makes and destroys a slice, and dies by SIGKILL right
after the named call of NVML has come back. With CALL `never` it makes and destroys until somebody else kills it. Of
each call that changes the GPU it says the name as it begins, and `back` when it has come back.
"""

import os
import signal
import sys

import pynvml

from instaslice.drivers.nvml import NvmlDriver

index, deadly, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
CHANGES = {
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
}


class Deadly:
    """The binding, but for the calls that change the GPU."""

    def __getattr__(self, name):
        found = getattr(pynvml, name)
        if name not in CHANGES:
            return found

        def told(*arguments):
            os.write(1, f"{name}\n".encode())
            result = found(*arguments)
            if name == deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(1, b"back\n")
            return result

        return told


driver = NvmlDriver([index], nvml=Deadly())
(gpu,) = driver.discover()
print("begun", flush=True)
while True:
    driver.destroy(driver.create(gpu.uuid, gpu.model.profiles[0].name, start))
