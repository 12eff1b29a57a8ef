"""The invariants of a cluster, checked from outside: by `instaslice doctor`, and in every integration test.

world        what the API server holds at one moment, and what follows from it
findings     what can be wrong, in words
asked        what slices a pod asks for, counted anew
readable     the rule that every object can be made sense of
slots        rules about GPUs: who holds which place
pods         rules about pods: what they asked for is what they hold
machines     rules about nodes: CPU, memory, capacity, what is gone
examination  all rules over one world; looking again until a cluster is settled
replay       rules over a history, write by write: no moment at which two pods hold one place
overseer     that history, from watches of a live cluster

Nothing here trusts the controller: it reads what pods, nodes and Instaslice objects say and compares them. Nor does it
trust them: what cannot be read is a finding of its own, and costs nothing else.
"""

from instaslice.doctor.examination import Doctor, check, examine, settled
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.overseer import Overseer
from instaslice.doctor.replay import Event, Replay
from instaslice.doctor.world import Held, World, look

__all__ = [
    "Doctor",
    "Event",
    "Finding",
    "Held",
    "Invariant",
    "Overseer",
    "Replay",
    "World",
    "check",
    "examine",
    "look",
    "settled",
]
