"""A driver that opens new sessions: `renewing_agent.py INDEX` makes a slice, renews the session three times while the
GPU's health is watched, finds the slice each time, and destroys it. A process of its own, since NVML counts who has it
open and a session of another part of this process would keep it from being closed.
"""

import sys
import threading
import time

from instaslice.drivers.nvml import NvmlDriver

driver = NvmlDriver([sys.argv[1]])
(gpu,) = driver.discover()
made = driver.create(gpu.uuid, gpu.model.profiles[0].name, 0)
told = []
watcher = threading.Thread(target=lambda: told.append(driver.watch_health(gpu.uuid, None, 8)), daemon=True)
watcher.start()
for _ in range(3):
    time.sleep(1)
    began = time.monotonic()
    assert driver._session.renew(driver._health.close), "a call does not end"
    print(f"new session after {1000 * (time.monotonic() - began):.0f} ms")
    assert driver.slices(gpu.uuid) == (made,)
    assert driver.minor(gpu.uuid) >= 0
watcher.join(timeout=30)
assert told == [None], told
driver.destroy(made)
driver.close()
