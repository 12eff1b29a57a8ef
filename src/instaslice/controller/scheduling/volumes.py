"""Whether the volumes of a pod can be used on a node. Follows VolumeBinding, VolumeZone, and VolumeRestrictions for
claims.

A bound claim ties its pods to the topology of its volume. A claim whose class waits for its first consumer is bound
when the scheduler binds the pod: to an available volume, or to one that is provisioned then. A pod with slices reserved
on a node counts as if its claims were bound, so two such pods are never sent after one volume.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from instaslice.controller.node_admission import matches_labels
from instaslice.controller.scheduling.groups import discard
from instaslice.controller.scheduling.label_selector import EVERYTHING, label_matcher
from instaslice.controller.scheduling.storage import Claim, Storage, claims
from instaslice.controller.scheduling.volume_limits import limit_refusal
from instaslice.kube.core import Node, Pod
from instaslice.kube.meta import Key
from instaslice.kube.quantities import nano
from instaslice.kube.storage import (
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyTerm,
)
from instaslice.placement import NodeName

ZONES: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of a volume that a node must share, and the other name that the node may use."""
ONE_POD: Final = "ReadWriteOncePod"


@dataclass(slots=True)
class _ExpectedBinding:
    """What the scheduler will do for a pod with slices reserved on a node: bind volumes, or have them provisioned."""

    node: NodeName
    volumes: dict[str, Key] = field(default_factory=dict)
    provisioned: list[Key] = field(default_factory=list)


class ClaimsInUse:
    """The claims that assigned pods use, where, and what remains to be bound for them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._on: dict[NodeName, dict[str, Pod]] = {}
        """Pods with claims, by uid."""
        self._users: dict[Key, dict[str, NodeName]] = {}
        self._expected: dict[str, _ExpectedBinding] = {}
        self._taken: dict[str, dict[str, Key]] = {}
        """Volume → uid of the pod → the claim it will be bound to."""
        self._selected: dict[Key, dict[str, NodeName]] = {}
        """Claim → uid → the node where its volume will be provisioned."""

    def add(self, pod: Pod, node: NodeName, there: Node | None) -> None:
        if not (used := claims(pod)):
            return
        uid = pod.metadata.uid
        self._on.setdefault(node, {})[uid] = pod
        for each in used:
            if not each.ephemeral:
                self._users.setdefault(each.key, {})[uid] = node
        if there is not None:
            # For a bound pod too: the watch of claims can be behind the watch of pods.
            verdict = pre_filter(pod, self._storage, self)
            expected = verdict.expected(there) if verdict is not None else None
            if expected is not None:
                self._expected[uid] = expected
                for volume, key in expected.volumes.items():
                    self._taken.setdefault(volume, {})[uid] = key
                for key in expected.provisioned:
                    self._selected.setdefault(key, {})[uid] = expected.node

    def remove(self, pod: Pod, node: NodeName) -> None:
        uid = pod.metadata.uid
        if self._on.get(node, {}).pop(uid, None) is None:
            return
        if not self._on[node]:
            del self._on[node]
        for each in claims(pod):
            discard(self._users, each.key, uid)
        expected = self._expected.pop(uid, None)
        if expected is not None:
            for volume in expected.volumes:
                discard(self._taken, volume, uid)
            for key in expected.provisioned:
                discard(self._selected, key, uid)

    def claim_changed(self, claim: Key, nodes: Mapping[NodeName, Node]) -> None:
        """The claim may have been bound differently than expected."""
        waiting = {
            uid for uid, each in self._expected.items() if claim in each.volumes.values() or claim in each.provisioned
        }
        for node, uid in [(node, uid) for node, there in self._on.items() for uid in waiting & there.keys()]:
            pod = self._on[node][uid]
            self.remove(pod, node)
            self.add(pod, node, nodes.get(node))

    def on(self, node: NodeName, but: str) -> Iterator[Pod]:
        return (pod for uid, pod in self._on.get(node, {}).items() if uid != but)

    def users(self, key: Key, but: str) -> set[NodeName]:
        """The nodes of other pods that use the claim."""
        return {node for uid, node in self._users.get(key, {}).items() if uid != but}

    def taken(self, volume: str, but: str) -> Key | None:
        """The claim that the volume will be bound to for another pod."""
        return next((key for uid, key in self._taken.get(volume, {}).items() if uid != but), None)

    def selected(self, key: Key, but: str) -> NodeName | None:
        """Where the claim's volume will be provisioned for another pod."""
        return next((node for uid, node in self._selected.get(key, {}).items() if uid != but), None)


