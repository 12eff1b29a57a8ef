"""The GPUs of this machine, as NVIDIA's driver shows them."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pynvml

from instaslice.drivers.driver import Driver, Gpu, GpuUuid, Ills, Slice
from instaslice.drivers.errors import DriverError
from instaslice.drivers.nvml import discovery, holders
from instaslice.drivers.nvml.discovery import Found
from instaslice.drivers.nvml.health import Health
from instaslice.drivers.nvml.instances import Instances
from instaslice.drivers.nvml.selection import Selection
from instaslice.drivers.nvml.session import Session


class NvmlDriver(Driver):
    """A Driver for real GPUs, in one NVML session that lasts as long as it does.

    `gpus` are the ones it may touch, by index, UUID or model; all where none is named. With `enable_mig` it switches
    MIG mode on where it is off. `proc` is where the host's `/proc` is. Raises DriverError where NVML cannot be opened.
    """

    def __init__(
        self,
        gpus: Iterable[str] = (),
        *,
        enable_mig: bool = False,
        proc: Path = Path("/proc"),
        nvml: ModuleType | Any = pynvml,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._selection = Selection(gpus)
        self._enable = enable_mig
        self._proc = proc
        self._session = Session(nvml)
        self._instances = Instances(self._session, proc)
        self._found: Found | None = None
        self._finding = threading.Lock()
        self._health = Health(self._session, lambda: self._known().gpus, enable_mig, clock, sleep)

    # The interface --------------------------------------------------------------------------------------------------

    def boot_id(self) -> str:
        return (self._proc / "sys/kernel/random/boot_id").read_text().strip()

    def discover(self) -> tuple[Gpu, ...]:
        with self._finding:
            found = discovery.find(self._session.library, self._selection, self._enable)
            self._found = _with_the_lost(self._found, found)
            return self._found.gpus

    def slices(self, gpu: GpuUuid) -> tuple[Slice, ...]:
        return self._instances.listed(self._gpu(gpu))

    def create(self, gpu: GpuUuid, profile: str, start: int) -> Slice:
        return self._instances.create(self._gpu(gpu), profile, start)

    def destroy(self, doomed: Slice) -> None:
        self._instances.destroy(self._gpu(doomed.gpu), doomed)

    def watch_health(self, known: Ills, seconds: float) -> Ills:
        return self._health.watch(known, seconds)

    # Beyond the interface -------------------------------------------------------------------------------------------

    @property
    def left_alone(self) -> Mapping[str, str]:
        """Why each GPU that `discover` did not return is not ours, by UUID; also what was asked for in `gpus` and is
        not there."""
        return self._known().left_alone

    def driver_version(self) -> str:
        return self._session.library.driver_version()

    def minor(self, gpu: GpuUuid) -> int:
        """N of `/dev/nvidiaN`. Asked anew each time: it may change with MIG mode."""
        with self._session.at(gpu, "find its device file") as handle:
            return self._session.library.minor(handle)

    def capabilities(self, of: Slice) -> tuple[int, ...]:
        """N of the `/dev/nvidia-caps/nvidia-cap<N>` that a container needs for this slice."""
        return holders.capability_minors(self._proc, self.minor(of.gpu), of.gi, of.ci)

    def close(self) -> None:
        """No call may be under way, nor come after."""
        self._health.close()
        self._session.close()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _known(self) -> Found:
        if self._found is None:
            self.discover()
        assert self._found is not None
        return self._found

    def _gpu(self, uuid: GpuUuid) -> Gpu:
        gpus = self._known().gpus
        for gpu in gpus:
            if gpu.uuid == uuid:
                return gpu
        raise DriverError(f"GPU {uuid} is not in this node (it has {', '.join(each.uuid for each in gpus) or 'none'})")


def _with_the_lost(before: Found | None, now: Found) -> Found:
    """A GPU that we knew and that does not answer now is still ours: `watch_health` says what ails it."""
    there = {gpu.uuid for gpu in now.gpus}
    lost = [gpu for gpu in (before.gpus if before else ()) if gpu.uuid not in there]
    gpus = sorted([*now.gpus, *lost], key=lambda gpu: gpu.index)
    return Found(tuple(gpus), {name: why for name, why in now.left_alone.items() if name not in {g.uuid for g in lost}})
