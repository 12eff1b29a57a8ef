"""Which GPU, which start, who waits: pure functions over plain integers. No clock, no network; calls only `geometry`.

demands    what is asked for and what is granted
fleet      who holds what on which GPU
node_sets  which nodes something holds for, kept true at the cost of what changes
pools      GPUs of one kind in buckets
policy     the contract of a policy
policies   every policy by name
ordered    policies that walk GPUs in a fixed order
ranked     policies that rank kinds of GPU by a table
tables     the ranked policies by what their table says
values     what a kind of state is worth
adaptive   the default policy
portfolio, rehearsal  which table to use, tried on the observed demand
placer     a pod's slices at once, all or nothing
together, packing  several slices on one node
grants     from what a pool offers to a grant with names
refusals   why a demand found no room, and what would help
moves      which running slices to move so that a refused one finds room
waiting_queue  the pods that wait, and the order in which they are tried
gpu_reservation  which GPUs to reserve for a pod that has waited too long
errors     what is wrong with a request to hold or to release
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
