"""One long-lived NVML session, shared by all threads, and how its errors are translated.

Long-lived because opening one and finding a GPU in it can take seconds on a busy machine, and because a GPU that no
process holds open may lose its MIG mode.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from instaslice.drivers.driver import GpuUuid
from instaslice.drivers.errors import DriverError, GpuLost, InUse, SlotTaken, Stuck, Unsupported
from instaslice.drivers.nvml.library import Code, Handle, Library, NvmlError

LOST: Final = frozenset(
    {Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.GPU_NOT_FOUND, Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED}
)
"""Errors after which a GPU is unusable until it is reset, or the session is renewed."""

REBOOT: Final = "look for NVRM and Xid in dmesg, and reboot the node"
"""The remedy for a driver that hangs as a whole."""

_REMEDIES: Final[Mapping[int, str]] = {
    Code.NO_PERMISSION: "run as root, with /dev/nvidia-caps/nvidia-cap1 in the container",
    Code.DRIVER_NOT_LOADED: "load NVIDIA's kernel module on this node",
    Code.LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 of NVIDIA's driver is not here; run on a GPU node, and in a pod have it brought into the "
        "container (by the chart: agent.driver.runtimeClassName, or agent.driver.library)"
    ),
    Code.VERSION_MISMATCH: "the driver was upgraded under a running system: reboot the node",
}


class Session:
    """Handles of GPUs by UUID. Raises DriverError where NVML cannot be opened."""

    def __init__(self, binding: Any, drain_timeout: float = 3.0, stuck_timeout: float = 30.0) -> None:
        """How long a renewal waits for calls in progress, and how long calls wait for a renewal."""
        self.library = Library(binding)
        self._drain_timeout, self._stuck_timeout = drain_timeout, stuck_timeout
        self._idle = threading.Condition()
        self._in_progress = 0
        self._renewing = False
        self._addresses: dict[GpuUuid, str] = {}
        self._handles: dict[GpuUuid, Handle] = {}
        self._open()

    @contextmanager
    def calls(self, name: str, what: str) -> Iterator[None]:
        """Around calls for one GPU that together do `what`. Any NVML error inside is raised as a DriverError that names
        both; GpuLost where the GPU has failed. Raises Stuck."""
        with self._idle:
            if not self._idle.wait_for(lambda: not self._renewing, self._stuck_timeout):
                raise Stuck(f"NVML has not opened a new session in {self._stuck_timeout:g} s; {REBOOT}")
            self._in_progress += 1
        try:
            yield
        except NvmlError as error:
            raise _driver_error(name, what, error) from error
        finally:
            with self._idle:
                self._in_progress -= 1
                self._idle.notify_all()

    @contextmanager
    def at(self, gpu: GpuUuid, what: str) -> Iterator[Handle]:
        """`calls` with the handle of a GPU that was added."""
        with self.calls(gpu, what):
            yield self._handle(gpu)

    def add(self, gpu: GpuUuid, handle: Handle) -> None:
        """Make a GPU known to `at`."""
        self._addresses[gpu] = self.library.address(handle)
        self._handles[gpu] = handle

    def renew(self, before: Callable[[], None]) -> bool:
        """Close and reopen it: a GPU that was lost and came back does not appear in the old one. False, and nothing
        done, where calls in progress do not end, since their handles would become invalid. `before` frees what belongs
        to the session, once no call uses it."""
        with self._idle:
            if self._renewing:
                return False
            self._renewing = True
            idle = self._idle.wait_for(lambda: not self._in_progress, self._drain_timeout)
        try:
            if idle:
                before()
                self._handles.clear()
                self._close()
                self._open()
            return idle
        finally:
            with self._idle:
                self._renewing = False
                self._idle.notify_all()

    def close(self) -> None:
        self._handles.clear()
        self.library.close()

    def _close(self) -> None:
        try:
            self.library.close()
        except NvmlError as error:
            if error.code != Code.UNINITIALIZED:  # an earlier renewal could not open it
                raise

    def _open(self) -> None:
        try:
            self.library.open()
        except NvmlError as error:
            raise DriverError(f"NVML cannot be opened: {_message(error)}") from error

    def _handle(self, gpu: GpuUuid) -> Handle:
        handle = self._handles.get(gpu)
        if handle is None:
            gone = GpuLost(f"GPU {gpu} is no longer in this machine; look for Xid 79 in dmesg")
            try:
                handle = self.library.at_address(self._addresses[gpu])
                if self.library.uuid(handle) != gpu:
                    raise gone
            except NvmlError as error:
                if error.code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                    raise gone from error
                raise
            self._handles[gpu] = handle
        return handle


def _driver_error(gpu: str, what: str, error: NvmlError) -> DriverError:
    message = f"GPU {gpu}: {what}: {_message(error)}"
    match error.code:
        case Code.IN_USE:
            return InUse(message, ())
        case Code.INSUFFICIENT_RESOURCES:
            return SlotTaken(message)
        case Code.NOT_SUPPORTED:
            return Unsupported(message)
        case code if code in LOST:
            return GpuLost(f"{message}; reset the GPU or drain the node")
    return DriverError(message)


def _message(error: NvmlError) -> str:
    remedy = _REMEDIES.get(error.code)
    return f"{error}; {remedy}" if remedy else str(error)
