"""How the two writers of an Instaslice object spare the API server. designs/0008 has what was measured.

A write costs the server by the size of the whole object, whatever part it changes: some 50 ms of CPU for the 112
slices of 16 GPUs, twice that where it also keeps account of who owns which field.
"""

from instaslice.kube.client import JsonOp

UNTRACKED = JsonOp(op="replace", path="/metadata/managedFields", value=[{}])
"""Once after the object is made: nobody applies here, each field has one writer, so its owners need no account."""

SHARE = 5.0
MOST_SECONDS = 1.0
LONGEST_PAUSE = 0.3
AT_ONCE = 2
"""Objects that one process writes side by side. More would only queue in the server, and others behind them; the
slower the server, the more a write then carries."""


def gathering(took: float) -> float:
    """Seconds that changes may gather after a write that took so long: a writer is at one object for a sixth of the
    time at most. A quiet server takes a small object in milliseconds, and nobody notices; a busy one is spared."""
    return min(MOST_SECONDS, SHARE * took)


def company(took: float) -> float:
    """Seconds that a first change waits for others, where the last write of any object took so long: of a wave of pods
    one would be written at once otherwise, and all others after the gathering."""
    return min(LONGEST_PAUSE, took)
