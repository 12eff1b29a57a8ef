"""Required affinity and anti-affinity between pods. Follows InterPodAffinity.

A pod is checked against the assigned pods (`assigned_pods`) and against their terms: anti-affinity holds in both
directions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from instaslice.controller.scheduling.assigned_pods import AssignedPod, AssignedPods
from instaslice.controller.scheduling.groups import discard
from instaslice.controller.scheduling.label_selector import EVERYTHING, NOTHING, LabelMatcher, label_matcher
from instaslice.kube.core import Node, Pod, PodAffinity, PodAffinityTerm
from instaslice.placement import NodeName

Domain = tuple[str, str]
"""A topology key and its value."""
HOSTNAME: Final = "kubernetes.io/hostname"


class AffinityTerm(NamedTuple):
    """Pods of these namespaces that `pods` matches, in a domain of the topology key."""

    key: str
    pods: LabelMatcher
    namespaces: frozenset[str]
    namespace_selector: LabelMatcher
    """Further namespaces, by their labels."""

    @property
    def labels(self) -> tuple[Domain | None, ...]:
        """Every pod that it matches has exactly one of these labels; None if pods without any can match."""
        for each in self.pods.requirements:
            if each.one_of is not None:
                return tuple((each.key, value) for value in sorted(each.one_of))
        return (None,)

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace in self.namespaces or self.namespace_selector.matches(labels)

    def matches(self, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
        return self.covers(pod.metadata.namespace, namespace_labels) and self.pods.matches(pod.metadata.labels)


def term(found: PodAffinityTerm, namespace: str) -> AffinityTerm:
    """A term of a pod of this namespace, compiled."""
    own = not found.namespaces and found.namespace_selector is None
    return AffinityTerm(
        found.topology_key,
        label_matcher(found.label_selector),
        frozenset((namespace,) if own else found.namespaces or ()),
        label_matcher(found.namespace_selector),
    )


def required(affinity: PodAffinity | None, namespace: str) -> tuple[AffinityTerm, ...]:
    """The required terms of a pod of this namespace."""
    return tuple(term(each, namespace) for each in (affinity and affinity.required) or ())


def affinity(pod: Pod) -> tuple[AffinityTerm, ...]:
    found = pod.spec.affinity
    return required(found.pod_affinity, pod.metadata.namespace) if found and found.pod_affinity else ()


def anti_affinity(pod: Pod) -> tuple[AffinityTerm, ...]:
    found = pod.spec.affinity
    return required(found.pod_anti_affinity, pod.metadata.namespace) if found and found.pod_anti_affinity else ()


class AntiAffinityTerms:
    """The required anti-affinity of assigned pods, each distinct term once: a thousand replicas cost one check."""

    def __init__(self) -> None:
        self._holders: dict[AffinityTerm, dict[str, NodeName]] = {}
        self._by_label: dict[tuple[str, str] | None, dict[AffinityTerm, None]] = {}
        """Terms by the labels that the pods they match have; None for terms that match pods without any."""

    def __bool__(self) -> bool:
        return bool(self._holders)

    def add(self, pod: Pod, node: NodeName) -> None:
        for term in anti_affinity(pod):
            if term not in self._holders:
                for label in term.labels:
                    self._by_label.setdefault(label, {})[term] = None
            self._holders.setdefault(term, {})[pod.metadata.uid] = node

    def remove(self, pod: Pod) -> None:
        for term in anti_affinity(pod):
            discard(self._holders, term, pod.metadata.uid)
            for label in term.labels if term not in self._holders else ():
                discard(self._by_label, label, term)

    def against(
        self, pod: Pod, namespace_labels: Mapping[str, str]
    ) -> Iterator[tuple[AffinityTerm, Mapping[str, NodeName]]]:
        """The terms that match this pod, each with its holders: uid → node."""
        for label in (None, *pod.metadata.labels.items()):
            for term in self._by_label.get(label, ()):
                if term.matches(pod, namespace_labels):
                    yield term, self._holders[term]


@dataclass(slots=True)
class AffinityVerdict:
    """Computed once per pod, so that a node costs a few lookups."""

    affinity_terms: tuple[AffinityTerm, ...] = ()
    occupied: dict[Domain, None] = field(default_factory=dict)
    """Domains with a pod that all `affinity_terms` match."""
    first: bool = False
    """The pod matches its own affinity: the first of a series may go anywhere."""
    avoided: dict[Domain, tuple[str, set[NodeName]]] = field(default_factory=dict)
    """Domains that it must avoid: why, and the nodes of the pods concerned."""

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        """Why the pod would not be bound there. `emptied`: as if no other pod were on that node."""
        labels = node.metadata.labels
        for term in self.affinity_terms:
            if term.key not in labels:
                return f"pod affinity: the node has no label {term.key}"
        missing = [term for term in self.affinity_terms if (term.key, labels[term.key]) not in self.occupied]
        if missing and not (self.first and not self.occupied):
            return f"pod affinity: no pods {missing[0].pods}{_where(missing[0].key)}"
        if self.avoided:
            for domain in labels.items():
                found = self.avoided.get(domain)
                if found is not None and not (emptied and found[1] == {node.metadata.name}):
                    return found[0]
        return None


def pre_filter(
    pod: Pod,
    pods: AssignedPods,
    anti_affinity_terms: AntiAffinityTerms,
    nodes: Mapping[NodeName, Node],
    namespaces: Mapping[str, Mapping[str, str]],
) -> AffinityVerdict | None:
    """None if no node is ruled out. `namespaces`: name → labels, of all. The pod itself may already be assigned."""
    affinity_terms, avoided = affinity(pod), anti_affinity(pod)
    if not (affinity_terms or avoided or anti_affinity_terms):
        return None
    found = AffinityVerdict(affinity_terms)
    uid, own_labels = pod.metadata.uid, namespaces.get(pod.metadata.namespace, {})
    if affinity_terms:
        first = affinity_terms[0]
        for other in pods.matching(covered(first, namespaces), first.pods, but=uid):
            labels = namespaces.get(other.pod.metadata.namespace, {})
            if all(term.matches(other.pod, labels) for term in affinity_terms[1:]):
                found.occupied |= dict.fromkeys(_domains(affinity_terms, other, nodes))
        found.first = all(term.matches(pod, own_labels) for term in affinity_terms)
    for term in avoided:
        for other in pods.matching(covered(term, namespaces), term.pods, but=uid):
            for domain in _domains((term,), other, nodes):
                why = f"pod anti-affinity with pods {term.pods} already there{_where(term.key)}"
                found.avoided.setdefault(domain, (why, set()))[1].add(other.node)
    for term, holders in anti_affinity_terms.against(pod, own_labels):
        for holder, name in holders.items():
            node = nodes.get(name)
            if holder != uid and node is not None and (value := node.metadata.labels.get(term.key)) is not None:
                why = f"pod anti-affinity of a pod already there{_where(term.key)} with pods {term.pods}"
                found.avoided.setdefault((term.key, value), (why, set()))[1].add(name)
    return found if affinity_terms or found.avoided else None


def covered(term: AffinityTerm, namespaces: Mapping[str, Mapping[str, str]]) -> set[str] | None:
    """The namespaces of a term; None for all."""
    if term.namespace_selector == EVERYTHING:
        return None
    if term.namespace_selector == NOTHING:
        return set(term.namespaces)
    return {*term.namespaces, *(name for name, labels in namespaces.items() if term.namespace_selector.matches(labels))}


def _domains(terms: tuple[AffinityTerm, ...], other: AssignedPod, nodes: Mapping[NodeName, Node]) -> Iterator[Domain]:
    node = nodes.get(other.node)
    labels = node.metadata.labels if node is not None else {}
    return ((term.key, labels[term.key]) for term in terms if term.key in labels)


def _where(key: str) -> str:
    return "" if key == HOSTNAME else f" (same {key})"
