"""A driver's process killed at any moment on a real GPU: whoever comes next finds everything, and loses no slot.

A call that is under way mostly takes effect all the same, so that what is left depends on the call that was hit.
"""

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from patience import destroyed

from instaslice.drivers.nvml import NvmlDriver

AGENT = Path(__file__).with_name("deadly_agent.py")
START = 3
KILLS = 24
LONGEST = 0.6
"""Seconds that one create and destroy take at most: a kill within them may hit every call."""


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


@pytest.mark.timeout(150)
def test_a_driver_killed_at_any_moment(driver, index, gpu):
    moments, found = Random(7), Counter()
    for _ in range(KILLS):
        with agent(index, "never") as killed:
            assert killed.stdout.readline() == b"begun\n"
            time.sleep(moments.uniform(0, LONGEST))
            assert killed.poll() is None, "it lived until it was killed"
            killed.send_signal(signal.SIGKILL)
            last = killed.stdout.read().decode().split()[-1:]
        left = recovered(index, gpu)
        assert len(left) <= 1
        call = last[0] if last and last[0] != "back" else "no call"
        found[call, {(): "nothing", (True,): "whole", (False,): "half"}[tuple(left)]] += 1
        # One that lived all the while goes on as if nothing had been.
        driver.destroy(driver.create(gpu.uuid, gpu.model.profiles[0].name, 0))
    for (call, left), times in sorted(found.items()):
        print(f"killed in {call}: left {left}, {times} times")
    under_way = {call for call, _ in found if call.startswith("nvml")}
    assert len(under_way) >= 3, "kills hit calls that were under way"
