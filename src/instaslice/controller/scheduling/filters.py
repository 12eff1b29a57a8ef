"""Whether kube-scheduler would bind a pod to a node, as far as this depends on more than the node.

Knows all objects and the pods that have slices reserved; called by the dispatcher before slices are created. What can
be computed once per pod is cached until something changes; a pod that uses none of this costs nothing.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from instaslice.controller.scheduling import pod_affinity, preferences, topology_spread, volumes
from instaslice.controller.scheduling.assigned_pods import AssignedPods
from instaslice.controller.scheduling.disks import DisksInUse, disks
from instaslice.controller.scheduling.host_ports import PortsInUse, host_ports
from instaslice.controller.scheduling.pod_affinity import AffinityVerdict, AntiAffinityTerms
from instaslice.controller.scheduling.refused_nodes import RefusedNodes, owner
from instaslice.controller.scheduling.storage import Storage, claims
from instaslice.controller.scheduling.topology_spread import SpreadDomains, SpreadVerdict
from instaslice.controller.scheduling.volumes import ClaimsInUse, VolumeVerdict
from instaslice.kube.core import Namespace, Node, Pod
from instaslice.kube.meta import key_of
from instaslice.kube.storage import PersistentVolumeClaim, StorageObject
from instaslice.placement import NodeName


class Check(Protocol):
    """What one filter has computed for a pod."""

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        """Why the pod would not be bound there. `emptied`: as if no other pod were on that node."""


MOST_LABEL_KEYS: Final = 64
"""Label keys of anti-affinity by which pods are distinguished; above this, all labels count."""
POD_FILTERS: Final = frozenset((AffinityVerdict, SpreadVerdict))
"""Filters that a new or changed pod can make pass."""


@dataclass(slots=True)
class Verdict:
    """For one pod and any node. Valid until something changes."""

    checks: tuple[Check, ...]
    nodes: Mapping[NodeName, Node]
    refused_by: set[type]
    """Collects the filters that refuse anything."""
    rules_out_all: str | None = None
    """A reason that rules out all nodes, for example a claim that does not exist."""

    def __call__(self, name: NodeName, *, emptied: bool = False) -> str | None:
        """Why the scheduler would not bind the pod there; None where it would."""
        node = self.nodes.get(name)
        for check in self.checks if node is not None else ():
            assert node is not None, "looked up above"
            reason = check.refusal(node, emptied=emptied)
            if reason is not None:
                self.refused_by.add(type(check))
                return reason
        return None


class Filters:
    """The caller updates `nodes` and then calls `node_changed`.

    The methods that report a change return whether a pod that was refused before may pass now.
    """

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self.refused = RefusedNodes()
        self.held_by_claims: set[str] = set()
        """Uids of the pods that a claim has ruled out on all nodes since `storage_changed` last returned True."""
        self.volumes_known = True
        """False: claims are ignored."""
        self._nodes = nodes
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._storage = Storage()
        self._pods = AssignedPods()
        self._anti_affinity = AntiAffinityTerms()
        self._ports = PortsInUse()
        self._disks = DisksInUse()
        self._claims = ClaimsInUse(self._storage)
        self._domains = SpreadDomains(nodes)
        self._verdicts: dict[str, dict[NodeName | None, Verdict]] = {}
        """By the pod's uid, and the node that it is pinned to."""
        self._refused_by: set[type] = set()
        self._label_keys: set[str] = set()
        self._avoided: set[str] = set()
        """Nodes with a taint of effect PreferNoSchedule."""
        self._free = Verdict((), nodes, self._refused_by)

    def for_pod(self, pod: Pod, pinned: NodeName | None = None) -> Verdict:
        """Cached until something changes. The pod itself may already be assigned, which does not count against it.
        `pinned` is the one node that it may go to, once that is chosen."""
        known = self._verdicts.setdefault(pod.metadata.uid, {})
        found = known.get(pinned)
        if found is None:
            found = known[pinned] = self._pre_filter(pod, pinned)
        if found.rules_out_all is not None:
            self.held_by_claims.add(pod.metadata.uid)
            self._refused_by.add(VolumeVerdict)
        return found

    def preferences(self, pod: Pod, names: Iterable[NodeName]) -> Callable[[NodeName], float] | None:
        """How much the pod prefers each of these nodes; None without a preference."""
        prefers = bool(self._avoided) or preferences.preferred(pod)
        nodes = [self._nodes[name] for name in names if name in self._nodes] if prefers else []
        return preferences.scores(pod, nodes, self._pods, self._namespaces).__getitem__ if nodes else None

    def shape(self, pod: Pod) -> Hashable:
        """Pods of one shape always get the same verdict. It has the labels that any pod's anti-affinity selects by:
        `tells_apart` says when there are more of them."""
        meta, spread = pod.metadata, topology_spread.constraints(pod)
        keys = self._label_keys & meta.labels.keys() if len(self._label_keys) <= MOST_LABEL_KEYS else meta.labels.keys()
        labels = tuple((key, meta.labels[key]) for key in sorted(keys))
        namespace = self._namespaces.get(meta.namespace, {})
        return (
            meta.namespace,
            labels,
            tuple((term, term.matches(pod, namespace)) for term in pod_affinity.affinity(pod)),
            pod_affinity.anti_affinity(pod),
            tuple((each, each.pods.matches(meta.labels)) for each in spread),
            host_ports(pod),
            claims(pod),
            msgspec.json.encode(disks(pod)),
            owner(pod) if self.refused.has(pod) else "",
        )

    def tells_apart(self, pod: Pod) -> Callable[[Pod], bool] | None:
        """Which pods have another shape from now on: those with labels that this pod's anti-affinity is the first to
        select by. None if there are no such labels. Above MOST_LABEL_KEYS all labels count, so that the number of
        changes is bounded whatever pods are created."""
        if len(self._label_keys) > MOST_LABEL_KEYS:
            return None
        terms = pod_affinity.anti_affinity(pod)
        new = {each.key for term in terms for each in term.pods.requirements} - self._label_keys
        if not new:
            return None
        self._label_keys |= new
        if len(self._label_keys) > MOST_LABEL_KEYS:
            return lambda other: bool(other.metadata.labels)
        return lambda other: not new.isdisjoint(other.metadata.labels)

    # What changes -----------------------------------------------------------------------------------------------------

    def assign(self, pod: Pod, node: NodeName) -> bool:
        """The pod is bound to the node, or has slices reserved there. Safe to repeat."""
        before = self._pods.get(pod.metadata.uid)
        if before is not None and before.node == node and _same(before.pod, pod):
            return False
        self._remove(pod.metadata.uid)
        self._verdicts.clear()
        self._pods.assign(pod, node)
        self._anti_affinity.add(pod, node)
        self._ports.add(pod, node)
        self._disks.add(pod, node)
        self._claims.add(pod, node, self._nodes.get(node))
        reopened = bool(pod.spec.node_name) and self.refused.bound(pod, node)
        return self._may_help(POD_FILTERS) or reopened

    def refresh(self, pod: Pod) -> bool:
        """A pod has changed. One that is not assigned does not affect others."""
        self._verdicts.pop(pod.metadata.uid, None)
        known = self._pods.get(pod.metadata.uid)
        return known is not None and self.assign(pod, known.node)

    def remove(self, uid: str) -> bool:
        """The pod has ended, is gone, or no longer has a node."""
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
            self._claims.claim_changed(key_of(thing), self._nodes)
        return self._may_help(frozenset((VolumeVerdict,)))

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> bool:
        thing = new or old
        assert thing is not None, "a change is of an object"
        name, labels = thing.metadata.name, new.metadata.labels if new is not None else None
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        self._verdicts.clear()
        return self._may_help(POD_FILTERS)

    def not_bound(self, pod: Pod, node: NodeName) -> float:
        """The scheduler did not bind the pod there. Returns the seconds after which to call `retry`."""
        self._verdicts.clear()
        return self.refused.add(pod, node)

    def retry(self, name: str, node: NodeName) -> None:
        """Pods of this owner may be sent there again."""
        self._verdicts.clear()
        self.refused.retry(name, node)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _pre_filter(self, pod: Pod, pinned: NodeName | None) -> Verdict:
        volume_verdict = volumes.pre_filter(pod, self._storage, self._claims) if self.volumes_known else None
        found = (
            volume_verdict,
            self._ports.pre_filter(pod),
            self._disks.pre_filter(pod),
            pod_affinity.pre_filter(pod, self._pods, self._anti_affinity, self._nodes, self._namespaces),
            topology_spread.pre_filter(pod, self._pods, self._domains, pinned),
            # A pinned pod was sent there by us.
            self.refused.pre_filter(pod) if pinned is None else None,
        )
        checks = tuple(check for check in found if check is not None)
        if not checks:
            return self._free
        return Verdict(
            checks, self._nodes, self._refused_by, volume_verdict.rules_out_all if volume_verdict is not None else None
        )

    def _remove(self, uid: str) -> bool:
        gone = self._pods.remove(uid)
        if gone is None:
            return False
        self._anti_affinity.remove(gone.pod)
        self._ports.remove(gone.pod, gone.node)
        self._disks.remove(gone.pod, gone.node)
        self._claims.remove(gone.pod, gone.node)
        return True

    def _may_help(self, kinds: frozenset[type]) -> bool:
        """Whether one of these filters has refused something since the last call for it."""
        hit = bool(self._refused_by & kinds)
        self._refused_by -= kinds
        return hit


def _same(old: Pod, new: Pod) -> bool:
    """Whether the change of a pod makes no difference here."""
    return (
        old.spec.node_name == new.spec.node_name
        and old.metadata.labels == new.metadata.labels
        and (old.metadata.deletion_timestamp is None) == (new.metadata.deletion_timestamp is None)
    )
