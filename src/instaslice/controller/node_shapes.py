"""The shapes of node that this cluster has or had: an autoscaler could add more of them.

Pure. Learned from nodes that advertise our resources. The shape of a deleted node stays known until the process ends,
so that a node group can be scaled up from zero.
"""

from dataclasses import dataclass

import msgspec

from instaslice.api.names import MEMORY
from instaslice.api.pods import needed_slices
from instaslice.controller.node_admission import refusal
from instaslice.controller.requests import Amounts, amounts, effective
from instaslice.kube.core import Condition, Node, NodeSpec, NodeStatus, Pod
from instaslice.kube.meta import ObjectMeta

MOST = 256
"""Bound on known shapes: if every node has a label of its own, there is one per node."""
HOSTNAME = "kubernetes.io/hostname"
"""A new node has another value of this label. A pod that selects by it selects an existing node."""
TRANSIENT = "node.kubernetes.io/"
"""Prefix of the taints of the control plane: not ready, cordoned, under pressure."""

_READY = NodeStatus(conditions=[Condition(type="Ready", status="True")])
_GIB = 2**30


@dataclass(frozen=True)
class NodeShape:
    """A new node of this shape: ready, empty, without a name."""

    allocatable: Amounts
    node: Node

    def holds(self, pod: Pod, wanted: Amounts) -> bool:
        return (
            all(amount <= self.allocatable.get(name, 0) for name, amount in wanted.items())
            # The sum of its memory says nothing of one slice.
            and all(any(map(each.ask.met_by, self.allocatable)) for each in needed_slices(pod) if each.ask is not None)
            and refusal(pod, self.node) is None
        )


class NodeShapes:
    def __init__(self) -> None:
        # In the order in which they were last seen.
        self._known: dict[tuple[object, ...], NodeShape] = {}

    def learn(self, node: Node) -> None:
        """Learn the shape of a node. Safe to repeat; nodes that do not advertise our resources are ignored."""
        allocatable = amounts(node.status.allocatable)
        if MEMORY not in allocatable:
            return
        labels = {name: value for name, value in node.metadata.labels.items() if name != HOSTNAME}
        taints = [each for each in node.spec.taints or () if not each.key.startswith(TRANSIENT)]
        # Machines of one kind differ by some kilobytes of memory.
        rough = {name: amount // _GIB if amount >= _GIB else amount for name, amount in allocatable.items()}
        key = (*sorted(rough.items()), *sorted(labels.items()), *sorted(msgspec.structs.astuple(t) for t in taints))
        shape = self._known.pop(key, None)
        if shape is None:
            new = Node(metadata=ObjectMeta(labels=labels), spec=NodeSpec(taints=taints), status=_READY)
            shape = NodeShape(allocatable, new)
        self._known[key] = shape
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def memory_for(self, pod: Pod) -> int | None:
        """The GPU memory of the smallest shape that could hold the pod if it were empty; None if no shape could.

        Slices are counted by profile and memory, like the scheduler does. Whether they fit on the GPUs together is
        decided when the node exists.
        """
        wanted = effective(pod)
        fitting = [shape.allocatable[MEMORY] for shape in self._known.values() if shape.holds(pod, wanted)]
        return min(fitting, default=None)
