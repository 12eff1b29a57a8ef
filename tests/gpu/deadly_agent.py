"""A driver that is killed: `deadly_agent.py INDEX CALL [START]` makes and destroys a slice, and dies by SIGKILL right
after the named call of NVML has come back. With CALL `never` it makes and destroys until somebody else kills it."""

import os
import signal
import sys

import pynvml

from instaslice.drivers.nvml import NvmlDriver

index, deadly, start = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Deadly:
    """The binding, but for one call."""

    def __getattr__(self, name):
        found = getattr(pynvml, name)
        if name != deadly:
            return found

        def last(*arguments):
            found(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

        return last


driver = NvmlDriver([index], nvml=Deadly())
(gpu,) = driver.discover()
print("begun", flush=True)
while True:
    driver.destroy(driver.create(gpu.uuid, gpu.model.profiles[0].name, start))
