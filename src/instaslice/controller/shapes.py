"""The kinds of node that this cluster has or had: what an autoscaler could add more of.

Pure. Learnt from nodes that advertise our resources; a node that goes leaves its shape behind, so that a group that was
scaled down to nothing is still known until the process ends.
"""

from dataclasses import dataclass

import msgspec

from instaslice.api.names import MEMORY
from instaslice.controller.node_admission import refusal
from instaslice.controller.requests import Amounts, amounts, effective
from instaslice.kube.core import Condition, Node, NodeSpec, NodeStatus, Pod
from instaslice.kube.meta import ObjectMeta

MOST = 256
"""Shapes that are remembered: where every node has a label of its own, there are as many as nodes."""
OWN = ("kubernetes.io/hostname",)
"""Labels that a new node will have another value of. A pod that asks for one asks for a node that exists."""
PASSING = "node.kubernetes.io/"
"""What taints of the control plane start with: not ready, cordoned, under pressure."""

_READY = NodeStatus(conditions=[Condition(type="Ready", status="True")])
_GIB = 2**30


@dataclass(frozen=True)
class Shape:
    """A node of this kind as it would be when new: ready, empty, its name not known yet."""

    allocatable: Amounts
    node: Node

    def holds(self, pod: Pod, wanted: Amounts) -> bool:
        return all(amount <= self.allocatable.get(name, 0) for name, amount in wanted.items()) and (
            refusal(pod, self.node) is None
        )


class Shapes:
    def __init__(self) -> None:
        # In the order they were last seen.
        self._known: dict[tuple[object, ...], Shape] = {}

    def learn(self, node: Node) -> None:
        """Take note of a node. Safe to repeat; nodes that do not advertise our resources are no shape."""
        allocatable = amounts(node.status.allocatable)
        if MEMORY not in allocatable:
            return
        labels = {name: value for name, value in node.metadata.labels.items() if name not in OWN}
        taints = [each for each in node.spec.taints or () if not each.key.startswith(PASSING)]
        # Two machines of one kind differ by some kilobytes of memory.
        rough = {name: amount // _GIB if amount >= _GIB else amount for name, amount in allocatable.items()}
        kind = (*sorted(rough.items()), *sorted(labels.items()), *sorted(msgspec.structs.astuple(t) for t in taints))
        shape = self._known.pop(kind, None)
        if shape is None:
            new = Node(metadata=ObjectMeta(labels=labels), spec=NodeSpec(taints=taints), status=_READY)
            shape = Shape(allocatable, new)
        self._known[kind] = shape
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def memory_for(self, pod: Pod) -> int | None:
        """The GPU memory of the smallest kind of node that would hold the pod if it were empty; None if no kind would.

        Slices are counted by profile and by memory, as the scheduler counts them; whether they fit side by side is for
        the placement to say when the node is there.
        """
        wanted = effective(pod)
        fitting = [shape.allocatable[MEMORY] for shape in self._known.values() if shape.holds(pod, wanted)]
        return min(fitting, default=None)
