"""What pods use of a node and cannot always share there: host ports, and disks with one writer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from instaslice.controller.scheduling.groups import discard
from instaslice.kube.core import Node, Pod
from instaslice.placement import NodeName

T = TypeVar("T")


class ExclusiveUse(Generic[T]):
    """`of` says what a pod uses, `conflict` whether two of them exclude each other on a node, `reason` what to say."""

    def __init__(
        self, of: Callable[[Pod], tuple[T, ...]], conflict: Callable[[T, T], bool], reason: Callable[[T], str]
    ) -> None:
        self.conflict, self.reason = conflict, reason
        self.on: dict[NodeName, dict[str, tuple[T, ...]]] = {}
        """Node → uid of a pod → what it uses."""
        self._of = of

    def add(self, pod: Pod, node: NodeName) -> None:
        if used := self._of(pod):
            self.on.setdefault(node, {})[pod.metadata.uid] = used

    def remove(self, pod: Pod, node: NodeName) -> None:
        discard(self.on, node, pod.metadata.uid)

    def pre_filter(self, pod: Pod) -> "ExclusiveVerdict[T] | None":
        """None for a pod that uses nothing of the kind."""
        wanted = self._of(pod)
        return ExclusiveVerdict(wanted, pod.metadata.uid, self) if wanted else None


@dataclass(slots=True)
class ExclusiveVerdict(Generic[T]):
    wanted: tuple[T, ...]
    uid: str
    use: ExclusiveUse[T]

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        """Names one that conflicts with another pod there. `emptied`: as if no other pod were on that node."""
        on = {} if emptied else self.use.on.get(NodeName(node.metadata.name), {})
        others = [each for uid, used in on.items() if uid != self.uid for each in used]
        conflicts = (each for each in self.wanted if any(self.use.conflict(each, other) for other in others))
        return next((self.use.reason(each) for each in conflicts), None)
