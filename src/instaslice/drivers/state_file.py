"""The state of emulated GPUs in a file, so that it survives a kill of the process, as hardware would.

One small file per node: the whole state in the first line, then one line per change. The kernel keeps what was written
whatever happens to the process, and a line cut off by a kill is a change that never happened. Appending costs a
hundredth of replacing a file, which ext4 flushes. No fsync: a machine that loses power has lost its slices too.
"""

from pathlib import Path

import msgspec

from instaslice.drivers.errors import DriverError
from instaslice.files import write_atomically

MAX_CHANGES = 5000
"""Changes after which the whole file is rewritten, so that it does not grow indefinitely."""


class EmulatedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance; `ci` is None while it has no compute instance."""

    profile: str
    start: int
    ci: int | None = None


class GpuContents(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. With the model, so that instances of another model are not restored."""

    model: str
    instances: dict[int, EmulatedInstance] = {}
    """By GPU instance id."""


class NodeContents(msgspec.Struct, frozen=True, kw_only=True):
    """A whole node; GPUs by UUID."""

    boot_id: str
    gpus: dict[str, GpuContents] = {}


class InstanceChange(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance as it is now; None where it is gone."""

    gpu: str
    gi: int
    instance: EmulatedInstance | None

    def on(self, before: NodeContents) -> NodeContents:
        card = before.gpus[self.gpu]
        instances = {gi: each for gi, each in card.instances.items() if gi != self.gi}
        if self.instance is not None:
            instances[self.gi] = self.instance
        changed = msgspec.structs.replace(card, instances=instances)
        return msgspec.structs.replace(before, gpus={**before.gpus, self.gpu: changed})


class StateFile:
    """The contents of a node, in a file where one is given. Calls must not overlap; one process per file."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._changes = 0
        self._contents = _read(file) if file is not None and file.exists() else None

    @property
    def contents(self) -> NodeContents | None:
        """As written last; None before the first write."""
        return self._contents

    def write(self, contents: NodeContents) -> None:
        """Replace everything."""
        if self._file is not None:
            write_atomically(self._file, msgspec.json.encode(contents) + b"\n")
        self._contents, self._changes = contents, 0

    def apply(self, change: InstanceChange) -> None:
        """One change to contents that were written before."""
        assert self._contents is not None
        if self._file is not None:
            with self._file.open("ab", buffering=0) as file:
                file.write(msgspec.json.encode(change) + b"\n")
        self._contents = change.on(self._contents)
        self._changes += 1
        if self._changes >= MAX_CHANGES:
            self.write(self._contents)


def _read(file: Path) -> NodeContents:
    """Raises DriverError where the file is not ours."""
    whole, *changes = file.read_bytes().split(b"\n")[:-1] or [b""]
    try:
        contents = msgspec.json.decode(whole, type=NodeContents)
        for line in changes:
            contents = msgspec.json.decode(line, type=InstanceChange).on(contents)
    except (msgspec.DecodeError, KeyError) as error:
        raise DriverError(f"{file} is no state of emulated GPUs ({error}); remove it") from None
    return contents
