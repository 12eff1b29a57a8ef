"""Nodes to which the scheduler did not bind a pod although our filters accepted them: avoid them for a while.

The reason is not known here: a third-party scheduler plugin, for example. It may disappear, so pods of the same owner
are sent to the node again after a backoff.
"""

from dataclasses import dataclass, field
from typing import Final

from instaslice.kube.core import Node, Pod
from instaslice.placement import NodeName

FIRST: Final = 900.0
LONGEST: Final = 14_400.0
MOST_OWNERS: Final = 1_000
REASON: Final = "the scheduler did not bind a pod of the same owner there a while ago"


def owner(pod: Pod) -> str:
    """Namespace and uid of the controller that would replace the pod, or of the pod itself. The namespace is part of it
    because anybody can write any uid into an owner reference."""
    uid = next((each.uid for each in pod.metadata.owner_references if each.controller), pod.metadata.uid)
    return f"{pod.metadata.namespace}/{uid}"


@dataclass(slots=True)
class RefusedVerdict:
    nodes: set[NodeName]

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        return REASON if node.metadata.name in self.nodes else None


@dataclass(slots=True)
class _Refused:
    closed: set[NodeName] = field(default_factory=set)
    counts: dict[NodeName, int] = field(default_factory=dict)


class RefusedNodes:
    def __init__(self) -> None:
        self._by_owner: dict[str, _Refused] = {}

    def add(self, pod: Pod, node: NodeName) -> float:
        """The scheduler did not bind the pod there. Returns the seconds after which to call `retry`."""
        found = self._by_owner.setdefault(owner(pod), _Refused())
        if len(self._by_owner) > MOST_OWNERS:
            del self._by_owner[next(iter(self._by_owner))]
        count = found.counts[node] = found.counts.get(node, 0) + 1
        found.closed.add(node)
        return min(LONGEST, FIRST * (1 << min(count - 1, 10)))

    def retry(self, name: str, node: NodeName) -> None:
        """Pods of this owner may be sent there again."""
        if (found := self._by_owner.get(name)) is not None:
            found.closed.discard(node)

    def bound(self, pod: Pod, node: NodeName) -> bool:
        """A pod of the owner was bound there, so the reason is gone. Whether that opens the node again."""
        found = self._by_owner.get(owner(pod)) if self._by_owner else None
        if found is None or found.counts.pop(node, None) is None:
            return False
        found.closed.discard(node)
        if not found.counts:
            del self._by_owner[owner(pod)]
        return True

    def has(self, pod: Pod) -> bool:
        """Whether there is an entry for the pod's owner."""
        return bool(self._by_owner) and owner(pod) in self._by_owner

    def pre_filter(self, pod: Pod) -> RefusedVerdict | None:
        found = self._by_owner.get(owner(pod)) if self._by_owner else None
        return RefusedVerdict(found.closed) if found is not None and found.closed else None
