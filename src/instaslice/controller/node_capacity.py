"""What is left on each node: allocatable minus what is charged to it.

What takes from a node is charged under the uid of its pod: pods that are bound, ours or not, and pods with a
reservation there that the scheduler has yet to bind. When such a pod turns up bound its charge is replaced, so it never
counts twice. No clock, no network, nothing awaited.
"""

from instaslice.controller.requests import Amounts, amounts
from instaslice.kube.core import Node
from instaslice.kube.quantities import humanized
from instaslice.placement import Changes, NodeIndex, NodeName


class NodeCapacities:
    """The nodes, and what is charged to each. The order in which nodes and charges come does not matter."""

    def __init__(self, changes: Changes | None = None) -> None:
        """`changes` records every node on which there is more or less room than before."""
        self.changes = changes or NodeIndex().changes()
        self.nodes: dict[NodeName, Node] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._charges: dict[str, tuple[str, Amounts]] = {}
        self._used: dict[str, dict[str, int]] = {}
        # Allocatable minus used, of known nodes only: the one table that a decision reads.
        self._free: dict[str, dict[str, int]] = {}

    def set_node(self, node: Node) -> bool:
        """Take in a node as it is now; what was charged to its name before it came is kept. Whether it can hold another
        amount than before."""
        name, allocatable = node.metadata.name, amounts(node.status.allocatable)
        self.nodes[NodeName(name)] = node
        if self._allocatable.get(name) == allocatable:
            return False
        self.changes.add(NodeName(name))
        self._allocatable[name] = allocatable
        free = dict(allocatable)
        for resource, amount in self._used.get(name, {}).items():
            free[resource] = free.get(resource, 0) - amount
        self._free[name] = free
        return True

    def remove_node(self, name: NodeName) -> Node | None:
        """Nothing fits there from now on. Charges stay until they are discharged: the node may return before that."""
        self._allocatable.pop(name, None)
        self._free.pop(name, None)
        self.changes.add(name)
        return self.nodes.pop(name, None)

    def charge(self, uid: str, node: str, amounts: Amounts) -> bool:
        """Count a pod on a node, in place of what was charged for it before, wherever. Never refuses: what is bound is
        bound. Safe to repeat. Whether something else was charged for it before, which may leave room."""
        before = self._charges.get(uid)
        if before == (node, amounts):
            return False
        if before is not None:
            self._count(*before, sign=-1)
        self._charges[uid] = node, amounts
        self._count(node, amounts, sign=1)
        return before is not None

    def discharge(self, uid: str) -> bool:
        """The pod is gone, has ended, or has no reservation any more. Whether it was charged anywhere."""
        before = self._charges.pop(uid, None)
        if before is None:
            return False
        self._count(*before, sign=-1)
        return True

    def fits(self, node: str, amounts: Amounts) -> bool:
        """Whether the node is known and all of it is free. A resource that the node does not have is 0 free; of what is
        not asked for, a node may even be short."""
        free = self._free.get(node)
        if free is None:
            return False
        for resource, amount in amounts.items():  # noqa: SIM110  a generator costs as much again
            if amount > 0 and amount > free.get(resource, 0):
                return False
        return True

    def short(self, node: str, amounts: Amounts) -> str | None:
        """None where `fits`, otherwise all that is short: "cpu: 500m wanted, 200m free"."""
        free = self._free.get(node)
        if free is None:
            return "node is not there"
        said = [
            f"{resource}: {humanized(resource, amount, up=True)} wanted, "
            f"{humanized(resource, max(0, free.get(resource, 0)), up=False)} free"
            for resource, amount in amounts.items()
            if amount > 0 and amount > free.get(resource, 0)
        ]
        return "; ".join(said) or None

    def could_hold(self, node: str, amounts: Amounts) -> bool:
        """Whether it would fit if nothing were charged there."""
        allocatable = self._allocatable.get(node)
        return allocatable is not None and all(
            amount <= allocatable.get(resource, 0) for resource, amount in amounts.items() if amount > 0
        )

    def free(self, node: str) -> Amounts:
        """What is left of each resource, negative where more is bound than the node has; empty if it is not known."""
        return dict(self._free.get(node, {}))

    def _count(self, node: str, amounts: Amounts, *, sign: int) -> None:
        self.changes.add(NodeName(node))
        used = self._used.setdefault(node, {})
        free = self._free.get(node)
        for resource, amount in amounts.items():
            total = used.get(resource, 0) + sign * amount
            if total:
                used[resource] = total
            else:
                # Nodes come and go under new names all the time: zeros are not kept.
                used.pop(resource, None)
            if free is not None:
                free[resource] = free.get(resource, 0) - sign * amount
        if not used:
            del self._used[node]
