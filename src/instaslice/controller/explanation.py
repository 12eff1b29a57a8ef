"""What can be said of a pod, in a list or at length, and what the pod says by itself.

Pure. `explain` adds what follows from the rest of the cluster; `quoted_condition` what the controller wrote.
"""

from collections import Counter
from datetime import datetime
from enum import StrEnum
from functools import partial

import msgspec

from instaslice.api import names
from instaslice.api.pods import gated, needed_slices, other_gates
from instaslice.controller.requests import effective
from instaslice.controller.slice_holders import Holder
from instaslice.errors import InstasliceError
from instaslice.kube.core import Namespace, Pod
from instaslice.kube.meta import key_of
from instaslice.kueue.hold import KueueHold
from instaslice.kueue.objects import GROUP as KUEUE
from instaslice.kueue.objects import QUEUE_NAME


class Stage(StrEnum):
    """Where a pod is on its way."""

    NOT_OURS = "not ours"
    UNREADABLE = "asks for what does not exist"
    HELD = "held by another gate"
    HELD_BY_KUEUE = "held by Kueue"
    WAITING = "waiting for room"
    CREATING = "slices being made"
    STARTING = "slices ready"
    RUNNING = "running"
    TROUBLED = "running, in trouble"
    ENDED = "ended"


GATED_BY_OTHERS = (Stage.HELD, Stage.HELD_BY_KUEUE)
"""Stages of pods that are not our turn yet."""
WAITS = (Stage.UNREADABLE, *GATED_BY_OTHERS, Stage.WAITING, Stage.CREATING, Stage.STARTING)
"""Stages of pods that do not run yet."""
SAID_BY_THE_POD = (Stage.NOT_OURS, Stage.UNREADABLE, Stage.ENDED)
"""Stages of which nothing else in the cluster says more."""


class ExplainedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """One slice of the pod."""

    node: str
    gpu: str
    index: int | None
    profile: str
    start: int
    container: str
    state: str
    mig_uuid: str | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be said about one pod. `since` is when it entered this stage, as far as objects tell."""

    pod: str
    stage: Stage
    since: datetime | None
    message: str
    asks: dict[str, int] = {}
    """Profile → how many slices."""
    ahead: int = 0
    """Waiting pods that are considered first, without those that no node could hold."""
    nodes: dict[str, list[str]] = {}
    """Of a pod that waits: reason → the nodes that it rules out."""
    could: list[str] = []
    """Of a pod that waits: nodes that could hold it if they were empty."""
    could_later: list[str] = []
    """Of a pod that waits: nodes that could if they were empty, uncordoned and ready."""
    could_in_use: list[str] = []
    """Of a pod that waits: nodes that admit it and could if their GPUs were in use and empty."""
    held_by: list[Holder] = []
    """Of a pod that waits: who holds slices on the nodes that could hold it."""
    rollout: str = ""
    """Of a pod that waits: what to do where its own Deployment holds them."""
    slices: list[ExplainedSlice] = []
    kueue: KueueHold | None = None
    """Of a pod that Kueue holds: what it says."""
    left_out: list[str] = []
    """Objects that were not taken into account, and why."""
    quoted: bool = False
    """Whether this is what the pod's condition says, and the rest of the cluster was not looked at."""


class WaitingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that does not run yet, in a list."""

    pod: str
    stage: Stage
    since: datetime | None
    asks: dict[str, int]
    message: str


def by_itself(pod: Pod, namespace: Namespace | None = None) -> WaitingPod:
    """The stage that the pod alone tells; WAITING where it depends on more. `namespace` is its own, if it is known."""
    created, brief = pod.metadata.creation_timestamp, partial(WaitingPod, pod=str(key_of(pod)), asks={})
    try:
        slices = needed_slices(pod)
        if not slices:
            return brief(stage=Stage.NOT_OURS, since=None, message=_not_ours(pod, namespace))
        effective(pod)
    except InstasliceError as error:
        message = f"{error}; delete the pod and ask for slices that exist"
        return brief(stage=Stage.UNREADABLE, since=created, message=message)
    brief = partial(brief, asks=dict(Counter(each.profile for each in slices)))
    if pod.ended:
        reason = f": {pod.status.message}" if pod.status.message else ""
        message = f"{pod.status.phase}{reason}; its slices are released"
        return brief(stage=Stage.ENDED, since=changed(pod, "Ready"), message=message)
    if kueues := kueue_gates(pod):
        queue = pod.metadata.labels.get(QUEUE_NAME)
        message = f"held by Kueue{f', in LocalQueue {queue}' if queue else ''}{_also(pod, kueues)}"
        return brief(stage=Stage.HELD_BY_KUEUE, since=created, message=message)
    if gated(pod) and (others := other_gates(pod)):
        message = f"waits for other gates to be removed first: {', '.join(others)}"
        return brief(stage=Stage.HELD, since=created, message=message)
    return brief(stage=Stage.WAITING, since=created, message="")


def kueue_gates(pod: Pod) -> list[str]:
    """The gates by which Kueue holds the pod."""
    return [each for each in other_gates(pod) if each.startswith(f"{KUEUE}/")]


def held_message(pod: Pod, hold: KueueHold) -> str:
    """Why Kueue holds a pod, which has one of its gates."""
    message = hold.headline
    gates = kueue_gates(pod)
    if not hold.holds:
        message += f"; its gate {', '.join(gates)} is about to be removed: if it stays, does Kueue run?"
    return message + _also(pod, gates)


def _also(pod: Pod, kueues: list[str]) -> str:
    others = [each for each in other_gates(pod) if each not in kueues]
    return f"; waits for other gates too: {', '.join(others)}" if others else ""


def asks_nvidia(pod: Pod) -> list[str]:
    containers = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    return sorted(
        {name for each in containers for name in each.resources.limits if name.startswith(names.NVIDIA_RESOURCE)}
    )


def _not_ours(pod: Pod, namespace: Namespace | None) -> str:
    if raw := asks_nvidia(pod):
        older = "the pod is older than InstaSlice here"
        opted_out = f"its namespace is opted out ({names.OPT_OUT}={names.OPTED_OUT})"
        first = f"`kubectl label namespace {pod.metadata.namespace} {names.OPT_OUT}-`"
        if namespace is None:
            why, remedy = f"{older}, or {opted_out}", f"remove that label if it is there ({first}), and create the pod"
        elif namespace.metadata.labels.get(names.OPT_OUT) == names.OPTED_OUT:
            why, remedy = opted_out, f"remove that label ({first}), and create the pod"
        else:
            why, remedy = older, "create it"
        return f"asks for {', '.join(raw)}, which our webhook has not seen: {why}; {remedy} again to have slices made"
    if gated(pod):
        return f"asks for no slices but has the gate {names.GATE}, which nobody will remove; create it without the gate"
    return "asks for no slices; InstaSlice has nothing to do with it"


def changed(pod: Pod, kind: str) -> datetime | None:
    condition = pod.condition(kind)
    return condition.last_transition_time if condition else None
