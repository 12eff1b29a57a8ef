"""What can be wrong with a cluster, each with a name, the object concerned and a message with a remedy."""

from enum import StrEnum

import msgspec


class Invariant(StrEnum):
    """What must hold. The value is what `instaslice doctor` prints."""

    READABLE = "readable"
    """Every object can be understood; one that cannot is left out by the other rules."""
    NO_OVERLAP = "no-overlap"
    """No two allocations, nor an allocation and a foreign slice, take the same memory slices of a GPU."""
    LEGAL_LAYOUT = "legal-layout"
    """The allocations of a GPU can exist there together."""
    POD_EXISTS = "pod-exists"
    """An allocation that is not being deleted is for a pod that exists, with that uid, and has not ended."""
    SLICE_EXISTS = "slice-exists"
    """An allocation that a pod may run on has its slice, at its placement."""
    SLICE_OWNED = "slice-owned"
    """A slice belongs to an allocation, or is reported as foreign."""
    UUID_MATCHES = "uuid-matches"
    """The MIG UUIDs that a pod was given are those of its slices."""
    UUID_ONCE = "uuid-once"
    """No MIG UUID is given to two live pods, nor reported for two slices."""
    POD_HAS_SLICES = "pod-has-slices"
    """A pod that is past its gate holds as many slices of each profile as it requests."""
    POD_REMEMBERED = "pod-remembered"
    """A gated pod says what it waits for, or is young."""
    RIGHT_NODE = "right-node"
    """A pod runs on the node of its slices, all of which are on one node."""
    MOVES_ON = "moves-on"
    """Nothing stays in creating or deleting without a reason."""
    NODE_SUFFICES = "node-suffices"
    """CPU and memory reserved and used are no more than the node has."""
    CAPACITY_TRUE = "capacity-true"
    """A node advertises what its GPUs could hold."""
    HARDWARE_THERE = "hardware-there"
    """Allocations are on nodes and GPUs that exist, and each GPU is on one node."""
    AGENT_RESPONDS = "agent-responds"
    """The agent of each node runs, and takes note of what is reserved there."""
    NODE_SERVES = "node-serves"
    """No agent says that pods cannot start on its node."""
    GPU_HEALTHY = "gpu-healthy"
    """No GPU is unhealthy."""
    INSTALLED = "installed"
    """InstaSlice is installed. Where it is not, nothing else is said of what it would consist of."""
    WEBHOOK_CALLED = "webhook-called"
    """The API server calls the webhook for new pods, trusts it, and admits none without it."""
    POLICIES_BOUND = "policies-bound"
    """The policies against forged annotations exist and are in force."""
    CONTROLLER_LEADS = "controller-leads"
    """A controller holds the Lease and renews it."""
    DEFINITION_MATCHES = "definition-matches"
    """The definition of the Instaslice object is the one of this version."""
    QUOTA_COUNTS = "quota-counts"
    """No quota limits names that pods no longer have when they are counted."""
    QUEUE_CHARGED = "queue-charged"
    """Kueue charges the GPU memory of every slice once, and no pod in a queue holds a slice without quota."""
    POD_SEEN = "pod-seen"
    """No pod waits for `nvidia.com/mig-*`, which no node has: the webhook has seen every pod that asks for it."""
    QUEUE_ADMITS = "queue-admits"
    """Kueue, where it is installed, can admit every workload that asks for slices, for no more than they cost."""
    NOT_CHECKED = "not-checked"
    """The caller may read everything that the doctor looks at. Not a fault of the cluster, and not "all is well"."""


class Finding(msgspec.Struct, frozen=True, order=True):
    """One violated invariant. The JSON keys are those that `instaslice doctor -o json` has always printed."""

    invariant: Invariant
    object: str
    """Kind and name: `pod team-a/train`, `instaslice gpu-0`, `node gpu-0`."""
    message: str = msgspec.field(name="words")
    transient: bool = msgspec.field(name="passing", default=False)
    """Whether it is expected to disappear within moments, for example when an agent sees its object."""

    def __str__(self) -> str:
        return f"{self.invariant}  {self.object}: {self.message}"
