"""A real GPU for the tests of this folder, and the promise that it is left as it was found.

They cut the GPU up, so nobody runs them by chance: `make test-gpu` names the GPU in INSTASLICE_TEST_GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import destroyed

from instaslice.drivers import DriverError
from instaslice.drivers.nvml import NvmlDriver

ROOT = Path(__file__).parents[2]
CHOSEN = "INSTASLICE_TEST_GPU"


def gpu_state(verb, index):
    """A process of its own, so that nothing that went wrong in ours is in the way."""
    return subprocess.run(
        [sys.executable, ROOT / "scripts/gpu_state.py", verb, index], capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="session")
def index():
    """The GPU that these tests may change, as an index. Idle when they begin, empty and out of MIG mode afterwards."""
    chosen = os.environ.get(CHOSEN)
    if chosen is None:
        pytest.skip("changes how a GPU is cut: run `make test-gpu`, where there is one that nobody uses")
    idle = gpu_state("idle", chosen)
    if idle.returncode == 3:
        pytest.skip(f"needs a real GPU: {idle.stdout.strip()}")
    assert idle.returncode == 0, idle.stdout + idle.stderr
    try:
        yield chosen
    finally:
        clean = gpu_state("clean", chosen)
    assert clean.returncode == 0, clean.stdout + clean.stderr


@pytest.fixture(scope="session")
def driver(index):
    try:
        driver = NvmlDriver([index], enable_mig=True)
    except DriverError as error:
        pytest.skip(f"needs a real GPU: {error}")
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def gpu(driver):
    found = driver.discover()
    assert len(found) == 1, driver.left_alone
    return found[0]


@pytest.fixture(autouse=True)
def left_empty(driver, gpu):
    """Each test starts on an empty GPU, whatever the one before has left."""
    yield
    for each in driver.slices(gpu.uuid):
        destroyed(driver, each)
    assert driver.slices(gpu.uuid) == ()
