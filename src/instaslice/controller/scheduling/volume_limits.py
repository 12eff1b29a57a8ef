"""How many volumes CSI drivers may attach to a node. Follows NodeVolumeLimits."""

from collections.abc import Iterable, Iterator
from typing import Final

from instaslice.controller.scheduling.storage import Storage, claims
from instaslice.kube.core import Pod
from instaslice.kube.meta import Key
from instaslice.kube.storage import PersistentVolumeClaim
from instaslice.placement import NodeName

IN_TREE: Final = "kubernetes.io/"
"""Prefix of provisioners that are not CSI drivers."""

Attachment = tuple[str, str]
"""A driver and its handle of a volume."""


def limit_refusal(pod: Pod, others: Iterable[Pod], storage: Storage, name: NodeName) -> str | None:
    """Why drivers may not attach the pod's volumes to a node on which `others` run; None where they may."""
    new = _attachments(pod, storage)
    if not new:
        return None
    there = storage.nodes.get(name)
    drivers = (there.spec.drivers if there is not None else None) or ()
    installed = {each.name for each in drivers}
    for driver, _ in new:
        known = storage.drivers.get(driver)
        if known is not None and known.spec.prevent_pod_scheduling_if_missing and driver not in installed:
            return f"driver {driver} is not installed there"
    limits = {
        each.name: each.allocatable.count
        for each in drivers
        if each.allocatable is not None and each.allocatable.count is not None
    }
    if not any(driver in limits for driver, _ in new):
        return None
    attached: set[Attachment] = set()
    for other in others:
        attached |= _attachments(other, storage)
    new -= attached
    attached |= set(_attached(name, storage))
    for driver, most in limits.items():
        more = sum(each[0] == driver for each in new)
        if more and more + sum(each[0] == driver for each in attached) > most:
            return f"driver {driver} may attach no more than {most} volumes there"
    return None


def _attachments(pod: Pod, storage: Storage) -> set[Attachment]:
    """The volumes that are attached for the pod."""
    found: set[Attachment] = set()
    for each in claims(pod):
        claim = storage.claims.get(each.key)
        if claim is not None and (attachment := _attachment(claim, each.key, storage)) is not None:
            found.add(attachment)
    return found


def _attachment(claim: PersistentVolumeClaim, key: Key, storage: Storage) -> Attachment | None:
    volume = storage.volumes.get(claim.spec.volume_name)
    if volume is not None:
        csi = volume.spec.csi
        return (csi.driver, csi.volume_handle) if csi is not None else None
    of = storage.classes.get(claim.class_name)
    # A volume that does not exist yet has no handle: the name of its claim stands for it.
    return (of.provisioner, f"/{key}") if of is not None and not of.provisioner.startswith(IN_TREE) else None


def _attached(name: NodeName, storage: Storage) -> Iterator[Attachment]:
    """What VolumeAttachment objects say is attached to the node."""
    for each in storage.attached_to(name):
        volume = storage.volumes.get(each.spec.source.persistent_volume_name)
        if each.spec.attacher and volume is not None and volume.spec.csi is not None:
            yield each.spec.attacher, volume.spec.csi.volume_handle
