"""What the controller knows of the cluster: nodes, pods with slices, reservations, who waits, and what is quarantined.

No clock and no network. The dispatcher and the pod reconciler keep it up to date; the pod placer, conditions and
`explain` read it.
"""

from instaslice.api.agent_presence import missing_agent
from instaslice.api.instaslice import InstasliceStatus
from instaslice.controller import node_admission
from instaslice.controller.ledger import Ledger
from instaslice.controller.node_capacity import NodeCapacities
from instaslice.controller.quarantine import ObjectKind, Quarantine
from instaslice.controller.requests import Amounts
from instaslice.controller.scheduling.filters import Filters
from instaslice.kube.core import Node, Pod
from instaslice.placement import NodeName, Policy, WaitingQueue


class ClusterState:
    def __init__(self, policy: Policy) -> None:
        self.ledger = Ledger(policy, self.exists, self.missing_agent)
        self.silent_leases: frozenset[str] = frozenset()
        """The names of agents' Leases that are not renewed any more."""
        changes = self.ledger.fleet.index.changes
        self.capacities = NodeCapacities(changes())
        self.nodes = self.capacities.nodes
        self.admission_changes = changes()
        """The nodes whose state, taints or labels have changed."""
        self.filters = Filters(self.nodes)
        self.quarantine = Quarantine()
        self.queue = WaitingQueue()
        self.arrivals = 0
        """Pods that have been queued so far."""
        self.pods: dict[str, Pod] = {}
        """Those that asked for slices, by uid."""
        self.dead_nodes: set[NodeName] = set()
        """Nodes that have not been ready for too long."""
        self.backing_off: dict[str, str] = {}
        """Pods that are not placed again for a while, and why."""

    @property
    def version(self) -> int:
        """Another number once nodes, what they have left, or what their GPUs hold has changed."""
        return self.ledger.fleet.changes.end + self.capacities.changes.end + self.admission_changes.end

    def exists(self, name: NodeName) -> bool:
        """Whether there is a Node of that name, also one that is set aside."""
        return name in self.nodes or bool(self.quarantine.why(ObjectKind.NODE, name))

    def missing_agent(self, name: NodeName, status: InstasliceStatus) -> str:
        """Why the agent of a node counts as gone; "" where it does not."""
        return missing_agent(status, self.nodes.get(name), self.silent_leases)

    def set_node(self, node: Node) -> bool:
        """Take in a node as it is now. Whether it may admit pods that it did not admit before."""
        name = NodeName(node.metadata.name)
        old = self.nodes.get(name)
        changed = self.capacities.set_node(node)
        if old is None or node_admission.facts(old) != node_admission.facts(node):
            self.admission_changes.add(name)
            self.filters.node_changed(old, node)
            changed = True
        return changed

    def remove_node(self, name: NodeName) -> None:
        self.filters.node_changed(self.capacities.remove_node(name), None)
        self.admission_changes.add(name)

    def assign(self, pod: Pod, node: NodeName, amounts: Amounts) -> bool:
        """Count a pod on the node that it is sent to. Whether that may admit another pod elsewhere."""
        self.capacities.charge(pod.metadata.uid, node, amounts)
        return self.filters.assign(pod, node)

    def unassign(self, uid: str) -> bool:
        """Count a pod nowhere any more. Whether that may admit another pod."""
        helps = self.filters.remove(uid)
        return self.capacities.discharge(uid) or helps
