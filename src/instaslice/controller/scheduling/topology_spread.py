"""Topology spread with `DoNotSchedule`. Follows PodTopologySpread.

Counted over the nodes that the pod could have gone to before it was pinned to one. After that the scheduler sees a
single domain, finds it level whatever it holds, and nobody but us keeps what the pod asked for. `only` is that node:
how the scheduler sees a pod that is pinned.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

import msgspec

from instaslice.controller import node_admission
from instaslice.controller.scheduling.assigned_pods import AssignedPods
from instaslice.controller.scheduling.label_selector import Selector, selector
from instaslice.kube.core import Node, Pod
from instaslice.placement import NodeName

MOST_KEPT: Final = 256


class Constraint(NamedTuple):
    key: str
    max_skew: int
    pods: Selector
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"


def constraints(pod: Pod, kind: str = DO_NOT_SCHEDULE) -> tuple[Constraint, ...]:
    labels = pod.metadata.labels
    return tuple(
        Constraint(
            each.topology_key,
            each.max_skew,
            selector(each.label_selector).with_values(labels, each.match_label_keys or ()),
            each.min_domains or 1,
            each.node_affinity_policy != "Ignore",
            each.node_taints_policy == "Honor",
        )
        for each in pod.spec.topology_spread_constraints or ()
        if each.when_unsatisfiable == kind
    )


@dataclass(slots=True)
class _Spread:
    """One constraint, counted."""

    constraint: Constraint
    itself: int
    """1 where the constraint counts the pod itself."""
    matching: dict[str, int]
    """Domain → pods, of domains that count."""
    on: dict[NodeName, int]
    """Those on one node."""
    least: float

    def refusal(self, node: Node, *, emptied: bool) -> str | None:
        key, most = self.constraint.key, self.constraint.max_skew
        value = node.metadata.labels.get(key)
        if value is None:
            return f"topology spread over {key}: the node has no such label"
        there, here = self.matching.get(value, 0), self.on.get(NodeName(node.metadata.name), 0)
        if emptied:
            there, here = there - here, 0
        if self.constraint.honors_affinity and self.constraint.min_domains > 1 and here + self.itself > most:
            # A pinned pod has one domain, its node: fewer than it asks for, so the scheduler takes the least for 0.
            least = self.constraint.min_domains
            return f"topology spread over {key}: {here} such pods are on the node itself, of {least} domains at least"
        if there + self.itself - self.least <= most:
            return None
        return f"topology spread over {key}: {value} has {there} such pods, the least is {self.least}, max skew {most}"


@dataclass(slots=True)
class SpreadVerdict:
    spreads: list[_Spread]

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        return next((told for each in self.spreads if (told := each.refusal(node, emptied=emptied))), None)


class Domains:
    """Which nodes count for a constraint, kept until a node changes."""

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self._nodes = nodes
        self._kept: dict[bytes, dict[NodeName, str]] = {}

    def clear(self) -> None:
        self._kept.clear()

    def of(self, pod: Pod, constraint: Constraint, keys: tuple[str, ...]) -> Mapping[NodeName, str]:
        """Node → domain. A node counts only if it has the keys of all of the pod's constraints."""
        spec, affinity = pod.spec, pod.spec.affinity
        near = affinity.node_affinity.required if affinity and affinity.node_affinity else None
        where = (spec.node_selector, near) if constraint.honors_affinity else None
        tolerations = spec.tolerations or () if constraint.honors_taints else None
        name = msgspec.json.encode((constraint.key, keys, where, tolerations))
        found = self._kept.get(name)
        if found is None:
            found = {
                node: each.metadata.labels[constraint.key]
                for node, each in self._nodes.items()
                if all(key in each.metadata.labels for key in keys)
                and not (constraint.honors_affinity and node_admission.unselected(pod, each))
                and not (constraint.honors_taints and node_admission.untolerated(pod, each))
            }
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = found
        return found


def judge(pod: Pod, pods: AssignedPods, domains: Domains, only: NodeName | None = None) -> SpreadVerdict | None:
    """None where no node is ruled out. The pod itself may be assigned already."""
    wanted = constraints(pod)
    keys = tuple(each.key for each in wanted)
    return SpreadVerdict([_count(pod, each, keys, pods, domains, only) for each in wanted]) if wanted else None


def _count(
    pod: Pod, constraint: Constraint, keys: tuple[str, ...], pods: AssignedPods, domains: Domains, only: NodeName | None
) -> _Spread:
    eligible = domains.of(pod, constraint, keys)
    if only is not None and constraint.honors_affinity:
        eligible = {only: eligible[only]} if only in eligible else {}
    matching = dict.fromkeys(eligible.values(), 0)
    on: dict[NodeName, int] = {}
    # As in the scheduler: a selector of everything counts nobody, and yet the pod itself.
    if not constraint.pods.everything:
        for other in pods.matching((pod.metadata.namespace,), constraint.pods, but=pod.metadata.uid):
            if other.node in eligible and other.pod.metadata.deletion_timestamp is None:
                matching[eligible[other.node]] += 1
                on[other.node] = on.get(other.node, 0) + 1
    # With fewer domains than it asks for, those that are missing count as empty. Without any that counts nothing is
    # out of balance.
    least = 0 if len(matching) < constraint.min_domains else min(matching.values(), default=inf)
    itself = int(constraint.pods.matches(pod.metadata.labels))
    return _Spread(constraint, itself, matching, on, least)
