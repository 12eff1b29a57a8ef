"""How the two writers of an Instaslice object limit their load on the API server, as measured in designs/0008.

A write costs the server by the size of the whole object, whatever part it changes: some 50 ms of CPU for the 112
slices of 16 GPUs, twice that where it also tracks field ownership.
"""

from instaslice.kube.client import JsonOp

UNTRACKED = JsonOp(op="replace", path="/metadata/managedFields", value=[{}])
"""Once after the object is created: each field has one writer and nobody applies, so ownership needs no tracking."""

STATUS_COOLDOWN = 5.0
SPEC_COOLDOWN = 10.0
"""How many times the duration of a write the changes of status and spec are collected. The controller knows when no
more pods arrive, and then writes at once, so it can collect for longer."""
QUIET_SECONDS = 0.25
"""Without a change on any node, after which a change of the spec waits for no others. Pods of a burst come faster."""
MAX_COOLDOWN = 1.5
MAX_INITIAL_DELAY = 0.3
CONCURRENT_WRITES = 2
"""Objects that one process writes concurrently. More would only queue in the server, and delay others; the slower the
server, the more a write then carries."""


def cooldown(took: float, times: float) -> float:
    """Seconds that changes are collected after a write that took so long, so that a writer spends a small part of the
    time on one object. An idle server takes milliseconds for a small object; a busy one gets fewer writes."""
    return min(MAX_COOLDOWN, times * took)


def initial_delay(took: float, *, arriving: bool) -> float:
    """Seconds that a first change waits for others, where the last write of any object took so long: otherwise one pod
    of a burst would be written at once, and all others after the cooldown. Where others arrived just before
    (`arriving`) more will, and it waits for the whole cooldown."""
    return cooldown(took, SPEC_COOLDOWN) if arriving else min(MAX_INITIAL_DELAY, took)
