"""What a container gets for a slice, as the runtime reads it: one Container Device Interface file per device id.

A file exists while a pod holds the slice: the runtime refuses a device name without a file.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from instaslice.agent.kubelet.device_ids import DeviceId
from instaslice.api.names import GROUP
from instaslice.files import write_atomically

VERSION: Final = "0.6.0"
"""Known to containerd 1.7 and CRI-O; a runtime refuses newer versions than its own."""
KIND: Final = f"{GROUP}/slice"
_FILE: Final = re.compile(re.escape(f"{GROUP}-slice_") + r"(?P<device>.+)\.json")


@dataclass(frozen=True)
class Edits:
    """What changes in a container: variables, device files, mounts and hooks, the last three as CDI writes them."""

    env: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    hooks: Sequence[Mapping[str, Any]] = ()

    def document(self) -> dict[str, Any]:
        parts = {
            "env": [f"{name}={value}" for name, value in self.env.items()],
            "deviceNodes": list(self.nodes),
            "mounts": list(self.mounts),
            "hooks": list(self.hooks),
        }
        return {name: part for name, part in parts.items() if part}


def device(device: DeviceId) -> str:
    """The name by which the kubelet requests it from the runtime."""
    return f"{KIND}={device}"


def specification(device: DeviceId, edits: Edits, notes: Mapping[str, str]) -> bytes:
    """The file of a device; `notes` are for people who read it."""
    return msgspec.json.format(
        msgspec.json.encode(
            {
                "cdiVersion": VERSION,
                "kind": KIND,
                "annotations": dict(notes),
                "devices": [{"name": device, "containerEdits": edits.document()}],
            }
        )
    )


class CdiFolder:
    """The files of one node. Files of others in the same folder are left alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[DeviceId, bytes] = {}

    def devices(self) -> set[DeviceId]:
        """Those that have a file."""
        found = self._path.glob(f"{GROUP}-slice_*.json")
        return {DeviceId(match["device"]) for each in found if (match := _FILE.fullmatch(each.name))}

    def replace(self, files: Mapping[DeviceId, bytes], keep: Set[DeviceId] = frozenset()) -> None:
        """Have these files and no others, except those to keep as they are. Raises OSError."""
        for gone in self.devices() - files.keys() - keep:
            self.remove(gone)
        for device, content in files.items():
            if self._written.get(device) != content:
                write_atomically(self._file(device), content, sync=True)
                self._written[device] = content

    def remove(self, device: DeviceId) -> None:
        self._file(device).unlink(missing_ok=True)
        self._written.pop(device, None)

    def _file(self, device: DeviceId) -> Path:
        return self._path / f"{GROUP}-slice_{device}.json"
