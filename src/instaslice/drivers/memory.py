"""What emulated GPUs remember when the process that plays them is killed, as hardware would.

One small file a node, replaced whole at every step. The kernel keeps a finished rename whatever happens to the
process, so a kill leaves the state before a step or the one after it. No fsync: a machine that loses power has lost
its slices too.
"""

from pathlib import Path

import msgspec

from instaslice.drivers.errors import DriverError


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance; `ci` is None while it has no compute instance."""

    profile: str
    start: int
    ci: int | None = None


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. The model is written down so that instances of another model are not taken over."""

    model: str
    instances: dict[int, Instance] = {}
    """By GPU instance id."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """A whole node; GPUs by UUID."""

    boot_id: str
    gpus: dict[str, Card] = {}


class Memory:
    """The contents of a node, in a file where one is given. Calls must not overlap; one process a file."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._contents: Contents | None = None

    def read(self) -> Contents | None:
        """What was written last, None before anything was. Raises DriverError where the file is not ours."""
        if self._contents is None and self._file is not None and self._file.exists():
            try:
                self._contents = msgspec.json.decode(self._file.read_bytes(), type=Contents)
            except msgspec.DecodeError as error:
                raise DriverError(f"{self._file} is no state of emulated GPUs ({error}); remove it") from None
        return self._contents

    def write(self, contents: Contents) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            scratch = self._file.with_name(f".{self._file.name}.new")
            scratch.write_bytes(msgspec.json.encode(contents))
            scratch.replace(self._file)
        # Last: what could not be kept has not happened.
        self._contents = contents
