"""Volumes that a pod specifies in-line, without a claim. Follows VolumeRestrictions: one writer of a disk on a node."""

from instaslice.controller.scheduling.exclusive_use import ExclusiveUse
from instaslice.kube.core import Disk, Pod, Volume


def disks(pod: Pod) -> tuple[Volume, ...]:
    return tuple(
        each
        for each in pod.spec.volumes or ()
        if each.gce_persistent_disk or each.aws_elastic_block_store or each.iscsi or each.rbd
    )


class DisksInUse(ExclusiveUse[Volume]):
    def __init__(self) -> None:
        super().__init__(disks, _conflict, lambda volume: f"volume {volume.name}: another pod there uses its disk")


def _conflict(one: Volume, other: Volume) -> bool:
    """An AWS disk is never shared; the others may have several readers."""
    a, b = one.aws_elastic_block_store, other.aws_elastic_block_store
    if a and b and a.volume_id == b.volume_id:
        return True
    pairs = ((one.gce_persistent_disk, other.gce_persistent_disk), (one.iscsi, other.iscsi), (one.rbd, other.rbd))
    return any(a and b and _same(a, b) and not (a.read_only and b.read_only) for a, b in pairs)


def _same(a: Disk, b: Disk) -> bool:
    """Compares two disks of one kind. Ceph images are the same if they share a monitor."""
    if a.monitors or b.monitors:
        shared = set(a.monitors or ()) & set(b.monitors or ())
        return bool(shared) and (a.pool, a.image) == (b.pool, b.image)
    return (a.pd_name, a.iqn) == (b.pd_name, b.iqn)
