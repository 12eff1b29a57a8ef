"""What our driver adds to NVML, on a real GPU: `bench/gpu.py [INDEX]`.

Slices are made and destroyed in turns through the driver and its executor, as the agent does it, and by bare calls of
the same NVML functions. The GPU must be idle; it is left empty and out of MIG mode. Then a process that only watches
the GPU's health says what that costs.
"""

import asyncio
import ctypes
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pynvml as nvml

from instaslice.drivers import Gpu, Slice
from instaslice.drivers.executor import GpuExecutor
from instaslice.drivers.nvml import NvmlDriver

ROUNDS = {1: 40, 3: 40}
"""Pairs for each number of compute slices that is measured."""

IDLE_S = 20.0
STATE = Path(__file__).parents[1] / "scripts/gpu_state.py"


@dataclass
class Times:
    """Seconds of each try."""

    creates: list[float] = field(default_factory=list)
    destroys: list[float] = field(default_factory=list)


@dataclass
class Bare:
    """The same through nothing but the binding. What is asked once is given."""

    gpu: object
    gi_profile: int
    ci_number: int
    start: int
    size: int

    def create(self) -> tuple[int, int, str]:
        place = nvml.c_nvmlGpuInstancePlacement_t(self.start, self.size)
        gi = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(self.gpu, self.gi_profile, ctypes.byref(place))
        number = nvml.nvmlGpuInstanceGetInfo(gi).id
        # NVML wants to be asked about each new GPU instance, or makes nothing in it.
        shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        filler = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, self.ci_number, shared, version=1)
        nvml.nvmlGpuInstanceCreateComputeInstance(gi, filler.id)
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(self.gpu)):
            try:
                device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.gpu, index)
            except nvml.NVMLError_NotFound:
                continue
            if nvml.nvmlDeviceGetGpuInstanceId(device) == number:
                return number, nvml.nvmlDeviceGetComputeInstanceId(device), nvml.nvmlDeviceGetUUID(device)
        raise LookupError("no MIG device for what was made")

    def destroy(self, made: tuple[int, int, str]) -> None:
        gi = nvml.nvmlDeviceGetGpuInstanceById(self.gpu, made[0])
        nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(gi, made[1]))
        nvml.nvmlGpuInstanceDestroy(gi)


async def ours(executor: GpuExecutor, driver: NvmlDriver, gpu: Gpu, profile: str, start: int, times: Times) -> None:
    began = time.perf_counter()
    made: Slice = await executor.call(gpu.uuid, "create", lambda: driver.create(gpu.uuid, profile, start))
    times.creates.append(time.perf_counter() - began)
    began = time.perf_counter()
    await executor.call(gpu.uuid, "destroy", lambda: driver.destroy(made))
    times.destroys.append(time.perf_counter() - began)


def theirs(bare: Bare, times: Times) -> None:
    began = time.perf_counter()
    made = bare.create()
    times.creates.append(time.perf_counter() - began)
    began = time.perf_counter()
    bare.destroy(made)
    times.destroys.append(time.perf_counter() - began)


def filling(driver: NvmlDriver, gpu: Gpu, profile: str, start: int) -> int:
    """The number of the compute profile that the driver fills this profile with."""
    made = driver.create(gpu.uuid, profile, start)
    handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    gi = nvml.nvmlDeviceGetGpuInstanceById(handle, made.gi)
    ci = nvml.nvmlGpuInstanceGetComputeInstanceById(gi, made.ci)
    wanted = nvml.nvmlComputeInstanceGetInfo_v2(ci).profileId
    for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            profile_info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, number, 0, version=1)
        except nvml.NVMLError_NotSupported:
            continue
        if profile_info.id == wanted:
            driver.destroy(made)
            return number
    raise LookupError(f"no compute profile of {profile} has the id {wanted}")


async def compare(driver: NvmlDriver, gpu: Gpu) -> dict[str, float]:
    """The larger ratio of all sizes. A resident slice keeps the GPU awake: the first on an idle one takes longer."""
    executor, ratios = GpuExecutor(), {"create_ratio": 0.0, "destroy_ratio": 0.0}
    smallest = gpu.model.profiles[0]
    resident = driver.create(gpu.uuid, smallest.name, smallest.starts[-1])
    for compute, rounds in ROUNDS.items():
        size = next((p for p in gpu.model.profiles if p.compute == compute and 0 in p.starts), None)
        if size is None:
            continue
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        bare = Bare(handle, size.gi_id or 0, filling(driver, gpu, size.name, 0), 0, size.size)
        through, direct = Times(), Times()
        for number in range(rounds):
            # Whoever goes second finds the GPU as the other left it: take turns at that too.
            if number % 2:
                theirs(bare, direct)
            await ours(executor, driver, gpu, size.name, 0, through)
            if not number % 2:
                theirs(bare, direct)
        for key, pick in PICKS.items():
            a, b = statistics.median(pick(through)), statistics.median(pick(direct))
            print(f"{size.name} {key.removesuffix('_ratio')}: {a * 1000:.1f} ms ours, {b * 1000:.1f} ms bare")
            ratios[key] = max(ratios[key], a / b)
    driver.destroy(resident)
    return ratios


PICKS: dict[str, Callable[[Times], list[float]]] = {
    "create_ratio": lambda times: times.creates,
    "destroy_ratio": lambda times: times.destroys,
}


def idle(index: str) -> None:
    """Runs in a process of its own: the driver, and nothing to do but watch."""
    driver = NvmlDriver([index])
    (gpu,) = driver.discover()
    driver.watch_health(gpu.uuid, None, 0)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    driver.watch_health(gpu.uuid, None, IDLE_S)
    after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    print(f"idle_cpu_percent={100 * cpu / seconds:.3f} idle_rss_mib={resident / (1 << 20):.0f}")
    driver.close()


def main(index: str = "0", what: str = "") -> int:
    if what == "idle":
        idle(index)
        return 0
    ready = subprocess.run([sys.executable, STATE, "idle", index])
    if ready.returncode:
        return ready.returncode
    try:
        driver = NvmlDriver([index], enable_mig=True)
        (gpu,) = driver.discover()
        print(f"{gpu.model.name}, driver {driver.driver_version()}")
        ratios = asyncio.run(compare(driver, gpu))
        alone = subprocess.run([sys.executable, __file__, index, "idle"], stdout=subprocess.PIPE, text=True, check=True)
        driver.close()
    finally:
        subprocess.run([sys.executable, STATE, "clean", index], check=True)
    print("RESULT", *(f"{key}={value:.3f}" for key, value in ratios.items()), alone.stdout.strip())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
