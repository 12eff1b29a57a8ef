"""One long-lived NVML session, shared by all threads, and what its errors become.

Long-lived because opening one and finding a GPU in it can take seconds on a busy machine, and because a GPU that
nobody holds open may lose its MIG mode.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from instaslice.drivers.driver import GpuUuid
from instaslice.drivers.errors import DriverError, GpuLost, InUse, SlotTaken, Unsupported
from instaslice.drivers.nvml.library import Code, Handle, Library, Refused

LOST: Final = frozenset(
    {Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.GPU_NOT_FOUND, Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED}
)
"""Answers after which a GPU does nothing more until it is reset, or the session is renewed."""

_REMEDIES: Final[Mapping[int, str]] = {
    Code.NO_PERMISSION: "run as root, with /dev/nvidia-caps/nvidia-cap1 in the container",
    Code.DRIVER_NOT_LOADED: "load NVIDIA's kernel module on this node",
    Code.LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 of NVIDIA's driver is not here; run on a GPU node",
    Code.VERSION_MISMATCH: "the driver was upgraded under a running system: reboot the node",
}


class Session:
    """Handles of GPUs by UUID. Raises DriverError where NVML cannot be opened."""

    def __init__(self, binding: Any) -> None:
        self.library = Library(binding)
        self._idle = threading.Condition()
        self._under_way = 0
        self._handles: dict[GpuUuid, Handle] = {}
        self._open()

    @contextmanager
    def at(self, gpu: GpuUuid, what: str) -> Iterator[Handle]:
        """A GPU, for calls that together do `what`. Whatever NVML refuses meanwhile comes out as a DriverError that
        names both; GpuLost where the GPU has failed."""
        with self._idle:
            self._under_way += 1
        try:
            yield self._handle(gpu)
        except Refused as error:
            raise _told(gpu, what, error) from error
        finally:
            with self._idle:
                self._under_way -= 1

    def renew(self) -> bool:
        """Close and open it: a GPU that was lost and came back is not seen in the old one. False, and nothing done,
        while calls are under way, since their handles would die under them."""
        with self._idle:
            if self._under_way:
                return False
            self._handles.clear()
            try:
                self.library.close()
            except Refused as error:
                if error.code != Code.UNINITIALIZED:  # it is, where an earlier renewal could not open it
                    raise
            self._open()
            return True

    def close(self) -> None:
        with self._idle:
            self._handles.clear()
            self.library.close()

    def _open(self) -> None:
        try:
            self.library.open()
        except Refused as error:
            raise DriverError(f"NVML cannot be opened: {_words(error)}") from error

    def _handle(self, gpu: GpuUuid) -> Handle:
        handle = self._handles.get(gpu)
        if handle is None:
            try:
                handle = self.library.with_uuid(gpu)
            except Refused as error:
                if error.code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                    raise GpuLost(f"GPU {gpu} is no longer in this machine; look for Xid 79 in dmesg") from error
                raise
            self._handles[gpu] = handle
        return handle


def _told(gpu: GpuUuid, what: str, error: Refused) -> DriverError:
    words = f"GPU {gpu}: {what}: {_words(error)}"
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


def _words(error: Refused) -> str:
    remedy = _REMEDIES.get(error.code)
    return f"{error}; {remedy}" if remedy else str(error)
