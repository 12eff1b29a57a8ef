"""What a container needs to use a slice: nothing but names for an emulated one, device files for a real one."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import yaml

from instaslice.agent.kubelet.cdi import Edits
from instaslice.drivers import DriverError, GpuUuid, Slice

COMMON: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
VOID: Final = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""Images of CUDA say `all` there, and an NVIDIA runtime in the path would add whole GPUs."""
_MAJOR: Final = re.compile(r"^\s*(\d+)\s+nvidia-caps$", re.MULTILINE)


class Wiring(Protocol):
    immediate: bool
    """Whether `edits` answers at once, so that an event loop may ask."""

    def edits(self, held: Slice) -> Edits:
        """May block for as long as the driver takes. Raises DriverError where the slice has no device files."""
        ...


class EmulatedWiring:
    """Slices that are nowhere have no device files."""

    immediate = True

    def edits(self, held: Slice) -> Edits:
        return Edits(env=VOID)


class NvidiaWiring:
    """Device files of NVIDIA's driver, and its user-space part as `nvidia-ctk` describes it, where it did."""

    immediate = False

    def __init__(
        self,
        minor: Callable[[GpuUuid], int],
        capabilities: Callable[[Slice], tuple[int, ...]],
        *,
        dev: Path = Path("/dev"),
        proc: Path = Path("/proc"),
        specs: tuple[Path, ...] = (),
    ) -> None:
        """`specs` are files that may be there, like `/var/run/cdi/nvidia.yaml`; the first that is counts."""
        self._minor, self._capabilities = minor, capabilities
        self._dev, self._proc, self._specs = dev, proc, specs

    def edits(self, held: Slice) -> Edits:
        minors = self._capabilities(held)
        if len(minors) < 2:
            raise DriverError(
                f"GPU {held.gpu}: {held.placement} has no capability devices under {self._proc}/driver/nvidia; "
                "give the agent the host's /proc (--proc)"
            )
        major = self._major()
        caps: list[Mapping[str, Any]] = [
            {"path": f"/dev/nvidia-caps/nvidia-cap{n}", "type": "c", "major": major, "minor": n, "fileMode": 0o444}
            for n in minors
        ]
        # Found under our `dev`, which may be the host's mounted elsewhere; the runtime sees the host's own.
        files = [f"nvidia{self._minor(held.gpu)}", *(name for name in COMMON if (self._dev / name).exists())]
        user = _user_space(self._specs)
        nodes: list[Mapping[str, Any]] = [*({"path": f"/dev/{name}"} for name in files), *caps]
        return Edits(VOID, nodes, tuple(user.get("mounts", ())), tuple(user.get("hooks", ())))

    def _major(self) -> int:
        found = _MAJOR.search((self._proc / "devices").read_text())
        if found is None:
            raise DriverError(f"{self._proc}/devices has no nvidia-caps; load the nvidia module with MIG support")
        return int(found[1])


def _user_space(specs: tuple[Path, ...]) -> Mapping[str, Any]:
    """The part of nvidia-ctk's specification that is the same for all devices. Raises DriverError."""
    for path in specs:
        try:
            told = yaml.safe_load(path.read_text())
            return msgspec.convert(told.get("containerEdits") or {}, dict[str, Any])
        except FileNotFoundError:
            continue
        except (OSError, yaml.YAMLError, msgspec.ValidationError, AttributeError) as error:
            raise DriverError(f"{path} cannot be read as nvidia-ctk writes it ({error}); make it anew") from None
    return {}
