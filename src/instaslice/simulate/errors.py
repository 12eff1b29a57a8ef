"""What can be wrong with what a simulation is given.

InstasliceError
├── BadInput
│   ├── BadFleet      a fleet that cannot be: a flag or a file
│   ├── BadWorkload   a mix, a load or a combination of them
│   └── BadTrace      a line of a trace, with its file and number
└── MissingExtra      a part that needs an optional dependency
"""

from pathlib import Path

from instaslice.errors import BadInput, InstasliceError


class BadFleet(BadInput):
    """No such fleet can be; the message names the flag or the file."""


class BadWorkload(BadInput):
    """The workload asks for what cannot be."""


class BadTrace(BadInput):
    """A trace that cannot be read as one; `line` counts from 1 as editors do."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}")


class MissingExtra(InstasliceError):
    """An optional dependency is not installed; the message says how to install it."""


def unreadable(path: Path, error: Exception) -> str:
    """Why a file could not be read, in one line."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{path} cannot be read: {(reason or str(error)).lower()}"
