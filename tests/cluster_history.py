"""The history of a cluster, write by write: no two pods ever hold one placement, and no running pod loses its slice.

Pure. A pod holds the slices that it had when its gate was removed until it has ended or is gone, whatever the
controller writes about it afterwards. So a placement that is given to the next pod too early is found.
"""

from dataclasses import dataclass
from typing import NamedTuple

from instaslice.api.instaslice import Instaslice
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.gpu_rules import no_overlap
from instaslice.doctor.observed_cluster import HeldAllocation, ObservedCluster, allocations_of, object_name
from instaslice.doctor.pod_rules import pod_has_slices, uuids
from instaslice.doctor.requested import gated, requests_slices
from instaslice.kube.core import Pod


class ObjectWrite(NamedTuple):
    """An object as one write left it, or as it was before the write that deleted it."""

    version: int
    object: Pod | Instaslice
    deleted: bool = False


@dataclass(frozen=True)
class SliceInUse:
    """A slice that a running pod depends on."""

    pod: str
    node: str
    gpu: str
    mask: int
    id: str
    uuid: str | None


SlicesInUse = dict[str, list[SliceInUse]]
"""By the uid of the pod."""


class HistoryCheck:
    """`before` is what pods held when an earlier check ended: pods that still run must still hold it."""

    def __init__(self, base: ObservedCluster, before: SlicesInUse | None = None) -> None:
        self._pods = dict(base.pods_by_uid)
        self._instaslices = dict(base.instaslices_by_name)
        self._now = base.now
        self._lost: set[str] = set()
        self.findings: list[Finding] = []
        running = {pod.metadata.uid for pod in base.running}
        self.in_use: SlicesInUse = {uid: slices for uid, slices in (before or {}).items() if uid in running}
        version = int(base.version or 0)
        for instaslice in base.instaslices:
            self._check_losses(instaslice, version)
        for pod in base.running:
            if pod.metadata.uid not in self.in_use:
                self._start_use(pod, base.allocations_by_pod.get(pod.metadata.uid, []), version)

    def apply(self, write: ObjectWrite) -> None:
        """The next write, in the order of versions."""
        match write.object:
            case Pod() as pod:
                self._apply_pod(pod, write)
            case Instaslice() as instaslice:
                self._apply_instaslice(instaslice, write)

    def confirmed_in_use(self) -> SlicesInUse:
        """What pods hold according to their own annotation as well: certain even where writes were missed."""
        annotated = {uid: sorted(uuids(pod)) for uid, pod in self._pods.items()}
        return {
            uid: slices
            for uid, slices in self.in_use.items()
            if sorted(each.uuid or "" for each in slices) == annotated[uid]
        }

    def _apply_pod(self, pod: Pod, write: ObjectWrite) -> None:
        uid = pod.metadata.uid
        if write.deleted or pod.ended:
            self._pods.pop(uid, None)
            self.in_use.pop(uid, None)
            return
        self._pods[uid] = pod
        if uid not in self.in_use and not gated(pod) and requests_slices(pod):
            self._check_ungated(pod, write.version)

    def _check_ungated(self, pod: Pod, version: int) -> None:
        cluster = ObservedCluster([pod], [], list(self._instaslices.values()), self._now)
        for finding in pod_has_slices(cluster):
            self._add(version, finding.invariant, finding.object, finding.message)
        allocations = cluster.allocations_by_pod.get(pod.metadata.uid, [])
        for held in allocations:
            if not held.created:
                self._add(version, Invariant.SLICE_EXISTS, object_name(pod), f"was ungated before its slice: {held}")
        self._start_use(pod, allocations, version)

    def _start_use(self, pod: Pod, allocations: list[HeldAllocation], version: int) -> None:
        """From now on the pod holds these slices, and no other pod may."""
        mine, annotated, name = [_slice(pod, held) for held in allocations], set(uuids(pod)), object_name(pod)
        for theirs in [each for slices in self.in_use.values() for each in slices]:
            if any(each.gpu == theirs.gpu and each.mask & theirs.mask for each in mine):
                self._add(
                    version, Invariant.NO_OVERLAP, name, f"got a placement on {theirs.gpu} that {theirs.pod} holds"
                )
            if theirs.uuid in annotated:
                self._add(version, Invariant.UUID_ONCE, name, f"got {theirs.uuid}, which {theirs.pod} holds")
        self.in_use[pod.metadata.uid] = mine

    def _apply_instaslice(self, instaslice: Instaslice, write: ObjectWrite) -> None:
        name = instaslice.metadata.name
        if write.deleted:
            # Together with its node. Whether the pods there are released is seen in the final state.
            self._instaslices.pop(name, None)
            return
        self._instaslices[name] = instaslice
        if _overlaps(instaslice):
            for finding in no_overlap(ObservedCluster([], [], [instaslice], self._now)):
                if not finding.transient:
                    self._add(write.version, finding.invariant, finding.object, finding.message)
        self._check_losses(instaslice, write.version)

    def _check_losses(self, instaslice: Instaslice, version: int) -> None:
        allocations = {held.allocation.id: held for held in allocations_of(instaslice)}
        for uid, slices in self.in_use.items():
            pod = self._pods.get(uid)
            # A pod that is being deleted on a lost node is released before it is gone; its placement is still in use.
            if pod is None or pod.metadata.deletion_timestamp is not None:
                continue
            for each in slices:
                if each.node == instaslice.metadata.name and each.id not in self._lost:
                    self._check_loss(each, allocations.get(each.id), version)

    def _check_loss(self, used: SliceInUse, held: HeldAllocation | None, version: int) -> None:
        if held is None:
            message = f"lost its allocation {used.id} on {used.node} while it ran"
        elif held.deleting or not held.created:
            state = held.prepared.state if held.prepared else "not reported"
            message = f"lost its slice while it ran: {held}, slice {state}"
        elif held.prepared is not None and used.uuid and held.prepared.mig_uuid != used.uuid:
            message = f"its slice {used.uuid} became {held.prepared.mig_uuid}"
        else:
            return
        self._lost.add(used.id)
        self._add(version, Invariant.SLICE_EXISTS, used.pod, message)

    def _add(self, version: int, invariant: Invariant, about: str, message: str) -> None:
        self.findings.append(Finding(invariant, about, f"{message} (at version {version})"))


def _slice(pod: Pod, held: HeldAllocation) -> SliceInUse:
    uuid = held.prepared.mig_uuid if held.prepared else None
    return SliceInUse(object_name(pod), held.node, held.allocation.gpu, held.mask, held.allocation.id, uuid)


def _overlaps(instaslice: Instaslice) -> bool:
    """Whether two allocations overlap: cheap enough for every write."""
    taken: dict[str, int] = {}
    for held in allocations_of(instaslice):
        gpu = held.allocation.gpu
        if held.slice_deleted:
            continue
        if taken.get(gpu, 0) & held.mask:
            return True
        taken[gpu] = taken.get(gpu, 0) | held.mask
    return False
