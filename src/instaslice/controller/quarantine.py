"""Objects that could not be handled: each is set aside until it changes, reported and counted, and all else goes on.

The cause is a defect of ours, or an object that nobody thought of. The caller ensures that it keeps what it holds.
"""

import logging
from collections.abc import Iterator
from enum import StrEnum

from instaslice.controller.errors import Deposed
from instaslice.errors import InstasliceError
from instaslice.observe.logs import about

log = logging.getLogger(__name__)


class ObjectKind(StrEnum):
    """What can be set aside."""

    POD = "pod"
    NODE = "node"
    INSTASLICE = "instaslice"
    WORKLOAD = "workload"
    """Of Kueue."""


class Quarantine:
    """Pods and workloads by uid, nodes and Instaslice objects by name."""

    def __init__(self) -> None:
        self.failures = 0
        """How often something was set aside, or could not be done."""
        self._why: dict[tuple[ObjectKind, str], str] = {}

    def __len__(self) -> int:
        return len(self._why)

    def __iter__(self) -> Iterator[tuple[ObjectKind, str, str]]:
        """What is set aside, and why."""
        return ((kind, key, why) for (kind, key), why in self._why.items())

    def add(self, kind: ObjectKind, key: str, error: Exception) -> str:
        """Set an object aside; returns why, in short. Raises the error itself where it is not about one object: another
        process leads, or there is no memory left."""
        keys = about(uid=key) if kind in (ObjectKind.POD, ObjectKind.WORKLOAD) else about(node=key)
        why = self.failed(f"{kind} {key} is set aside until it changes", error, keys)
        self._why[kind, key] = why
        return why

    def failed(self, what: str, error: Exception, keys: dict[str, object] | None = None) -> str:
        """Report and count a failure; `keys` say what it is about. Raises the error as `add` does."""
        if isinstance(error, Deposed | MemoryError):
            raise error
        self.failures += 1
        known = isinstance(error, InstasliceError)
        why = str(error) if known else f"{type(error).__name__}: {error}"
        log.error("%s: %s", what, why, exc_info=None if known else error, extra=keys)
        return why

    def why(self, kind: ObjectKind, key: str) -> str:
        """Why an object is set aside; "" where it is not."""
        return self._why.get((kind, key), "")

    def release(self, kind: ObjectKind, key: str) -> bool:
        """The object has changed, or is gone. Whether it was set aside."""
        return self._why.pop((kind, key), None) is not None