@dataclass(slots=True)
class VolumeVerdict:
    """`everywhere` is a reason that rules out all nodes."""

    pod: Pod
    storage: Storage
    used: ClaimsInUse
    rules_out_all: str | None = None
    bound: list[tuple[Claim, PersistentVolume]] = field(default_factory=list)
    unbound: list[PersistentVolumeClaim] = field(default_factory=list)
    """To be bound on first use, smallest first."""
    alone: dict[Key, set[NodeName]] = field(default_factory=dict)
    """ReadWriteOncePod claims that other pods use, and where."""
    _available: dict[Key, list[tuple[bool, PersistentVolume]]] = field(default_factory=dict)

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        """Why the pod cannot use its volumes there. `emptied`: as if no other pod were on that node."""
        if self.rules_out_all is not None:
            return self.rules_out_all
        name = NodeName(node.metadata.name)
        for key, nodes in self.alone.items():
            if not (emptied and nodes == {name}):
                return f"volume claim {key.name} is {ONE_POD}, and another pod uses it"
        for claim, volume in self.bound:
            if reason := _unusable(volume, node, zones=not claim.ephemeral):
                return f"volume claim {claim.key.name}: its volume {volume.metadata.name} {reason}"
        if self.unbound:
            plan = self._bind(node)
            if isinstance(plan, str):
                return plan
        return (
            None if emptied else limit_refusal(self.pod, self.used.on(name, self.pod.metadata.uid), self.storage, name)
        )

    def expected(self, node: Node) -> _ExpectedBinding | None:
        """What the scheduler will do there for the unbound claims."""
        if self.rules_out_all is not None or not self.unbound:
            return None
        found = self._bind(node)
        return None if isinstance(found, str) else found

    def _bind(self, node: Node) -> _ExpectedBinding | str:
        """How the unbound claims would be bound there, or why not."""
        uid, name = self.pod.metadata.uid, NodeName(node.metadata.name)
        found = _ExpectedBinding(name)
        provisioned: list[PersistentVolumeClaim] = []
        for claim in self.unbound:
            key = Key(claim.metadata.namespace, claim.metadata.name)
            chosen = claim.metadata.annotations.get(SELECTED_NODE) or self.used.selected(key, uid)
            if chosen is not None:
                if chosen != name:
                    return f"volume claim {key.name}: its volume is being provisioned for node {chosen}"
                provisioned.append(claim)
            elif (volume := self._match(claim, key, node, found.volumes)) is not None:
                found.volumes[volume.metadata.name] = key
            else:
                provisioned.append(claim)
        for claim in provisioned:
            if reason := self._not_provisioned(claim, node):
                return f"volume claim {claim.metadata.name}: {reason}"
            found.provisioned.append(Key(claim.metadata.namespace, claim.metadata.name))
        return found

    def _match(
        self, claim: PersistentVolumeClaim, key: Key, node: Node, chosen: Mapping[str, Key]
    ) -> PersistentVolume | None:
        """The smallest available volume for the claim that can be used there; if one is reserved for it, only that."""
        labels = node.metadata.labels
        for reserved, volume in self._candidates(claim, key):
            if volume.metadata.name not in chosen:
                here = _reaches(volume, labels)
                if here or reserved:
                    return volume if here else None
        return None

    def _candidates(self, claim: PersistentVolumeClaim, key: Key) -> list[tuple[bool, PersistentVolume]]:
        """Volumes that satisfy the claim, on any node: those reserved for it first, then the smallest."""
        if (known := self._available.get(key)) is not None:
            return known
        wanted, modes = nano(claim.spec.resources.storage or "0"), set(claim.spec.access_modes or ())
        fits = label_matcher(claim.spec.selector) if claim.spec.selector is not None else EVERYTHING
        found: list[tuple[bool, int, PersistentVolume]] = []
        for volume in self.storage.volumes_of(claim.class_name):
            spec, size = volume.spec, nano(volume.spec.storage or "0")
            reserved = self._reserved(volume, key, claim.metadata.uid)
            if (
                reserved is not False
                and size >= wanted
                and spec.volume_mode == claim.spec.volume_mode
                and spec.volume_attributes_class_name == claim.spec.volume_attributes_class_name
                and volume.metadata.deletion_timestamp is None
                and (reserved or (volume.status.phase == "Available" and fits.matches(volume.metadata.labels)))
                and (reserved or modes <= set(spec.access_modes or ()))
            ):
                found.append((not reserved, size, volume))
        found.sort(key=lambda each: each[:2])
        made = self._available[key] = [(not rest, volume) for rest, _, volume in found]
        return made

    def _reserved(self, volume: PersistentVolume, key: Key, uid: str) -> bool | None:
        """Whether the volume is reserved for the claim; None if it is not reserved."""
        ref = volume.spec.claim_ref
        if ref is not None:
            return (ref.namespace, ref.name) == (key.namespace, key.name) and ref.uid in ("", uid)
        taken = self.used.taken(volume.metadata.name, self.pod.metadata.uid)
        return None if taken is None else taken == key

    def _not_provisioned(self, claim: PersistentVolumeClaim, node: Node) -> str | None:
        """Why no volume would be provisioned for the claim there."""
        of = self.storage.classes.get(claim.class_name)
        if of is None or of.provisioner in ("", NO_PROVISIONER):
            return f"no volume of class {claim.class_name} is free there"
        if of.allowed_topologies and not _allowed(of.allowed_topologies, node.metadata.labels):
            return f"class {claim.class_name} provisions no volumes there"
        if not self._has_capacity(claim, of, node):
            return f"driver {of.provisioner} has not enough storage left there"
        return None

    def _has_capacity(self, claim: PersistentVolumeClaim, of: StorageClass, node: Node) -> bool:
        driver, wanted = self.storage.drivers.get(of.provisioner), claim.spec.resources.storage
        if not wanted or driver is None or not driver.spec.storage_capacity:
            return True
        return any(
            nano(each.maximum_volume_size or each.capacity) >= nano(wanted)
            for each in self.storage.capacities_of(of.metadata.name)
            if (each.maximum_volume_size or each.capacity)
            and each.node_topology is not None
            and label_matcher(each.node_topology).matches(node.metadata.labels)
        )


