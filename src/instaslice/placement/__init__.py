"""Which GPU, which start, who waits: pure functions over plain integers. No clock, no network; calls only `geometry`.

demands           what is asked for and what is granted
fleet             who holds what on which GPU
pools             the GPUs of a fleet, grouped by kind of state
node_sets         cached sets of nodes, updated only for nodes that changed
placer            places all slices of a pod, or none
grants            a placement on a GPU, with names instead of numbers
scarcity          which model to use for a profile that several models offer
colocation        several slices on one node, and whether a node could ever hold them
room              what room a fleet has left, for metrics
packing           some way to put several slices on the GPUs of a node, if there is one
memory_choices    which profiles a slice that is asked for by memory may have
usable_models     which nodes have the same GPUs to use
refusals          why a demand did not fit, and what would help
moves             which running slices to move so that a refused demand fits
waiting_queue     the pods that wait, and in which order they are tried
gpu_reservation   which GPUs to reserve for a pod that has waited too long
longest_waiting   for which pod they are reserved, and for how long
policy            the contract of a policy
policies          all policies by name
ordered_policies  those that walk GPUs in a fixed order
ranked            those that rank the kinds of state by a table
ranked_policies   the ranked ones with a fixed table
adaptive          the default: the ranked one that chooses its table by what has arrived
portfolio         the tables it chooses from, and the choice
rehearsal         a small model of a fleet, on which the tables are tried
value_tables      what a kind of state is worth
errors            what can be wrong with a request to take or release a slot
"""

from instaslice.placement.colocation import could_hold
from instaslice.placement.demands import Admits, Demand, GpuId, Grant, NodeName, Plan, Prefers, Share
from instaslice.placement.errors import FleetError, NotFree, NotHeld, UnknownGpu
from instaslice.placement.fleet import Fleet
from instaslice.placement.memory_choices import Asked, Choice, choices
from instaslice.placement.node_sets import Changes, NodeIndex, NodeSet
from instaslice.placement.placer import Placer
from instaslice.placement.policy import Policy, Regime
from instaslice.placement.refusals import Refusal, Short
from instaslice.placement.usable_models import NodeModels, UsableModels
from instaslice.placement.waiting_queue import RequestKey, WaitingQueue

__all__ = [
    "Admits",
    "Asked",
    "Changes",
    "Choice",
    "Demand",
    "Fleet",
    "FleetError",
    "GpuId",
    "Grant",
    "NodeIndex",
    "NodeModels",
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
    "UnknownGpu",
    "UsableModels",
    "WaitingQueue",
    "choices",
    "could_hold",
]
