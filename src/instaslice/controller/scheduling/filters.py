"""Whether kube-scheduler would bind a pod to a node, by all that does not depend on the node alone.

Told what is there, and which pods were promised a node; asked by the dispatcher before slices are cut. What can be
found out once for a pod is, and kept until something changes; for a pod that uses none of this there is nothing.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from instaslice.controller.scheduling import pod_affinity, preferences, topology_spread, volumes
from instaslice.controller.scheduling.assigned_pods import AssignedPods
from instaslice.controller.scheduling.disks import DisksInUse, disks
from instaslice.controller.scheduling.host_ports import PortsInUse, host_ports
from instaslice.controller.scheduling.pod_affinity import AffinityVerdict, Objections
from instaslice.controller.scheduling.refused_nodes import RefusedNodes, owner
from instaslice.controller.scheduling.storage import Storage
from instaslice.controller.scheduling.topology_spread import Domains, SpreadVerdict
from instaslice.controller.scheduling.volumes import ClaimsInUse, VolumeVerdict
from instaslice.kube.core import Namespace, Node, Pod
from instaslice.kube.meta import key_of
from instaslice.kube.storage import PersistentVolumeClaim, StorageObject
from instaslice.placement import NodeName


class Check(Protocol):
    """What one filter found out about a pod."""

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        """Why the pod would not be bound there. `emptied`: if no other pod were on that node."""


MOST_TELLING: Final = 64
"""Label keys that anti-affinity looks at, by which pods are told apart one by one."""
OF_PODS: Final = frozenset((AffinityVerdict, SpreadVerdict))
"""What another pod that comes or changes can make right."""


@dataclass(slots=True)
class Verdict:
    """About one pod and any node. Good until something changes."""

    checks: tuple[Check, ...]
    nodes: Mapping[NodeName, Node]
    refused_by: set[type]
    """Where the filters that refuse anything are noted."""
    everywhere: str | None = None
    """A reason that concerns no node in particular: a claim that does not exist."""

    def __call__(self, name: NodeName, *, emptied: bool = False) -> str | None:
        """Why the scheduler would not bind the pod there; None where it would."""
        node = self.nodes.get(name)
        for check in self.checks if node is not None else ():
            assert node is not None, "looked up above"
            told = check.refusal(node, emptied=emptied)
            if told is not None:
                self.refused_by.add(type(check))
                return told
        return None


class Filters:
    """`nodes` is kept by the caller, who says so by `node_changed`.

    What changes is told by methods that answer whether a pod that was refused before may be admitted now.
    """

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self.refused = RefusedNodes()
        self.held_by_claims: set[str] = set()
        """Pods, by uid, that were refused everywhere for a claim since `storage_changed` said yes."""
        self.volumes_known = True
        """False: claims are not looked at."""
        self._nodes = nodes
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._storage = Storage()
        self._pods = AssignedPods()
        self._objections = Objections()
        self._ports = PortsInUse()
        self._disks = DisksInUse()
        self._claims = ClaimsInUse(self._storage)
        self._domains = Domains(nodes)
        self._verdicts: dict[str, dict[NodeName | None, Verdict]] = {}
        """By the pod's uid, and the node that it is pinned to."""
        self._refused_by: set[type] = set()
        self._telling: set[str] = set()
        self._avoided: set[str] = set()
        """Nodes with a taint that asks to stay away."""
        self._free = Verdict((), nodes, self._refused_by)

    def for_pod(self, pod: Pod, pinned: NodeName | None = None) -> Verdict:
        """Cheap where nothing has changed since it was asked for this pod. The pod may be assigned itself, which does
        not count against it. `pinned` is the one node that it may go to, once it was told."""
        known = self._verdicts.setdefault(pod.metadata.uid, {})
        found = known.get(pinned)
        if found is None:
            found = known[pinned] = self._judge(pod, pinned)
        if found.everywhere is not None:
            self.held_by_claims.add(pod.metadata.uid)
            self._refused_by.add(VolumeVerdict)
        return found

    def preferences(self, pod: Pod, names: Iterable[NodeName]) -> Callable[[NodeName], float] | None:
        """How much the pod would like each of these nodes; None where all are the same to it."""
        wishes = bool(self._avoided) or preferences.preferred(pod)
        nodes = [self._nodes[name] for name in names if name in self._nodes] if wishes else []
        return preferences.scores(pod, nodes, self._pods, self._namespaces).__getitem__ if nodes else None

    def shape(self, pod: Pod) -> Hashable:
        """Pods of one shape are judged alike, always. Labels are part of it as far as any pod's anti-affinity looks at
        them: `tells_apart` says when that grows."""
        meta, spread = pod.metadata, topology_spread.constraints(pod)
        keys = self._telling & meta.labels.keys() if len(self._telling) <= MOST_TELLING else meta.labels.keys()
        telling = tuple((key, meta.labels[key]) for key in sorted(keys))
        namespace = self._namespaces.get(meta.namespace, {})
        return (
            meta.namespace,
            telling,
            tuple((term, term.matches(pod, namespace)) for term in pod_affinity.affinity(pod)),
            pod_affinity.anti_affinity(pod),
            tuple((each, each.pods.matches(meta.labels)) for each in spread),
            host_ports(pod),
            volumes.claims(pod),
            msgspec.json.encode(disks(pod)),
            owner(pod) if self.refused.has(pod) else "",
        )

    def tells_apart(self, pod: Pod) -> Callable[[Pod], bool] | None:
        """Whose shapes are others from now on: those of pods with labels that this pod's anti-affinity looks at and
        nobody's did before. None where nobody's are. After so many labels all are taken to be looked at, so that this
        comes to an end whoever makes pods."""
        if len(self._telling) > MOST_TELLING:
            return None
        terms = pod_affinity.anti_affinity(pod)
        new = {line.key for term in terms for line in term.pods.lines} - self._telling
        if not new:
            return None
        self._telling |= new
        if len(self._telling) > MOST_TELLING:
            return lambda other: bool(other.metadata.labels)
        return lambda other: not new.isdisjoint(other.metadata.labels)

    # What is there --------------------------------------------------------------------------------------------------

    def assign(self, pod: Pod, node: NodeName) -> bool:
        """The pod is bound to the node, or was promised it. Safe to repeat."""
        before = self._pods.get(pod.metadata.uid)
        if before is not None and before.node == node and _same(before.pod, pod):
            return False
        self._remove(pod.metadata.uid)
        self._verdicts.clear()
        self._pods.assign(pod, node)
        self._objections.add(pod, node)
        self._ports.add(pod, node)
        self._disks.add(pod, node)
        self._claims.add(pod, node, self._nodes.get(node))
        reopened = bool(pod.spec.node_name) and self.refused.bound(pod, node)
        return self._may_help(OF_PODS) or reopened

    def refresh(self, pod: Pod) -> bool:
        """A pod has changed, by its labels or because it ends. One that is not assigned concerns no other."""
        self._verdicts.pop(pod.metadata.uid, None)
        known = self._pods.get(pod.metadata.uid)
        return known is not None and self.assign(pod, known.node)

    def remove(self, uid: str) -> bool:
        """It has ended, is gone, or has no node any more."""
        if not self._remove(uid):
            return False
        self._verdicts.clear()
        return self._may_help(frozenset(self._refused_by))

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or (old.metadata.labels, old.spec) != (new.metadata.labels, new.spec):
            self._domains.clear()
            self._verdicts.clear()
            if old is not None:
                self._avoided.discard(old.metadata.name)
            if new is not None and preferences.avoided(new):
                self._avoided.add(new.metadata.name)

    def storage_changed(self, old: StorageObject | None, new: StorageObject | None) -> bool:
        self._storage.changed(old, new)
        self._verdicts.clear()
        if isinstance(thing := new or old, PersistentVolumeClaim):
            self._claims.changed(key_of(thing), self._nodes)
        return self._may_help(frozenset((VolumeVerdict,)))

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> bool:
        thing = new or old
        assert thing is not None, "a change has two sides"
        name, labels = thing.metadata.name, new.metadata.labels if new is not None else None
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        self._verdicts.clear()
        return self._may_help(OF_PODS)

    def not_bound(self, pod: Pod, node: NodeName) -> float:
        """The scheduler did not bind the pod there. After how many seconds to call `retry`."""
        self._verdicts.clear()
        return self.refused.add(pod, node)

    def retry(self, name: str, node: NodeName) -> None:
        """Pods of that owner may be sent there again."""
        self._verdicts.clear()
        self.refused.retry(name, node)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _judge(self, pod: Pod, pinned: NodeName | None) -> Verdict:
        claims = volumes.judge(pod, self._storage, self._claims) if self.volumes_known else None
        found = (
            claims,
            self._ports.judge(pod),
            self._disks.judge(pod),
            pod_affinity.judge(pod, self._pods, self._objections, self._nodes, self._namespaces),
            topology_spread.judge(pod, self._pods, self._domains, pinned),
            # What is pinned already was sent there by us.
            self.refused.judge(pod) if pinned is None else None,
        )
        checks = tuple(check for check in found if check is not None)
        if not checks:
            return self._free
        return Verdict(checks, self._nodes, self._refused_by, claims.everywhere if claims is not None else None)

    def _remove(self, uid: str) -> bool:
        gone = self._pods.remove(uid)
        if gone is None:
            return False
        self._objections.remove(gone.pod)
        self._ports.remove(gone.pod, gone.node)
        self._disks.remove(gone.pod, gone.node)
        self._claims.remove(gone.pod, gone.node)
        return True

    def _may_help(self, kinds: frozenset[type]) -> bool:
        """Whether one of these filters has refused something since it was last asked here."""
        hit = bool(self._refused_by & kinds)
        self._refused_by -= kinds
        return hit


def _same(old: Pod, new: Pod) -> bool:
    """Whether a pod counts as it did."""
    return (
        old.spec.node_name == new.spec.node_name
        and old.metadata.labels == new.metadata.labels
        and (old.metadata.deletion_timestamp is None) == (new.metadata.deletion_timestamp is None)
    )
