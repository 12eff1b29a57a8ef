"""Which GPU, which start, who waits: pure functions over plain integers. No clock, no network; calls only `geometry`.

demands            what is asked for and what is granted; errors what can be wrong with it
fleet              who holds what on which GPU; pools its GPUs grouped by kind of state
node_sets          cached sets of nodes, updated only for nodes that changed
policy             the contract of a policy; policies has them all by name
ordered_policies   policies that walk GPUs in a fixed order
ranked             policies that rank the kinds of state by a table; ranked_policies has those with a fixed table
value_tables       the tables: what a kind of state is worth
adaptive           the default policy, which chooses among the tables of portfolio
portfolio          several tables, and the choice among them by rehearsal
rehearsal          a small model of a fleet, on which portfolio tries its tables
placer             places all slices of a pod, or none; grants turns candidates into grants
colocation         several slices on one node, and whether a node could ever hold them; packing finds every way
refusals           why a demand did not fit, and what would help
moves              which running slices to move so that a refused demand fits
waiting_queue      the pods that wait, and in which order they are tried
gpu_reservation    which GPUs to reserve for a pod that has waited too long
"""

from instaslice.placement.colocation import could_hold
from instaslice.placement.demands import Admits, Demand, GpuId, Grant, NodeName, Plan, Prefers, Share
from instaslice.placement.errors import FleetError, NotFree, NotHeld, UnknownGpu
from instaslice.placement.fleet import Fleet
from instaslice.placement.node_sets import Changes, NodeIndex, NodeSet
from instaslice.placement.placer import Placer
from instaslice.placement.policy import Policy, Regime
from instaslice.placement.refusals import Refusal, Short
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
    "UnknownGpu",
    "WaitingQueue",
    "could_hold",
]
