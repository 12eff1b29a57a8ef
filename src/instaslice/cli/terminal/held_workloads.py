"""What commands read of Kueue: why it holds pods, the Workload that was named, and that of a Job or a Deployment.

Read only where a pod has Kueue's gate or something was named that Kueue may hold, with the rights of the user.
"""

import difflib
from collections.abc import Iterable
from typing import Final

from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.explanation import kueue_gates
from instaslice.errors import BadInput
from instaslice.kube.client import Client
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import ObjectMeta
from instaslice.kueue.hold import KueueHold, KueueHolds
from instaslice.kueue.objects import GROUP, KUEUE_WORKLOADS, QUEUE_NAME, VERSION, KueueWorkload
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.kueue.workload_state import AdmissionState, admission_state, asks_for_slices

KUEUES_KINDS: Final = ("workload", "workloads", "wl")
"""What users write before the slash for a Workload of Kueue."""

HELD: Final = (AdmissionState.PENDING, AdmissionState.QUOTA_RESERVED, AdmissionState.DEACTIVATED)


async def read_holds(
    client: Client, cluster: ClusterSnapshot, namespace: str, *, named: bool = False
) -> tuple[KueueSnapshot | None, KueueHolds | None]:
    """What Kueue says of pods; None and None where it holds none of them, unless something was `named`."""
    if not named and not any(kueue_gates(pod) for pod in cluster.pods):
        return None, None
    kueue = await KueueSnapshot.read(client, namespace)
    return kueue, KueueHolds(kueue, cluster.now)


def find_workload(kueue: KueueSnapshot | None, namespace: str, name: str) -> KueueWorkload:
    """Raises BadInput with what could be meant."""
    if kueue is None:
        raise BadInput(f"the cluster has no Workloads: Kueue is not installed there ({GROUP}/{VERSION})")
    if kueue.workloads is None:
        raise BadInput("; ".join(kueue.not_read))
    there = {each.metadata.name: each for each in kueue.workloads if each.metadata.namespace == namespace}
    if name in there:
        return there[name]
    owned = [own for own, each in there.items() if name in (owner.name for owner in each.metadata.owner_references)]
    near = sorted(owned)[:3] or difflib.get_close_matches(name, there, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"kubectl get {KUEUE_WORKLOADS.plural} -n {namespace}"
    raise BadInput(f"no Workload {name} in namespace {namespace}; {hint}")


def hold_of_owner(
    kueue: KueueSnapshot | None, holds: KueueHolds, owner: ObjectMeta, kind: str, *, suspended: bool
) -> KueueHold | None:
    """What Kueue says of a Job or the like; None where it has nothing to do with it."""
    workload = kueue.workload_of(owner.uid) if kueue is not None else None
    if workload is not None:
        return holds.of(workload)
    return holds.without_workload(owner, kind) if suspended and QUEUE_NAME in owner.labels else None


def held_without_pods(kueue: KueueSnapshot | None, namespace: str | None) -> list[str]:
    """The Jobs and the like that ask for slices and that Kueue keeps suspended, so that no pod of theirs waits; as
    `job/train`, or `job/train -n team-a` where no namespace is given."""
    found = []
    for each in (kueue.workloads if kueue is not None else None) or ():
        where = each.metadata.namespace
        owner = next(iter(each.metadata.owner_references), None)
        suspended = owner is not None and owner.kind != PODS.kind and admission_state(each) in HELD
        if owner is not None and suspended and namespace in (None, where) and asks_for_slices(each):
            name = f"{owner.kind.lower()}/{owner.name}"
            found.append(name if namespace else f"{name} -n {where}")
    return sorted(found)


def pods_of_workload(cluster: ClusterSnapshot, workload: KueueWorkload) -> list[Pod]:
    """The pods that a Workload stands for: its owners, or what its owner created; the oldest first."""
    owners = {each.uid for each in workload.metadata.owner_references}
    found = [pod for pod in cluster.pods if pod.metadata.uid in owners or owners & set(_creators(pod))]
    return sorted(found, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.name))


def _creators(pod: Pod) -> Iterable[str]:
    return (each.uid for each in pod.metadata.owner_references if each.controller)
