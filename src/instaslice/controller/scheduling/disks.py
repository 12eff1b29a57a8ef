"""Volumes that a pod specifies in-line, without a claim. Follows VolumeRestrictions: one writer of a disk on a node."""

from collections.abc import Mapping
from dataclasses import dataclass

from instaslice.kube.core import Disk, Node, Pod, Volume
from instaslice.placement import NodeName


def disks(pod: Pod) -> tuple[Volume, ...]:
    return tuple(
        each
        for each in pod.spec.volumes or ()
        if each.gce_persistent_disk or each.aws_elastic_block_store or each.iscsi or each.rbd
    )


class DisksInUse:
    def __init__(self) -> None:
        self._on: dict[NodeName, dict[str, tuple[Volume, ...]]] = {}

    def add(self, pod: Pod, node: NodeName) -> None:
        if found := disks(pod):
            self._on.setdefault(node, {})[pod.metadata.uid] = found

    def remove(self, pod: Pod, node: NodeName) -> None:
        used = self._on.get(node)
        if used is not None and used.pop(pod.metadata.uid, None) is not None and not used:
            del self._on[node]

    def pre_filter(self, pod: Pod) -> "DiskVerdict | None":
        """None for a pod without such volumes."""
        wanted = disks(pod)
        return DiskVerdict(wanted, pod.metadata.uid, self._on) if wanted else None


@dataclass(slots=True)
class DiskVerdict:
    wanted: tuple[Volume, ...]
    uid: str
    used: Mapping[NodeName, Mapping[str, tuple[Volume, ...]]]

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        """Names a disk that another pod there uses."""
        used = self.used.get(NodeName(node.metadata.name))
        if not used or emptied:
            return None
        others = [volume for uid, volumes in used.items() if uid != self.uid for volume in volumes]
        conflict = next((each for each in self.wanted if any(_conflict(each, other) for other in others)), None)
        return f"volume {conflict.name}: another pod there uses its disk" if conflict is not None else None


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
