"""A driver's process killed at any moment on a real GPU: whoever comes next finds everything, and loses no slot."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from patience import destroyed

from instaslice.drivers.nvml import NvmlDriver

AGENT = Path(__file__).with_name("deadly_agent.py")
START = 3


def agent(index, deadly):
    return subprocess.Popen([sys.executable, AGENT, index, deadly, str(START)], stdout=subprocess.PIPE)


def recovered(index, gpu):
    """What a new driver found. Afterwards the GPU is empty and the slot can be had again."""
    again = NvmlDriver([index])
    try:
        found = again.slices(gpu.uuid)
        for each in found:
            destroyed(again, each)
        made = again.create(gpu.uuid, gpu.model.profiles[0].name, START)
        assert again.slices(gpu.uuid) == (made,)
        again.destroy(made)
        assert again.slices(gpu.uuid) == ()
    finally:
        again.close()
    return [each.whole for each in found]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "call, left",
    [
        pytest.param("nvmlDeviceCreateGpuInstanceWithPlacement", [False], id="between GPU and compute instance"),
        pytest.param("nvmlGpuInstanceCreateComputeInstance", [True], id="between compute instance and report"),
        pytest.param("nvmlComputeInstanceDestroy", [False], id="during destroy"),
        pytest.param("nvmlGpuInstanceDestroy", [], id="after destroy"),
    ],
)
def test_a_driver_killed_between_two_steps(driver, index, gpu, call, left):
    with agent(index, call) as killed:
        assert killed.wait(timeout=30) == -signal.SIGKILL
    assert recovered(index, gpu) == left


@pytest.mark.timeout(120)
def test_a_driver_killed_at_any_moment(driver, index, gpu):
    pauses, found = Random(7), []
    for _ in range(12):
        with agent(index, "never") as killed:
            assert killed.stdout.readline() == b"begun\n"
            time.sleep(pauses.uniform(0, 0.4))
            killed.send_signal(signal.SIGKILL)
        found.append(recovered(index, gpu))
    print(f"slices left, whole or half: {found}")
    assert all(len(each) <= 1 for each in found)
