"""The NVML calls that we make, as plain Python: no C types, no sizes to query first.

The binding is injected, so that tests can fake it. It has no types of its own; this is the only module that handles its
results, and everything returned from here has a type.
"""

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, NewType, TypeVar

from instaslice.drivers.errors import DriverError

T = TypeVar("T")
Handle = NewType("Handle", object)
"""NVML's handle of a GPU, a MIG device, a GPU instance, a compute instance or a set of events."""

MANY_INSTANCES = 32
"""Buffer for the instances of one profile; no GPU has as many slices."""

MANY_PROFILES = 32
"""Profile numbers are tried up to here where a driver does not say which is the last."""


class Code(IntEnum):
    """NVML errors that we distinguish. The numbers are part of its ABI."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    VERSION_MISMATCH = 18
    IN_USE = 19
    INSUFFICIENT_RESOURCES = 23
    STRUCT_MISMATCH = 25
    GPU_NOT_FOUND = 28


class NvmlError(DriverError):
    """NVML returned an error."""

    def __init__(self, call: str, code: int, message: str) -> None:
        super().__init__(f"{call}: {message} (NVML error {code})")
        self.code = code


class GpuInstance(NamedTuple):
    """A GPU instance as NVML lists it. `profile` is the id that instances of its profile are created with."""

    handle: Handle
    id: int
    profile: int
    start: int
    size: int


class MigDevice(NamedTuple):
    """A compute instance as programs see it."""

    handle: Handle
    gi: int
    ci: int
    uuid: str


class GpuInstanceProfile(NamedTuple):
    """Queried by `number`, while instances are created with `id`. `name` is empty where the driver is too old to know
    it, or MIG mode is off."""

    number: int
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    memory_mib: int
    copy: int
    decoders: int
    encoders: int
    jpeg: int
    ofa: int


class ComputeProfile(NamedTuple):
    """Queried by `number`, while compute instances are created with `id`."""

    number: int
    id: int
    multiprocessors: int


class NvmlEvent(NamedTuple):
    """An event of a GPU or of one of its slices; `data` is the number of an XID."""

    kind: int
    data: int


XID_EVENT = 0x8
ECC_EVENT = 0x2
"""Kinds of events: a critical XID, an ECC error that could not be corrected."""


class Library:
    """NVML through its Python binding. Every method raises NvmlError."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding

    def _call(self, name: str, *arguments: object, **named: object) -> Any:
        try:
            return getattr(self._binding, name)(*arguments, **named)
        except self._binding.NVMLError as error:
            raise NvmlError(name, int(error.value), str(error)) from None

    # The session ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._call("nvmlInit")

    def close(self) -> None:
        self._call("nvmlShutdown")

    def driver_version(self) -> str:
        return str(self._call("nvmlSystemGetDriverVersion"))

    # GPUs -----------------------------------------------------------------------------------------------------------

    def count(self) -> int:
        return int(self._call("nvmlDeviceGetCount"))

    def at_index(self, index: int) -> Handle:
        return Handle(self._call("nvmlDeviceGetHandleByIndex", index))

    def at_address(self, address: str) -> Handle:
        """By PCI address. Not by UUID: that query may go to every GPU of the machine, also to one that hangs."""
        return Handle(self._call("nvmlDeviceGetHandleByPciBusId", address))

    def address(self, gpu: Handle) -> str:
        return _text(self._call("nvmlDeviceGetPciInfo", gpu).busId)

    def uuid(self, device: Handle) -> str:
        return str(self._call("nvmlDeviceGetUUID", device))

    def product(self, gpu: Handle) -> str:
        return str(self._call("nvmlDeviceGetName", gpu))

    def minor(self, gpu: Handle) -> int:
        """N of `/dev/nvidiaN`. May change with MIG mode."""
        return int(self._call("nvmlDeviceGetMinorNumber", gpu))

    def memory_bytes(self, device: Handle) -> int:
        return int(self._call("nvmlDeviceGetMemoryInfo", device).total)

    def virtualization(self, gpu: Handle) -> int:
        return int(self._call("nvmlDeviceGetVirtualizationMode", gpu))

    def mig_mode(self, gpu: Handle) -> tuple[bool, bool]:
        """Whether MIG mode is on, and whether it will be after the next reset."""
        current, pending = self._call("nvmlDeviceGetMigMode", gpu)
        return bool(current), bool(pending)

    def set_mig_mode(self, gpu: Handle, on: bool) -> int:
        """0 where the mode has changed, else the code of what prevents it."""
        try:
            return int(self._call("nvmlDeviceSetMigMode", gpu, int(on)))
        except NvmlError as error:
            if error.code in (Code.IN_USE, Code.RESET_REQUIRED):
                return error.code
            raise

    # Profiles -------------------------------------------------------------------------------------------------------

    def gi_profiles(self, gpu: Handle) -> list[GpuInstanceProfile]:
        """Those that the driver lists for this GPU; some may have no placement on it."""
        return _numbered(lambda number: self._gi_profile(gpu, number), self._binding.NVML_GPU_INSTANCE_PROFILE_COUNT)

    def _gi_profile(self, gpu: Handle, number: int) -> GpuInstanceProfile:
        # The version that also has the name is documented to need MIG mode, and older drivers lack it.
        try:
            info = self._call("nvmlDeviceGetGpuInstanceProfileInfo", gpu, number, version=2)
        except NvmlError as error:
            if error.code not in (Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.STRUCT_MISMATCH):
                raise
            info = self._call("nvmlDeviceGetGpuInstanceProfileInfo", gpu, number, version=1)
        return GpuInstanceProfile(
            number=number,
            id=info.id,
            name=_text(getattr(info, "name", "")),
            slices=info.sliceCount,
            instances=info.instanceCount,
            multiprocessors=info.multiprocessorCount,
            memory_mib=info.memorySizeMB,
            copy=info.copyEngineCount,
            decoders=info.decoderCount,
            encoders=info.encoderCount,
            jpeg=info.jpegCount,
            ofa=info.ofaCount,
        )

    def placements(self, gpu: Handle, profile: int) -> tuple[tuple[int, int], ...]:
        """Every (start, size) that the profile may have, whatever exists now."""
        count = ctypes.c_uint(0)
        self._call("nvmlDeviceGetGpuInstancePossiblePlacements", gpu, profile, None, ctypes.byref(count))
        found = (self._binding.c_nvmlGpuInstancePlacement_t * count.value)()
        self._call("nvmlDeviceGetGpuInstancePossiblePlacements", gpu, profile, found, ctypes.byref(count))
        return tuple((each.start, each.size) for each in found[: count.value])

    def compute_profiles(self, gi: Handle) -> list[ComputeProfile]:
        """Those that a compute instance in this GPU instance may have."""
        return _numbered(
            lambda number: self.compute_profile(gi, number), self._binding.NVML_COMPUTE_INSTANCE_PROFILE_COUNT
        )

    def compute_profile(self, gi: Handle, number: int) -> ComputeProfile:
        shared = self._binding.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        info = self._call("nvmlGpuInstanceGetComputeInstanceProfileInfo", gi, number, shared, version=1)
        return ComputeProfile(number, info.id, info.multiprocessorCount)

    # Instances ------------------------------------------------------------------------------------------------------

    def gpu_instances(self, gpu: Handle, profile: int) -> list[GpuInstance]:
        count = ctypes.c_uint(MANY_INSTANCES)
        found = (self._binding.c_nvmlGpuInstance_t * MANY_INSTANCES)()
        self._call("nvmlDeviceGetGpuInstances", gpu, profile, found, ctypes.byref(count))
        return [self.gpu_instance(each) for each in found[: count.value]]

    def gpu_instance(self, gi: object) -> GpuInstance:
        info = self._call("nvmlGpuInstanceGetInfo", gi)
        return GpuInstance(Handle(gi), info.id, info.profileId, info.placement.start, info.placement.size)

    def gpu_instance_with_id(self, gpu: Handle, gi: int) -> GpuInstance:
        return self.gpu_instance(self._call("nvmlDeviceGetGpuInstanceById", gpu, gi))

    def create_gpu_instance(self, gpu: Handle, profile: int, start: int, size: int) -> Handle:
        place = self._binding.c_nvmlGpuInstancePlacement_t(start, size)
        return Handle(self._call("nvmlDeviceCreateGpuInstanceWithPlacement", gpu, profile, ctypes.byref(place)))

    def destroy_gpu_instance(self, gi: Handle) -> None:
        self._call("nvmlGpuInstanceDestroy", gi)

    def compute_instance_with_id(self, gi: Handle, ci: int) -> Handle:
        return Handle(self._call("nvmlGpuInstanceGetComputeInstanceById", gi, ci))

    def create_compute_instance(self, gi: Handle, profile: int) -> Handle:
        """NOT_SUPPORTED, whatever the profile, where this process has queried no compute profile of this GPU instance
        since it was created: NVML uses what it has cached of it, never the hardware."""
        return Handle(self._call("nvmlGpuInstanceCreateComputeInstance", gi, profile))

    def destroy_compute_instance(self, ci: Handle) -> None:
        self._call("nvmlComputeInstanceDestroy", ci)

    def mig_devices(self, gpu: Handle, only_gi: int | None = None) -> list[MigDevice]:
        """All MIG devices of a GPU, or the first of one GPU instance: looking further would cost as much as a
        create."""
        found = []
        for number in range(self._call("nvmlDeviceGetMaxMigDeviceCount", gpu)):
            try:
                device = self._call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, number)
                gi = self._call("nvmlDeviceGetGpuInstanceId", device)
                if only_gi is not None and gi != only_gi:
                    continue
                ci = self._call("nvmlDeviceGetComputeInstanceId", device)
                found.append(MigDevice(Handle(device), gi, ci, self.uuid(device)))
            except NvmlError as error:
                # Numbers have gaps where instances were destroyed, also during this loop.
                if error.code not in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                    raise
            if only_gi is not None and found:
                break
        return found

    def pids(self, device: Handle) -> list[int]:
        """Processes that compute on a device, by the driver's process ids."""
        return [each.pid for each in self._call("nvmlDeviceGetComputeRunningProcesses", device)]

    # Health ---------------------------------------------------------------------------------------------------------

    def recovery_action(self, gpu: Handle) -> int:
        """The recovery action that the driver wants; 0 is none."""
        field = self._binding.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        (value,) = self._call("nvmlDeviceGetFieldValues", gpu, [field])
        if value.nvmlReturn != 0:
            raise NvmlError("nvmlDeviceGetFieldValues", value.nvmlReturn, "the recovery action cannot be read")
        return int(value.value.uiVal)

    def remapping_failed(self, gpu: Handle) -> bool:
        """Whether memory rows are broken and no spare is left."""
        _, _, _, failed = self._call("nvmlDeviceGetRemappedRows", gpu)
        return bool(failed)

    def event_set(self) -> Handle:
        return Handle(self._call("nvmlEventSetCreate"))

    def free_event_set(self, events: Handle) -> None:
        self._call("nvmlEventSetFree", events)

    def register(self, gpu: Handle, kinds: int, events: Handle) -> int:
        """Which of these kinds of events the GPU will put into the set."""
        supported = kinds & int(self._call("nvmlDeviceGetSupportedEventTypes", gpu))
        if supported:
            self._call("nvmlDeviceRegisterEvents", gpu, supported, events)
        return supported

    def next_event(self, events: Handle, milliseconds: int) -> NvmlEvent | None:
        """None when none came in that time."""
        try:
            data = self._call("nvmlEventSetWait_v2", events, milliseconds)
        except NvmlError as error:
            if error.code == Code.TIMEOUT:
                return None
            raise
        return NvmlEvent(int(data.eventType), int(data.eventData))


def _numbered(query: Callable[[int], T], known: int) -> list[T]:
    """The results for 0, 1, 2…, without numbers that the driver does not support.

    The binding knows `known` numbers; a newer driver may know more, and refuses the first that it does not.
    """
    found = []
    for number in range(MANY_PROFILES):
        try:
            found.append(query(number))
        except NvmlError as error:
            if error.code == Code.INVALID_ARGUMENT and number >= known:
                break
            if error.code not in (Code.NOT_SUPPORTED, Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                raise
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
