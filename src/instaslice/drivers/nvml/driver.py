"""The GPUs of this machine, through NVIDIA's driver."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pynvml

from instaslice.drivers.driver import Driver, Gpu, GpuUuid, Slice, Unhealthy
from instaslice.drivers.errors import DriverError, GpuLost
from instaslice.drivers.nvml import discovery, holders
from instaslice.drivers.nvml.discovery import NOT_GIVEN, LeftAlone, ProbedGpu
from instaslice.drivers.nvml.health import HealthMonitor
from instaslice.drivers.nvml.instances import Instances
from instaslice.drivers.nvml.selection import Selection
from instaslice.drivers.nvml.session import Session


class NvmlDriver(Driver):
    """A Driver for real GPUs, in one NVML session that lasts as long as it does.

    `gpus` selects by index, UUID or model; empty selects all. With `enable_mig` MIG mode is enabled where it is off.
    `proc` is where the host's `/proc` is mounted. Raises DriverError where NVML cannot be opened. No call has a
    deadline of its own, not even this one: a caller that must not hang calls `count`, and `probe` for each GPU, from
    threads, and never `discover`.
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
        self._probed: dict[int, ProbedGpu] = {}
        self._gpus: dict[GpuUuid, Gpu] = {}
        self._left_alone: dict[str, str] = {}
        self._health = HealthMonitor(self._session, enable_mig, clock, sleep)

    # The interface --------------------------------------------------------------------------------------------------

    def boot_id(self) -> str:
        return (self._proc / "sys/kernel/random/boot_id").read_text().strip()

    def discover(self) -> tuple[Gpu, ...]:
        """A GPU that fails does not affect the others; one that was found before stays, and `watch_health` says what is
        wrong with it."""
        for index in range(self.count()):
            try:
                self.probe(index)
            except DriverError as error:
                if all(gpu.index != index for gpu in self._gpus.values()):
                    self._left_alone[f"GPU {index}"] = str(error)
        return tuple(sorted(self._gpus.values(), key=lambda gpu: gpu.index))

    def slices(self, gpu: GpuUuid) -> tuple[Slice, ...]:
        return self._instances.slices(self._gpu(gpu))

    def create(self, gpu: GpuUuid, profile: str, start: int) -> Slice:
        return self._instances.create(self._gpu(gpu), profile, start)

    def destroy(self, doomed: Slice) -> None:
        self._instances.destroy(self._gpu(doomed.gpu), doomed)

    def watch_health(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        return self._health.watch(self._gpu(gpu).uuid, known, seconds)

    # Beyond the interface -------------------------------------------------------------------------------------------

    def count(self) -> int:
        """The number of GPUs in the machine."""
        return self._session.library.count()

    def probe(self, index: int) -> Gpu | None:
        """Find one GPU; None where it is left alone. Calls no other GPU. Raises DriverError where it fails; safe to
        repeat: a GPU that was found is not probed again."""
        name = f"GPU {index}"
        self._left_alone.pop(name, None)
        if not self._selection.may_include(index):
            self._left_alone[name] = NOT_GIVEN
            return None
        library = self._session.library
        try:
            with self._session.calls(str(index), "the probe"):
                one = self._probed[index] = discovery.probe(library, index)
                name = one.uuid
                if not self._selection.includes(index, one.uuid, one.product):
                    raise LeftAlone(NOT_GIVEN)
                if name not in self._gpus:
                    found = discovery.gpu(library, one, self._enable)
                    self._session.add(one.uuid, one.handle)
                    self._gpus[name] = found
                return self._gpus[name]
        except LeftAlone as reason:
            self._left_alone[name] = str(reason)
            return None
        except GpuLost:
            self._health.renew_session()
            raise

    def uuid(self, index: int) -> GpuUuid | None:
        """Of a GPU that was probed and answered that much. Does not block."""
        one = self._probed.get(index)
        return one.uuid if one else None

    @property
    def left_alone(self) -> Mapping[str, str]:
        """Why each GPU that was probed is not ours, by UUID; also entries of `gpus` that match no GPU."""
        probed = sorted((one.index, one.uuid, one.product) for one in list(self._probed.values()))
        there = ", ".join(f"{index}: {uuid} {product}" for index, uuid, product in probed) or "none"
        return {
            **self._left_alone,
            **{each: f"no GPU is {each!r} (there are {there})" for each in self._selection.unmatched(probed)},
        }

    def driver_version(self) -> str:
        return self._session.library.driver_version()

    def minor(self, gpu: GpuUuid) -> int:
        """N of `/dev/nvidiaN`. Read each time: it may change with MIG mode."""
        with self._session.at(self._gpu(gpu).uuid, "find its device file") as handle:
            return self._session.library.minor(handle)

    def capabilities(self, of: Slice) -> tuple[int, ...]:
        """N of the `/dev/nvidia-caps/nvidia-cap<N>` that a container needs for this slice."""
        return holders.capability_minors(self._proc, self.minor(of.gpu), of.gi, of.ci)

    def close(self) -> None:
        """No call may be in progress, nor follow."""
        self._health.close()
        self._session.close()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _gpu(self, uuid: GpuUuid) -> Gpu:
        if not self._probed:  # nothing was probed yet
            self.discover()
        if uuid not in self._gpus:
            raise DriverError(f"GPU {uuid} is not in this node (it has {', '.join(self._gpus) or 'none'})")
        return self._gpus[uuid]
