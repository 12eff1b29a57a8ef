"""Which GPU, which start, who waits: pure functions over plain integers. No clock, no network; calls only `geometry`.

demands          what is asked for and what is granted
fleet            who holds what on which GPU
node_sets        which nodes something holds for, kept true at the cost of what changes
policy           the contract of a policy; `policies` has them by name
placer           a pod's slices at once, all or nothing
waiting_queue    the pods that wait, in which order they are tried
gpu_reservation  which GPUs to reserve for a pod that has waited too long
"""

from instaslice.placement.demands import Admits, Demand, GpuId, Grant, NodeName, Plan, Prefers, Share, Want
from instaslice.placement.errors import FleetError, NotFree, NotHeld, UnknownGpu
from instaslice.placement.fleet import Fleet
from instaslice.placement.node_sets import Changes, NodeIndex, NodeSet
from instaslice.placement.placer import Placer
from instaslice.placement.policy import Policy, Regime, Spot
from instaslice.placement.refusals import Refusal, Short
from instaslice.placement.together import could_hold
from instaslice.placement.waiting_queue import RequestKey, WaitingQueue

__all__ = [
    "Admits",
    "Changes",
    "Demand",
    "Fleet",
    "FleetError",
    "GpuId",
    "Grant",
    "NodeIndex",
    "NodeName",
    "NodeSet",
    "NotFree",
    "NotHeld",
    "Placer",
    "Plan",
    "Policy",
    "Prefers",
    "Refusal",
    "Regime",
    "RequestKey",
    "Share",
    "Short",
    "Spot",
    "UnknownGpu",
    "WaitingQueue",
    "Want",
    "could_hold",
]
