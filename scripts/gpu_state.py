"""Whether a GPU may be used for tests of MIG, and how to leave it: `gpu_state.py idle|clean|show [INDEX]`.

    idle    nothing is on it and MIG mode is off (1: no, and why; 3: there is no such GPU)
    clean   every instance destroyed and MIG mode off, whoever created them (1: not possible, and why)
    show    one line

Needs nvidia-ml-py and nothing of ours, so that it works when nothing else does.
"""

import ctypes
import sys
import time
from collections.abc import Callable

import pynvml as nvml

TIMEOUT = 20.0
"""Seconds within which an instance must be released."""

NO_GPU = 3


def main(verb: str = "show", index: str = "0") -> int:
    try:
        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByIndex(int(index))
    except nvml.NVMLError as error:
        print(f"GPU {index}: there is none: {error}")
        return NO_GPU
    try:
        words = {"idle": _why_not, "clean": _clean, "show": lambda _: ""}[verb](gpu)
    except nvml.NVMLError as error:
        words = str(error)
    print(f"GPU {index}: {_state(gpu)}{'; ' + words if words else ''}")
    nvml.nvmlShutdown()
    return 1 if words else 0


def _state(gpu: object) -> str:
    try:
        current, pending = nvml.nvmlDeviceGetMigMode(gpu)
        mode = f"MIG mode {('off', 'on')[current]}" + (
            "" if current == pending else f", {('off', 'on')[pending]} later"
        )
        left = len(list(_instances(gpu))) if current else 0
        return f"{nvml.nvmlDeviceGetName(gpu)}, driver {nvml.nvmlSystemGetDriverVersion()}, {mode}, {left} instances"
    except nvml.NVMLError as error:
        return f"{error}"


def _why_not(gpu: object) -> str:
    try:
        current, pending = nvml.nvmlDeviceGetMigMode(gpu)
    except nvml.NVMLError_NotSupported:
        return "it has no MIG"
    if current or pending:
        return (
            "MIG mode is on: somebody may be using it; switch it off first (gpu_state.py clean destroys what is there)"
        )
    pids = [each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)]
    return f"in use by processes {pids}" if pids else ""


def _clean(gpu: object) -> str:
    current, pending = nvml.nvmlDeviceGetMigMode(gpu)
    if not current and not pending:
        return ""
    for gi in list(_instances(gpu)):
        for number in range(8):
            try:
                ci = nvml.nvmlGpuInstanceGetComputeInstanceById(gi, number)
            except nvml.NVMLError:
                continue
            _patiently(lambda ci=ci: nvml.nvmlComputeInstanceDestroy(ci))
        _patiently(lambda gi=gi: nvml.nvmlGpuInstanceDestroy(gi))
    _patiently(lambda: _switch_off(gpu))
    current, pending = nvml.nvmlDeviceGetMigMode(gpu)
    return "MIG mode did not go off" if current or pending else ""


def _switch_off(gpu: object) -> None:
    status = nvml.nvmlDeviceSetMigMode(gpu, nvml.NVML_DEVICE_MIG_DISABLE)
    if status:
        raise nvml.NVMLError(status)


def _patiently(step: Callable[[], object]) -> None:
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            step()
            return
        except nvml.NVMLError_NotFound:
            return
        except nvml.NVMLError_InUse:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _instances(gpu: object) -> list[object]:
    found = []
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            profile = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number, version=1)
            count = ctypes.c_uint(32)
            some = (nvml.c_nvmlGpuInstance_t * 32)()
            nvml.nvmlDeviceGetGpuInstances(gpu, profile.id, some, ctypes.byref(count))
        except nvml.NVMLError:
            continue  # the GPU has no such profile
        found.extend(some[: count.value])
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
