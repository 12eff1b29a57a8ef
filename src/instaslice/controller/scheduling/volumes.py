"""Whether a pod's volumes can be used on a node. Follows VolumeBinding, VolumeZone and NodeVolumeLimits, and of
VolumeRestrictions what concerns claims.

A claim that is bound ties its pods to where its volume is. One whose class waits for a first consumer is bound when the
scheduler binds the pod: to a volume that lies ready, or to one that is made then. Pods that we have promised a node,
and whose claims are still to be bound, are counted as if they were: two of them are not sent after one volume.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from instaslice.controller.node_admission import matches_labels
from instaslice.controller.scheduling.label_selector import EVERYTHING, selector
from instaslice.controller.scheduling.storage import Storage
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
"""Labels of a volume that a node must share, and what else the node may call them."""
ONE_POD: Final = "ReadWriteOncePod"
IN_TREE: Final = "kubernetes.io/"
"""What the names of provisioners start with that are no CSI drivers."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Attached = tuple[str, str]
"""A driver, and its name for a volume."""


class Claim(NamedTuple):
    """A claim that a pod uses: by its name, or made by Kubernetes for the pod alone."""

    key: Key
    volume: str
    ephemeral: bool


def claims(pod: Pod) -> tuple[Claim, ...]:
    meta, found = pod.metadata, []
    for each in pod.spec.volumes or ():
        if each.persistent_volume_claim is not None:
            found.append(Claim(Key(meta.namespace, each.persistent_volume_claim.claim_name), each.name, False))
        elif each.ephemeral is not None:
            found.append(Claim(Key(meta.namespace, f"{meta.name}-{each.name}"), each.name, True))
    return tuple(found)


@dataclass(slots=True)
class _Expected:
    """What the scheduler will do for a pod that was promised a node: volumes for claims, or have some made there."""

    node: NodeName
    volumes: dict[str, Key] = field(default_factory=dict)
    made: list[Key] = field(default_factory=list)


class ClaimsInUse:
    """Which claims assigned pods use, where, and what is still to be bound for them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._on: dict[NodeName, dict[str, Pod]] = {}
        """Pods with claims, by uid."""
        self._users: dict[Key, dict[str, NodeName]] = {}
        self._expected: dict[str, _Expected] = {}
        self._taken: dict[str, dict[str, Key]] = {}
        """Volume → uid of the pod → the claim it will be bound to."""
        self._selected: dict[Key, dict[str, NodeName]] = {}
        """Claim → uid → the node where its volume will be made."""

    def add(self, pod: Pod, node: NodeName, there: Node | None) -> None:
        if not (used := claims(pod)):
            return
        uid = pod.metadata.uid
        self._on.setdefault(node, {})[uid] = pod
        for each in used:
            if not each.ephemeral:
                self._users.setdefault(each.key, {})[uid] = node
        if there is not None:
            # Of a bound pod too: that its claims were bound before may reach us after it.
            verdict = judge(pod, self._storage, self)
            expected = verdict.expected(there) if verdict is not None else None
            if expected is not None:
                self._expected[uid] = expected
                for volume, key in expected.volumes.items():
                    self._taken.setdefault(volume, {})[uid] = key
                for key in expected.made:
                    self._selected.setdefault(key, {})[uid] = expected.node

    def remove(self, pod: Pod, node: NodeName) -> None:
        uid = pod.metadata.uid
        if self._on.get(node, {}).pop(uid, None) is None:
            return
        if not self._on[node]:
            del self._on[node]
        for each in claims(pod):
            _forget(self._users, each.key, uid)
        expected = self._expected.pop(uid, None)
        if expected is not None:
            for volume in expected.volumes:
                _forget(self._taken, volume, uid)
            for key in expected.made:
                _forget(self._selected, key, uid)

    def changed(self, claim: Key, nodes: Mapping[NodeName, Node]) -> None:
        """What was expected of a claim may have come otherwise."""
        waiting = {uid for uid, each in self._expected.items() if claim in each.volumes.values() or claim in each.made}
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
        """Where the claim's volume will be made for another pod."""
        return next((node for uid, node in self._selected.get(key, {}).items() if uid != but), None)


