"""What a pod's own condition says, for a user who may read the pods of one namespace and no more.

Pure. Answers as `explain.Explainer` does, as far as the controller has written it.
"""

from datetime import UTC, datetime
from functools import partial

import msgspec

from instaslice.api import names
from instaslice.api.pods import gated
from instaslice.api.reasons import PodReason
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.explanation import (
    GATED_BY_OTHERS,
    SAID_BY_THE_POD,
    WAITS,
    Explanation,
    Stage,
    WaitingPod,
    by_itself,
    changed,
    held_message,
    kueue_gates,
)
from instaslice.kube.core import Pod
from instaslice.kube.workloads import WorkloadResource
from instaslice.kueue.hold import KueueHolds

STAGES: dict[str, Stage] = {
    PodReason.CREATING: Stage.CREATING,
    PodReason.UNGATE_REFUSED: Stage.STARTING,
    PodReason.NODE_NOT_SERVING: Stage.STARTING,
}
"""Reasons of a condition that a pod has before it is past its gate; with any other it waits for room."""


class QuotedConditions:
    """Answers from the conditions of pods; `left_out` says what could not be read."""

    def __init__(self, cluster: ClusterSnapshot, left_out: str, holds: KueueHolds | None = None) -> None:
        self._pods = cluster.pods
        self._holds = holds
        self.left_out = [left_out, *(f"{each.object}: {each.why}" for each in cluster.unread)]

    def explain(self, pod: Pod, _: WorkloadResource | None = None) -> Explanation:
        """What the controller said of the pod last."""
        fields = partial(Explanation, **msgspec.structs.asdict(self._quoted(pod)))
        held = self._holds.of_pod(pod) if self._holds is not None and kueue_gates(pod) else None
        return fields(quoted=True, left_out=self.left_out, kueue=held)

    def waiting(self) -> list[WaitingPod]:
        """The pods that do not run yet, the oldest first."""
        found = [each for each in map(self._quoted, self._pods) if each.stage in WAITS]
        never = datetime.max.replace(tzinfo=UTC)
        return sorted(found, key=lambda each: (each.since or never, each.pod))

    def _quoted(self, pod: Pod) -> WaitingPod:
        brief = _quoted(pod)
        if brief.stage is Stage.HELD_BY_KUEUE and self._holds is not None:
            return msgspec.structs.replace(brief, message=held_message(pod, self._holds.of_pod(pod)))
        return brief


def _quoted(pod: Pod) -> WaitingPod:
    brief, written = by_itself(pod), pod.condition(names.SLICE_READY)
    if brief.stage in (*SAID_BY_THE_POD, *GATED_BY_OTHERS):
        return brief
    if written is None:
        silent = "its condition says nothing yet; does the controller run?"
        return msgspec.structs.replace(brief, message=silent, stage=_stage(pod, ""))
    stage = _stage(pod, written.reason, ready=written.status == "True")
    since = brief.since if stage is Stage.WAITING else changed(pod, names.SLICE_READY)
    return msgspec.structs.replace(brief, stage=stage, since=since, message=written.message)


def _stage(pod: Pod, reason: str, *, ready: bool = False) -> Stage:
    if gated(pod):
        return STAGES.get(reason, Stage.WAITING)
    if not ready:
        return Stage.TROUBLED
    return Stage.RUNNING if pod.status.phase == "Running" else Stage.STARTING
