"""How the two writers of an Instaslice object spare the API server. designs/0008 has what was measured.

A write costs the server by the size of the whole object, whatever part it changes: some 50 ms of CPU for the 112
slices of 16 GPUs, twice that where it also keeps account of who owns which field.
"""

from instaslice.kube.client import JsonOp

UNTRACKED = JsonOp(op="replace", path="/metadata/managedFields", value=[{}])
"""Once after the object is made: nobody applies here, each field has one writer, so its owners need no account."""

STATUS_COOLDOWN = 5.0
SPEC_COOLDOWN = 10.0
"""How many times as long as a write took the changes of status and spec gather. The controller knows when no more pods
come, and then writes at once, so it can afford to gather for longer."""
QUIET_SECONDS = 0.25
"""Without a change on any node, after which a change of the spec waits for no others. Pods of a burst come closer."""
MAX_COOLDOWN = 1.5
MAX_INITIAL_DELAY = 0.3
CONCURRENT_WRITES = 2
"""Objects that one process writes side by side. More would only queue in the server, and others behind them; the
slower the server, the more a write then carries."""


def cooldown(took: float, times: float) -> float:
    """Seconds that changes may gather after a write that took so long, so that a writer is at one object for a small
    part of the time. A quiet server takes a small object in milliseconds, and nobody notices; a busy one is spared."""
    return min(MAX_COOLDOWN, times * took)


def initial_delay(took: float, *, coming: bool) -> float:
    """Seconds that a first change waits for others, where the last write of any object took so long: of a wave of pods
    one would be written at once otherwise, and all others after the gathering. Where others came just before
    (`coming`) more will, and it waits as long as they gather."""
    return cooldown(took, SPEC_COOLDOWN) if coming else min(MAX_INITIAL_DELAY, took)
