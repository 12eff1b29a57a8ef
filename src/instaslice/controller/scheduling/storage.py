"""Claims, volumes, classes and drivers as they are now, indexed for lookup."""

from collections.abc import Iterable
from typing import NamedTuple

from instaslice.controller.scheduling.groups import discard
from instaslice.kube.core import Pod
from instaslice.kube.meta import Key, key_of
from instaslice.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)


class Claim(NamedTuple):
    """A claim that a pod uses: named by the pod, or created by Kubernetes for an ephemeral volume."""

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


class Storage:
    def __init__(self) -> None:
        self.claims: dict[Key, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.nodes: dict[str, CSINode] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self._of_class: dict[str, dict[str, PersistentVolume]] = {}
        self._capacities: dict[str, dict[Key, CSIStorageCapacity]] = {}
        """By class."""
        self._attached: dict[str, dict[str, VolumeAttachment]] = {}
        """By node."""

    def volumes_of(self, class_name: str) -> Iterable[PersistentVolume]:
        return self._of_class.get(class_name, {}).values()

    def capacities_of(self, class_name: str) -> Iterable[CSIStorageCapacity]:
        return self._capacities.get(class_name, {}).values()

    def attached_to(self, node: str) -> Iterable[VolumeAttachment]:
        return self._attached.get(node, {}).values()

    def changed(self, old: StorageObject | None, new: StorageObject | None) -> None:
        """Replace one object; `new` is None where it is deleted."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def _add(self, thing: StorageObject) -> None:
        name = thing.metadata.name
        match thing:
            case PersistentVolumeClaim():
                self.claims[key_of(thing)] = thing
            case PersistentVolume():
                self.volumes[name] = thing
                self._of_class.setdefault(thing.class_name, {})[name] = thing
            case StorageClass():
                self.classes[name] = thing
            case CSINode():
                self.nodes[name] = thing
            case CSIDriver():
                self.drivers[name] = thing
            case CSIStorageCapacity():
                self._capacities.setdefault(thing.storage_class_name, {})[key_of(thing)] = thing
            case VolumeAttachment():
                self._attached.setdefault(thing.spec.node_name, {})[name] = thing

    def _remove(self, thing: StorageObject) -> None:
        name = thing.metadata.name
        match thing:
            case PersistentVolumeClaim():
                self.claims.pop(key_of(thing), None)
            case PersistentVolume():
                self.volumes.pop(name, None)
                discard(self._of_class, thing.class_name, name)
            case StorageClass():
                self.classes.pop(name, None)
            case CSINode():
                self.nodes.pop(name, None)
            case CSIDriver():
                self.drivers.pop(name, None)
            case CSIStorageCapacity():
                discard(self._capacities, thing.storage_class_name, key_of(thing))
            case VolumeAttachment():
                discard(self._attached, thing.spec.node_name, name)