@dataclass(slots=True)
class VolumeVerdict:
    """`everywhere` is a reason against all nodes."""

    pod: Pod
    storage: Storage
    used: ClaimsInUse
    everywhere: str | None = None
    bound: list[tuple[Claim, PersistentVolume]] = field(default_factory=list)
    unbound: list[PersistentVolumeClaim] = field(default_factory=list)
    """To be bound on first use, small ones first."""
    alone: dict[Key, set[NodeName]] = field(default_factory=dict)
    """Claims for one pod only that others use, and where."""
    _lying_ready: dict[Key, list[tuple[bool, PersistentVolume]]] = field(default_factory=dict)

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        """Why not there. `emptied`: if no other pod were on that node."""
        if self.everywhere is not None:
            return self.everywhere
        name = NodeName(node.metadata.name)
        for key, nodes in self.alone.items():
            if not (emptied and nodes == {name}):
                return f"volume claim {key.name} is {ONE_POD}, and another pod uses it"
        for claim, volume in self.bound:
            if told := _not_here(volume, node, zones=not claim.ephemeral):
                return f"volume claim {claim.key.name}: its volume {volume.metadata.name} {told}"
        if self.unbound:
            plan = self._bind(node)
            if isinstance(plan, str):
                return plan
        return None if emptied else self._limits(node, name)

    def expected(self, node: Node) -> _Expected | None:
        """What the scheduler will do there for what is to be bound."""
        if self.everywhere is not None or not self.unbound:
            return None
        found = self._bind(node)
        return None if isinstance(found, str) else found

    def _bind(self, node: Node) -> _Expected | str:
        """How the claims that wait would be bound there, or why they would not."""
        uid, name = self.pod.metadata.uid, NodeName(node.metadata.name)
        found = _Expected(name)
        made: list[PersistentVolumeClaim] = []
        for claim in self.unbound:
            key = Key(claim.metadata.namespace, claim.metadata.name)
            chosen = claim.metadata.annotations.get(SELECTED_NODE) or self.used.selected(key, uid)
            if chosen is not None:
                if chosen != name:
                    return f"volume claim {key.name}: its volume is being made for node {chosen}"
                made.append(claim)
            elif (volume := self._ready(claim, key, node, found.volumes)) is not None:
                found.volumes[volume.metadata.name] = key
            else:
                made.append(claim)
        for claim in made:
            if told := self._not_made(claim, node):
                return f"volume claim {claim.metadata.name}: {told}"
            found.made.append(Key(claim.metadata.namespace, claim.metadata.name))
        return found

    def _ready(
        self, claim: PersistentVolumeClaim, key: Key, node: Node, chosen: Mapping[str, Key]
    ) -> PersistentVolume | None:
        """The smallest volume that lies ready for the claim and can be used there; the one that is reserved for it,
        if there is one, and no other."""
        labels = node.metadata.labels
        for reserved, volume in self._candidates(claim, key):
            if volume.metadata.name not in chosen:
                here = _reaches(volume, labels)
                if here or reserved:
                    return volume if here else None
        return None

    def _candidates(self, claim: PersistentVolumeClaim, key: Key) -> list[tuple[bool, PersistentVolume]]:
        """Volumes that would do for the claim, wherever they are, those reserved for it first, then small ones."""
        if (known := self._lying_ready.get(key)) is not None:
            return known
        wanted, modes = nano(claim.spec.resources.storage or "0"), set(claim.spec.access_modes or ())
        fits = selector(claim.spec.selector) if claim.spec.selector is not None else EVERYTHING
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
        made = self._lying_ready[key] = [(not rest, volume) for rest, _, volume in found]
        return made

    def _reserved(self, volume: PersistentVolume, key: Key, uid: str) -> bool | None:
        """Whether the volume is reserved for the claim; None where it is for no claim."""
        ref = volume.spec.claim_ref
        if ref is not None:
            return (ref.namespace, ref.name) == (key.namespace, key.name) and ref.uid in ("", uid)
        taken = self.used.taken(volume.metadata.name, self.pod.metadata.uid)
        return None if taken is None else taken == key

    def _not_made(self, claim: PersistentVolumeClaim, node: Node) -> str | None:
        """Why no volume would be made for the claim there."""
        of = self.storage.classes.get(claim.class_name)
        if of is None or of.provisioner in ("", NO_PROVISIONER):
            return f"no volume of class {claim.class_name} is free there"
        if of.allowed_topologies and not _allowed(of.allowed_topologies, node.metadata.labels):
            return f"class {claim.class_name} makes no volumes there"
        if not self._room(claim, of, node):
            return f"driver {of.provisioner} has not enough storage left there"
        return None

    def _room(self, claim: PersistentVolumeClaim, of: StorageClass, node: Node) -> bool:
        driver, wanted = self.storage.drivers.get(of.provisioner), claim.spec.resources.storage
        if not wanted or driver is None or not driver.spec.storage_capacity:
            return True
        return any(
            nano(each.maximum_volume_size or each.capacity) >= nano(wanted)
            for each in self.storage.capacities_of(of.metadata.name)
            if (each.maximum_volume_size or each.capacity)
            and each.node_topology is not None
            and selector(each.node_topology).matches(node.metadata.labels)
        )

    def _limits(self, node: Node, name: NodeName) -> str | None:
        """Whether drivers may attach so many volumes more to the node."""
        new = self._attachable(self.pod)
        if not new:
            return None
        there = self.storage.nodes.get(name)
        drivers = (there.spec.drivers if there is not None else None) or ()
        installed = {each.name for each in drivers}
        for driver, _ in new:
            known = self.storage.drivers.get(driver)
            if known is not None and known.spec.prevent_pod_scheduling_if_missing and driver not in installed:
                return f"driver {driver} is not installed there"
        limits = {
            each.name: each.allocatable.count
            for each in drivers
            if each.allocatable is not None and each.allocatable.count is not None
        }
        if not any(driver in limits for driver, _ in new):
            return None
        attached: set[Attached] = set()
        for pod in self.used.on(name, self.pod.metadata.uid):
            attached |= self._attachable(pod)
        new -= attached
        attached |= set(self._attachments(name))
        for driver, most in limits.items():
            more = sum(each[0] == driver for each in new)
            if more and more + sum(each[0] == driver for each in attached) > most:
                return f"driver {driver} may attach no more than {most} volumes there"
        return None

    def _attachable(self, pod: Pod) -> set[Attached]:
        found: set[Attached] = set()
        for each in claims(pod):
            claim = self.storage.claims.get(each.key)
            if claim is not None and (at := self._driver(claim, each.key)) is not None:
                found.add(at)
        return found

    def _driver(self, claim: PersistentVolumeClaim, key: Key) -> Attached | None:
        volume = self.storage.volumes.get(claim.spec.volume_name)
        if volume is not None:
            csi = volume.spec.csi
            return (csi.driver, csi.volume_handle) if csi is not None else None
        of = self.storage.classes.get(claim.class_name)
        # A volume that does not exist yet has no name: the claim's serves.
        return (of.provisioner, f"/{key}") if of is not None and not of.provisioner.startswith(IN_TREE) else None

    def _attachments(self, name: NodeName) -> Iterator[Attached]:
        for each in self.storage.attached_to(name):
            volume = self.storage.volumes.get(each.spec.source.persistent_volume_name)
            if each.spec.attacher and volume is not None and volume.spec.csi is not None:
                yield each.spec.attacher, volume.spec.csi.volume_handle


