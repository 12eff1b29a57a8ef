"""One long-lived NVML session, shared by all threads, and what its errors become.

Long-lived because opening one and finding a GPU in it can take seconds on a busy machine, and because a GPU that
nobody holds open may lose its MIG mode.
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
"""Answers after which a GPU does nothing more until it is reset, or the session is renewed."""

REBOOT: Final = "look for NVRM and Xid in dmesg, and reboot the node"
"""The remedy for a driver that hangs as a whole."""

_REMEDIES: Final[Mapping[int, str]] = {
    Code.NO_PERMISSION: "run as root, with /dev/nvidia-caps/nvidia-cap1 in the container",
    Code.DRIVER_NOT_LOADED: "load NVIDIA's kernel module on this node",
    Code.LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 of NVIDIA's driver is not here; run on a GPU node",
    Code.VERSION_MISMATCH: "the driver was upgraded under a running system: reboot the node",
}


class Session:
    """Handles of GPUs by UUID. Raises DriverError where NVML cannot be opened."""

    def __init__(self, binding: Any, patience: float = 3.0, stuck: float = 30.0) -> None:
        """`patience` is how long a renewal waits for calls that are under way, `stuck` how long they wait for it."""
        self.library = Library(binding)
        self._patience, self._stuck = patience, stuck
        self._idle = threading.Condition()
        self._under_way = 0
        self._renewing = False
        self._addresses: dict[GpuUuid, str] = {}
        self._handles: dict[GpuUuid, Handle] = {}
        self._open()

    @contextmanager
    def calls(self, name: str, what: str) -> Iterator[None]:
        """Around calls for one GPU that together do `what`. Whatever NVML refuses meanwhile comes out as a
        DriverError that names both; GpuLost where the GPU has failed. Raises Stuck."""
        with self._idle:
            if not self._idle.wait_for(lambda: not self._renewing, self._stuck):
                raise Stuck(f"NVML does not come back from opening a new session in {self._stuck:g} s; {REBOOT}")
            self._under_way += 1
        try:
            yield
        except NvmlError as error:
            raise _driver_error(name, what, error) from error
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    @contextmanager
    def at(self, gpu: GpuUuid, what: str) -> Iterator[Handle]:
        """A GPU that was added, for `calls`."""
        with self.calls(gpu, what):
            yield self._handle(gpu)

    def add(self, gpu: GpuUuid, handle: Handle) -> None:
        """A GPU that `at` shall know."""
        self._addresses[gpu] = self.library.address(handle)
        self._handles[gpu] = handle

    def renew(self, before: Callable[[], None]) -> bool:
        """Close and open it: a GPU that was lost and came back is not seen in the old one. False, and nothing done,
        where calls are under way that do not end, since their handles would die under them. `before` ends what hangs
        on the session, when nobody uses it any more."""
        with self._idle:
            if self._renewing:
                return False
            self._renewing = True
            idle = self._idle.wait_for(lambda: not self._under_way, self._patience)
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
            if error.code != Code.UNINITIALIZED:  # it is, where an earlier renewal could not open it
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
    words = f"GPU {gpu}: {what}: {_message(error)}"
    match error.code:
        case Code.IN_USE:
            return InUse(words, ())
        case Code.INSUFFICIENT_RESOURCES:
            return SlotTaken(words)
        case Code.NOT_SUPPORTED:
            return Unsupported(words)
        case code if code in LOST:
            return GpuLost(f"{words}; reset the GPU or drain the node")
    return DriverError(words)


def _message(error: NvmlError) -> str:
    remedy = _REMEDIES.get(error.code)
    return f"{error}; {remedy}" if remedy else str(error)
