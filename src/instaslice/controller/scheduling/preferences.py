"""Scores for the nodes that a pod prefers: preferred affinities, `ScheduleAnyway`, `PreferNoSchedule`.

Follows the plugins of kube-scheduler and their default weights, without the preferences of other pods and without
image locality. Decides only between GPUs that the placement policy scores equally.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import log
from typing import Final

from instaslice.controller import node_admission
from instaslice.controller.scheduling import pod_affinity
from instaslice.controller.scheduling.assigned_pods import AssignedPods
from instaslice.controller.scheduling.topology_spread import SCHEDULE_ANYWAY, constraints
from instaslice.kube.core import Affinity, Node, NodeAffinity, Pod, PodAffinity
from instaslice.placement import NodeName

Scores = dict[NodeName, float]
BEST: Final = 100.0
TAINTS, OTHERS = 3.0, 2.0
"""Weights of the scheduler's plugins."""
SOFT: Final = "PreferNoSchedule"


def preferred(pod: Pod) -> bool:
    """Whether the pod states a preference."""
    affinity = pod.spec.affinity
    return bool(
        (affinity is not None and any(kind is not None and kind.preferred for kind in _kinds(affinity)))
        or constraints(pod, SCHEDULE_ANYWAY)
    )


def avoided(node: Node) -> bool:
    """Whether the node has a taint of effect PreferNoSchedule."""
    return any(taint.effect == SOFT for taint in node.spec.taints or ())


def _kinds(affinity: Affinity) -> Iterator[NodeAffinity | PodAffinity | None]:
    return iter((affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity))


def scores(pod: Pod, nodes: Iterable[Node], pods: AssignedPods, namespaces: Mapping[str, Mapping[str, str]]) -> Scores:
    """Node → score; higher is better."""
    among = {NodeName(node.metadata.name): node for node in nodes}
    total = dict.fromkeys(among, 0.0)
    for weight, found in (
        (TAINTS, _inverted(_taints(pod, among))),
        (OTHERS, _scaled(_node_affinity(pod, among))),
        (OTHERS, _rescaled(_pod_affinity(pod, among, pods, namespaces))),
        (OTHERS, _mirrored(_spread(pod, among, pods))),
    ):
        for name, score in found.items():
            total[name] += weight * score
    return total


def _taints(pod: Pod, nodes: Mapping[NodeName, Node]) -> Scores:
    tolerations = [each for each in pod.spec.tolerations or () if each.effect in ("", SOFT)]
    return {
        name: sum(
            taint.effect == SOFT and not any(node_admission.tolerates(each, taint) for each in tolerations)
            for taint in node.spec.taints or ()
        )
        for name, node in nodes.items()
    }


def _node_affinity(pod: Pod, nodes: Mapping[NodeName, Node]) -> Scores:
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    terms = (affinity and affinity.preferred) or ()
    return {
        name: sum(each.weight for each in terms if node_admission.matches(each.preference, node))
        for name, node in (nodes.items() if terms else ())
    }


def _pod_affinity(
    pod: Pod, nodes: Mapping[NodeName, Node], pods: AssignedPods, namespaces: Mapping[str, Mapping[str, str]]
) -> Scores:
    affinity = pod.spec.affinity
    near, far = (affinity and affinity.pod_affinity), (affinity and affinity.pod_anti_affinity)
    weighted = [(each.weight, each.pod_affinity_term) for each in (near and near.preferred) or ()]
    weighted += [(-each.weight, each.pod_affinity_term) for each in (far and far.preferred) or ()]
    found = dict.fromkeys(nodes, 0.0) if weighted else {}
    for weight, plain in weighted:
        term = pod_affinity.term(plain, pod.metadata.namespace)
        domains: dict[str, int] = {}
        for other in pods.matching(pod_affinity.covered(term, namespaces), term.pods, but=pod.metadata.uid):
            there = nodes.get(other.node)
            if there is not None and (value := there.metadata.labels.get(term.key)) is not None:
                domains[value] = domains.get(value, 0) + 1
        for name, node in nodes.items():
            found[name] += weight * domains.get(node.metadata.labels.get(term.key, ""), 0)
    return found


def _spread(pod: Pod, nodes: Mapping[NodeName, Node], pods: AssignedPods) -> dict[NodeName, float]:
    """Higher is worse. Nodes without all topology keys are left out."""
    wanted = constraints(pod, SCHEDULE_ANYWAY)
    having = {n: node for n, node in nodes.items() if all(each.key in node.metadata.labels for each in wanted)}
    found = dict.fromkeys(having, 0.0) if wanted else {}
    for each in wanted:
        counts = {node.metadata.labels[each.key]: 0 for node in having.values()}
        for other in pods.matching((pod.metadata.namespace,), each.pods, but=pod.metadata.uid):
            there = having.get(other.node)
            if there is not None and other.pod.metadata.deletion_timestamp is None:
                counts[there.metadata.labels[each.key]] += 1
        for name, node in having.items():
            found[name] += counts[node.metadata.labels[each.key]] * log(len(counts) + 2) + each.max_skew - 1
    return found


def _scaled(found: Scores) -> Scores:
    most = max(found.values(), default=0.0)
    return {name: BEST * score / most for name, score in found.items()} if most else {}


def _inverted(found: Scores) -> Scores:
    return {name: BEST - score for name, score in _scaled(found).items()}


def _rescaled(found: Scores) -> Scores:
    least, most = min(found.values(), default=0.0), max(found.values(), default=0.0)
    return {name: BEST * (score - least) / (most - least) for name, score in found.items()} if most > least else {}


def _mirrored(found: Scores) -> Scores:
    least, most = min(found.values(), default=0.0), max(found.values(), default=0.0)
    return {name: BEST * (most + least - score) / most if most else BEST for name, score in found.items()}
