"""`instaslice`, on a GPU that hangs: `hanging_agent.py FILE ARGUMENTS…` looks for GPUs and gets no answer about their
geometry while FILE exists. Looks again each second.
"""

import sys
import time
from pathlib import Path

import pynvml

from instaslice.agent import health_watch
from instaslice.cli.main import main

file, call = Path(sys.argv[1]), pynvml.nvmlDeviceGetGpuInstancePossiblePlacements


def late(*arguments):
    while file.exists():
        time.sleep(0.1)
    return call(*arguments)


pynvml.nvmlDeviceGetGpuInstancePossiblePlacements = late
health_watch.PROBE_SECONDS = 1.0
sys.argv[1:2] = []
main()
