"""Topology spread with `DoNotSchedule`. Follows PodTopologySpread.

Pods are counted over the nodes that the pod could have gone to before it was pinned to one. Afterwards the scheduler
sees a single domain, whose skew is always 0, so only we can enforce the constraint. `only` is that node: how the
scheduler sees a pinned pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

import msgspec

from instaslice.controller import node_admission
from instaslice.controller.scheduling.assigned_pods import AssignedPods
from instaslice.controller.scheduling.label_selector import LabelMatcher, label_matcher
from instaslice.kube.core import Node, Pod
from instaslice.placement import NodeName

MOST_CACHED: Final = 256


class SpreadConstraint(NamedTuple):
    key: str
    max_skew: int
    pods: LabelMatcher
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"


def constraints(pod: Pod, kind: str = DO_NOT_SCHEDULE) -> tuple[SpreadConstraint, ...]:
    labels = pod.metadata.labels
    return tuple(
        SpreadConstraint(
            each.topology_key,
            each.max_skew,
            label_matcher(each.label_selector).with_values(labels, each.match_label_keys or ()),
            each.min_domains or 1,
            each.node_affinity_policy != "Ignore",
            each.node_taints_policy == "Honor",
        )
        for each in pod.spec.topology_spread_constraints or ()
        if each.when_unsatisfiable == kind
    )


@dataclass(slots=True)
class _CountedConstraint:
    """One constraint and its counts."""

    constraint: SpreadConstraint
    itself: int
    """1 if the constraint counts the pod itself."""
    matching: dict[str, int]
    """Domain → pods, for eligible domains."""
    on: dict[NodeName, int]
    """Node → pods."""
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
            # A pinned pod has one domain, its node: less than minDomains, so the scheduler takes the minimum as 0.
            least = self.constraint.min_domains
            return f"topology spread over {key}: the node has {here} such pods, and minDomains is {least}"
        if there + self.itself - self.least <= most:
            return None
        return (
            f"topology spread over {key}: {value} has {there} such pods, the minimum is {self.least}, max skew {most}"
        )


@dataclass(slots=True)
class SpreadVerdict:
    spreads: list[_CountedConstraint]

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        return next((reason for each in self.spreads if (reason := each.refusal(node, emptied=emptied))), None)


class SpreadDomains:
    """Which nodes count for a constraint, cached until a node changes."""

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self._nodes = nodes
        self._cache: dict[bytes, dict[NodeName, str]] = {}

    def clear(self) -> None:
        self._cache.clear()

    def of(self, pod: Pod, constraint: SpreadConstraint, keys: tuple[str, ...]) -> Mapping[NodeName, str]:
        """Node → domain. A node counts only if it has the topology keys of all constraints of the pod."""
        spec, affinity = pod.spec, pod.spec.affinity
        near = affinity.node_affinity.required if affinity and affinity.node_affinity else None
        where = (spec.node_selector, near) if constraint.honors_affinity else None
        tolerations = spec.tolerations or () if constraint.honors_taints else None
        name = msgspec.json.encode((constraint.key, keys, where, tolerations))
        found = self._cache.get(name)
        if found is None:
            found = {
                node: each.metadata.labels[constraint.key]
                for node, each in self._nodes.items()
                if all(key in each.metadata.labels for key in keys)
                and not (constraint.honors_affinity and node_admission.unselected(pod, each))
                and not (constraint.honors_taints and node_admission.untolerated(pod, each))
            }
            if len(self._cache) >= MOST_CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[name] = found
        return found


def pre_filter(
    pod: Pod, pods: AssignedPods, domains: SpreadDomains, only: NodeName | None = None
) -> SpreadVerdict | None:
    """None for a pod without constraints. The pod itself may already be assigned."""
    wanted = constraints(pod)
    keys = tuple(each.key for each in wanted)
    return SpreadVerdict([_count(pod, each, keys, pods, domains, only) for each in wanted]) if wanted else None


def _count(
    pod: Pod,
    constraint: SpreadConstraint,
    keys: tuple[str, ...],
    pods: AssignedPods,
    domains: SpreadDomains,
    only: NodeName | None,
) -> _CountedConstraint:
    eligible = domains.of(pod, constraint, keys)
    if only is not None and constraint.honors_affinity:
        eligible = {only: eligible[only]} if only in eligible else {}
    matching = dict.fromkeys(eligible.values(), 0)
    on: dict[NodeName, int] = {}
    # As in the scheduler: a selector that matches everything counts no other pods, but the pod itself.
    if not constraint.pods.matches_everything:
        for other in pods.matching((pod.metadata.namespace,), constraint.pods, but=pod.metadata.uid):
            if other.node in eligible and other.pod.metadata.deletion_timestamp is None:
                matching[eligible[other.node]] += 1
                on[other.node] = on.get(other.node, 0) + 1
    # With fewer domains than minDomains, the missing ones count as empty. Without any eligible domain there is no skew.
    least = 0 if len(matching) < constraint.min_domains else min(matching.values(), default=inf)
    itself = int(constraint.pods.matches(pod.metadata.labels))
    return _CountedConstraint(constraint, itself, matching, on, least)
