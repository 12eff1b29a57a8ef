"""Uses the GPU that it sees until its input ends: a context and some memory, through the driver's own library."""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")


def check(what, code):
    if code:
        sys.exit(f"{what}: CUDA error {code}")


device, context, memory, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
check("cuInit", cuda.cuInit(0))
check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0))
check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 << 20)))
check("cuDeviceTotalMem", cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device))
print(f"ready {total.value}", flush=True)
sys.stdin.read()
