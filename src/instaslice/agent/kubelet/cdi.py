"""What a container is given for a slice, as the runtime reads it: one file of the Container Device Interface a seat.

A file is there while a pod holds the slice, and no longer: a name without a file is refused by the runtime.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from instaslice.agent.files import write_whole
from instaslice.agent.kubelet.device_ids import DeviceId
from instaslice.api.names import GROUP

VERSION: Final = "0.6.0"
"""Known to containerd 1.7 and CRI-O; a runtime refuses versions that are newer than itself."""
KIND: Final = f"{GROUP}/slice"
_FILE: Final = re.compile(re.escape(f"{GROUP}-slice_") + r"(?P<seat>.+)\.json")


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


def device(seat: DeviceId) -> str:
    """The name by which the kubelet asks the runtime for it."""
    return f"{KIND}={seat}"


def specification(seat: DeviceId, edits: Edits, notes: Mapping[str, str]) -> bytes:
    """The file of a seat; `notes` are for people who read it."""
    return msgspec.json.format(
        msgspec.json.encode(
            {
                "cdiVersion": VERSION,
                "kind": KIND,
                "annotations": dict(notes),
                "devices": [{"name": seat, "containerEdits": edits.document()}],
            }
        )
    )


class Folder:
    """The files of one node. What others have in the same folder is left alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[DeviceId, bytes] = {}

    def seats(self) -> set[DeviceId]:
        """Those that have a file."""
        found = self._path.glob(f"{GROUP}-slice_*.json")
        return {DeviceId(match["seat"]) for each in found if (match := _FILE.fullmatch(each.name))}

    def become(self, files: Mapping[DeviceId, bytes], keep: Set[DeviceId] = frozenset()) -> None:
        """These and no others, but for those to keep as they are. Raises OSError."""
        for gone in self.seats() - files.keys() - keep:
            self.remove(gone)
        for seat, content in files.items():
            if self._written.get(seat) != content:
                write_whole(self._file(seat), content)
                self._written[seat] = content

    def remove(self, seat: DeviceId) -> None:
        self._file(seat).unlink(missing_ok=True)
        self._written.pop(seat, None)

    def _file(self, seat: DeviceId) -> Path:
        return self._path / f"{GROUP}-slice_{seat}.json"