def pre_filter(pod: Pod, storage: Storage, used: ClaimsInUse) -> VolumeVerdict | None:
    """None for a pod without claims. The pod itself may already be assigned."""
    found = claims(pod)
    if not found:
        return None
    verdict = VolumeVerdict(pod, storage, used)
    for each in found:
        claim = storage.claims.get(each.key)
        reason = _not_ready(pod, each, claim, storage)
        if reason or claim is None:
            verdict.rules_out_all = reason
            return verdict
        if claim.bound:
            verdict.bound.append((each, storage.volumes[claim.spec.volume_name]))
        else:
            verdict.unbound.append(claim)
        users = used.users(each.key, pod.metadata.uid)
        if users and not each.ephemeral and ONE_POD in (claim.spec.access_modes or ()):
            verdict.alone[each.key] = users
    verdict.unbound.sort(key=lambda claim: nano(claim.spec.resources.storage or "0"))
    return verdict


def _not_ready(pod: Pod, used: Claim, claim: PersistentVolumeClaim | None, storage: Storage) -> str | None:
    """Why no node can use the claim yet."""
    name = f"PersistentVolumeClaim {used.key}"
    if claim is None:
        if used.ephemeral:
            return f"waits for {name}, which Kubernetes has to create for volume {used.volume}"
        return f"waits for {name}, which does not exist"
    meta, volume = claim.metadata, claim.spec.volume_name
    if claim.status.phase == "Lost":
        return f"{name} has lost its volume {volume}"
    if meta.deletion_timestamp is not None:
        return f"{name} is being deleted"
    if used.ephemeral and not any(each.controller and each.uid == pod.metadata.uid for each in meta.owner_references):
        return f"{name}, which volume {used.volume} needs, belongs to another owner"
    if claim.bound:
        return None if volume in storage.volumes else f"{name}: its volume {volume} does not exist"
    if volume:
        return f"waits for {name} to be bound to its volume {volume}"
    of = storage.classes.get(claim.class_name)
    if of is not None and of.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return None
    if of is None:
        missing = f"class {claim.class_name} does not exist" if claim.class_name else "it names no class"
        return f"waits for {name} to be bound ({missing})"
    return f"waits for {name} to be bound"


def _unusable(volume: PersistentVolume, node: Node, *, zones: bool) -> str | None:
    """Why a volume cannot be used on a node. The scheduler ignores `zones` for ephemeral volumes."""
    labels = node.metadata.labels
    if not _reaches(volume, labels):
        return "is elsewhere"
    if zones and any(label in labels for label in ZONES):
        for label, other in ZONES.items():
            zone = volume.metadata.labels.get(label)
            allowed = [each.strip() for each in (zone or "").split("__")]
            if zone is not None and all(allowed) and labels.get(label, labels.get(other)) not in allowed:
                return f"is in {zone}"
    return None


def _reaches(volume: PersistentVolume, labels: Mapping[str, str]) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return matches_labels(affinity.required.node_selector_terms or [], labels)


def _allowed(terms: Iterable[TopologyTerm], labels: Mapping[str, str]) -> bool:
    return any(
        each.match_label_expressions
        and all(labels.get(term.key) in (term.values or ()) for term in each.match_label_expressions)
        for each in terms
    )
