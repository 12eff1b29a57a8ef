"""What a container needs to use a slice: device files for a real one, nothing for an emulated one."""

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
"""CUDA images set `all`, which an NVIDIA container runtime would answer with whole GPUs."""
_MAJOR: Final = re.compile(r"^\s*(\d+)\s+nvidia-caps$", re.MULTILINE)


class Wiring(Protocol):
    immediate: bool
    """Whether `edits` never blocks, so that an event loop may call it."""

    def edits(self, held: Slice) -> Edits:
        """May block for as long as the driver takes. Raises DriverError where the slice has no device files."""
        ...


class EmulatedWiring:
    """Emulated slices have no device files."""

    immediate = True

    def edits(self, held: Slice) -> Edits:
        return Edits(env=VOID)


class NvidiaWiring:
    """Device files of NVIDIA's driver, and its user-space part where `nvidia-ctk` has described it."""

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
        """`specs` are files that may exist, like `/var/run/cdi/nvidia.yaml`; the first that does counts."""
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
            document = yaml.safe_load(path.read_text())
            return msgspec.convert(document.get("containerEdits") or {}, dict[str, Any])
        except FileNotFoundError:
            continue
        except (OSError, yaml.YAMLError, msgspec.ValidationError, AttributeError) as error:
            raise DriverError(f"{path} cannot be read as nvidia-ctk writes it ({error}); generate it again") from None
    return {}