def judge(pod: Pod, storage: Storage, used: ClaimsInUse) -> VolumeVerdict | None:
    """None for a pod without claims. The pod itself may be assigned already."""
    found = claims(pod)
    if not found:
        return None
    verdict = VolumeVerdict(pod, storage, used)
    for each in found:
        claim = storage.claims.get(each.key)
        told = _not_ready(pod, each, claim, storage)
        if told or claim is None:
            verdict.everywhere = told
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
            return f"waits for {name}, which Kubernetes is to make for volume {used.volume}"
        return f"waits for {name}, which does not exist"
    meta, volume = claim.metadata, claim.spec.volume_name
    if claim.status.phase == "Lost":
        return f"{name} has lost its volume {volume}"
    if meta.deletion_timestamp is not None:
        return f"{name} is being deleted"
    if used.ephemeral and not any(each.controller and each.uid == pod.metadata.uid for each in meta.owner_references):
        return f"{name}, which volume {used.volume} needs, belongs to somebody else"
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


def _not_here(volume: PersistentVolume, node: Node, *, zones: bool) -> str | None:
    """Why a volume cannot be used on a node. The scheduler looks at the `zones` of claims that have a name."""
    labels = node.metadata.labels
    if not _reaches(volume, labels):
        return "is elsewhere"
    if zones and any(label in labels for label in ZONES):
        for label, other in ZONES.items():
            told = volume.metadata.labels.get(label)
            among = [zone.strip() for zone in (told or "").split("__")]
            if told is not None and all(among) and labels.get(label, labels.get(other)) not in among:
                return f"is in {told}"
    return None


def _reaches(volume: PersistentVolume, labels: Mapping[str, str]) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return matches_labels(affinity.required.node_selector_terms or [], labels)


def _allowed(terms: Iterable[TopologyTerm], labels: Mapping[str, str]) -> bool:
    return any(
        each.match_label_expressions
        and all(labels.get(line.key) in (line.values or ()) for line in each.match_label_expressions)
        for each in terms
    )


def _forget(found: MutableMapping[K, dict[str, V]], name: K, uid: str) -> None:
    users = found.get(name)
    if users is not None and users.pop(uid, None) is not None and not users:
        del found[name]
