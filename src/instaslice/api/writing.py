"""How the two writers of an Instaslice object spare the API server. designs/0008 has what was measured.

A write costs the server by the size of the whole object, whatever part it changes: some 50 ms of CPU for the 112
slices of 16 GPUs, twice that where it also keeps account of who owns which field.
"""

from instaslice.kube.client import JsonOp

UNTRACKED = JsonOp(op="replace", path="/metadata/managedFields", value=[{}])
"""Once after the object is made: nobody applies here, each field has one writer, so its owners need no account."""

REPORT_TIMES = 5.0
SPEC_TIMES = 10.0
"""Changes of status and spec gather for so many times as long as the last write took. The controller knows when no more
pods come, and then writes immediately, so it can afford to gather for longer."""
QUIET_SECONDS = 0.25
"""Without a change on any node, after which a change of the spec waits for no others. Pods of a burst come closer."""
MOST_SECONDS = 1.5
LONGEST_PAUSE = 0.3
AT_ONCE = 2
"""Objects that one process writes side by side. More would only queue in the server, and others behind them; the
slower the server, the more a write then carries."""


def cooldown(took: float, times: float) -> float:
    """Seconds that changes may gather after a write that took so long, so that a writer is busy with one object for a
    small part of the time. A quiet server takes a small object in milliseconds, and nobody notices; a busy one is
    spared.
    """
    return min(MOST_SECONDS, times * took)


def initial_delay(took: float, *, coming: bool) -> float:
    """Seconds that a first change waits for others, where the last write of any object took so long: of a wave of pods
    one would be written immediately otherwise, and all others after the cooldown. Where others came just before
    (`coming`) more will, and it waits as long as they gather."""
    return cooldown(took, SPEC_TIMES) if coming else min(LONGEST_PAUSE, took)
