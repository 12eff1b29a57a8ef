"""How far a pod that asks for slices has come: the one lifecycle.

    waiting → creating → created → ungated → deleting → deleted, and failed

Pure: follows from the pod, from what the controller wants (`Allocation.wanted`) and from what the agent reports. The
ledger, the reconciler, the pod's condition, `explain`, metrics and the demo use it; the doctor derives its own, to
judge this one. The reconciler adds that a deleted pod is over where no kubelet is left to report its end.
"""

from collections.abc import Iterable
from enum import StrEnum

from instaslice.api.instaslice import Allocation, PreparedSlice, SliceState
from instaslice.api.pods import gated
from instaslice.kube.core import Pod


class Phase(StrEnum):
    WAITING = "waiting"
    """It has the gate, and no slices are reserved for it."""
    CREATING = "creating"
    CREATED = "created"
    """All its slices exist; the gate is about to be removed."""
    UNGATED = "ungated"
    DELETING = "deleting"
    """It has ended or is gone, and slices of it may still exist."""
    DELETED = "deleted"
    FAILED = "failed"
    """A slice could not be created or is lost; or it is past the gate without slices."""


def phase_of_slice(allocation: Allocation, prepared: PreparedSlice | None) -> Phase:
    """How far one slice is: from creating to created, from deleting to deleted, or failed."""
    match allocation.wanted, prepared and prepared.state:
        case False, SliceState.DELETED:
            return Phase.DELETED
        case False, _:
            return Phase.DELETING
        case True, SliceState.CREATED:
            return Phase.CREATED
        case True, SliceState.FAILED:
            return Phase.FAILED
    return Phase.CREATING


def phase_of_allocation(pod: Pod | None, allocation: Allocation, prepared: PreparedSlice | None) -> Phase:
    """How far an allocation is: as its slice, until its pod is past the gate."""
    own = phase_of_slice(allocation, prepared)
    return Phase.UNGATED if own is Phase.CREATED and pod is not None and not gated(pod) else own


def phase_of(pod: Pod | None, slices: Iterable[tuple[Allocation, PreparedSlice | None]]) -> Phase:
    """How far a pod is; `slices` are all that are in a spec for it, with what the agent reports of each."""
    phases = {phase_of_slice(allocation, prepared) for allocation, prepared in slices}
    if pod is None or pod.ended:
        return Phase.DELETING if phases - {Phase.DELETED} else Phase.DELETED
    # What is being deleted is of an earlier attempt: the pod has been queued again since.
    match gated(pod), phases - {Phase.DELETING, Phase.DELETED}:
        case _, wanted if Phase.FAILED in wanted:
            return Phase.FAILED
        case True, wanted if wanted == {Phase.CREATED}:
            return Phase.CREATED
        case True, wanted:
            return Phase.CREATING if wanted else Phase.WAITING
        case False, wanted if wanted:
            return Phase.UNGATED
    return Phase.FAILED
