"""Why Kueue holds a workload: its own reason, the position in the queue, the quota, and what would help.

Pure. For `explain` and `status`.
"""

import re
from collections.abc import Collection
from datetime import datetime

import msgspec

from instaslice.api import names
from instaslice.kube.core import Condition, Pod
from instaslice.kube.meta import ObjectMeta, key_of
from instaslice.kube.quantities import humanized
from instaslice.kueue.objects import POD_GROUP, POD_GROUP_SIZE, QUEUE_NAME, ClusterQueue, KueueWorkload
from instaslice.kueue.obstacle import Obstacle, ObstacleKind, obstacle_of
from instaslice.kueue.queue_position import is_backing_off, pending_workloads, takes_turns
from instaslice.kueue.quota_standing import QuotaHolder, QuotaStanding, quota_holders, standings
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.kueue.workload_state import (
    SAID_BY,
    AdmissionState,
    admission_state,
    charged_amounts,
    condition_of_workload,
    holds_now,
    owner_name,
    since_when,
)

UID = re.compile(r"\bUID: ([0-9a-zA-Z-]+)")
MOST_AHEAD = 3
"""Workloads ahead that are named."""
KUEUE_EXPLAINS = (ObstacleKind.NAMESPACE, ObstacleKind.NOT_COVERED, ObstacleKind.TOO_MUCH)
"""Obstacles of which Kueue's own message says what it met."""
NEEDS_MORE = (ObstacleKind.NAMESPACE, ObstacleKind.NOT_COVERED)
"""Those whose remedy needs to say more than Kueue does."""


class CheckStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What an admission check says of the workload."""

    name: str
    state: str
    message: str
    since: datetime | None


class KueueHold(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that Kueue's objects say of one workload."""

    workload: str = ""
    """Namespace and name; "" where Kueue has made none."""
    owner: str = ""
    state: AdmissionState
    since: datetime | None = None
    local_queue: str = ""
    cluster_queue: str = ""
    cohort: str = ""
    reason: str = ""
    """Kueue's own, of the condition that says why it is not admitted."""
    message: str = ""
    remedy: str = ""
    """What has to change before it can be admitted; "" where nothing has to."""
    evicted: str = ""
    """Why it lost what it had."""
    evicted_at: datetime | None = None
    requests: dict[str, str] = {}
    quotas: list[QuotaStanding] = []
    held_by: list[QuotaHolder] = []
    """Who holds the quota that it waits for."""
    position: int | None = None
    """Among the pending workloads of the ClusterQueue, from 1; None where it is not known."""
    pending: int = 0
    """How many wait there; 0 where that is not known, or it does not wait there now."""
    strategy: str = ""
    ahead: list[str] = []
    """The first of those that are considered before it."""
    checks: list[CheckStanding] = []
    requeue_at: datetime | None = None
    not_read: list[str] = []
    """What the caller may not read, and what to grant."""

    @property
    def holds(self) -> bool:
        """Whether Kueue keeps it from starting."""
        return self.state not in (AdmissionState.ADMITTED, AdmissionState.FINISHED)

    @property
    def headline(self) -> str:
        """The reason in one sentence; what would help behind a semicolon."""
        help_ = f"; {self.remedy}" if self.remedy else ""
        match self.state:
            case AdmissionState.ADMITTED:
                return f"admitted by Kueue in ClusterQueue {self.cluster_queue}"
            case AdmissionState.FINISHED:
                return f"finished, says Kueue ({self.reason}: {self.message})"
            case AdmissionState.QUOTA_RESERVED:
                waits = ", ".join(each.name for each in self.checks if each.state != "Ready") or "its admission"
                return (
                    f"held by Kueue, with its quota in ClusterQueue {self.cluster_queue}, until {waits} is ready{help_}"
                )
            case AdmissionState.PENDING if self.position is not None:
                where = f", {_ordinal(self.position)} of {self.pending} in ClusterQueue {self.cluster_queue}"
            case _ if self.local_queue:
                where = f", in LocalQueue {self.local_queue}"
            case _:
                where = ""
        return f"held by Kueue{where}{f': {self.message}' if self.message else ''}{help_}"


class KueueHolds:
    """Answers from one snapshot; None is that of a cluster without Kueue. What workloads of one queue have in common is
    computed once."""

    def __init__(self, kueue: KueueSnapshot | None, now: datetime) -> None:
        self._kueue = kueue
        self._now = now
        self._lines: dict[str, tuple[list[str], dict[str, int]]] = {}
        """ClusterQueue → its pending workloads in order, and the position of each."""
        self._holders: dict[tuple[str, ...], list[QuotaHolder]] = {}

    def of_pod(self, pod: Pod) -> KueueHold:
        """Of a pod that has Kueue's gate: of its own Workload, or of that of what created it."""
        owners = [each.uid for each in pod.metadata.owner_references if each.controller]
        workload = self._kueue.workload_of(pod.metadata.uid, *owners) if self._kueue is not None else None
        return self.without_workload(pod.metadata, "pod") if workload is None else self.of(workload)

    def of(self, workload: KueueWorkload) -> KueueHold:
        """Of a workload of the snapshot."""
        kueue = self._kueue
        assert kueue is not None
        state = admission_state(workload)
        queue = kueue.cluster_queue(kueue.cluster_queue_name(workload))
        said = _said(workload, state)
        obstacle = obstacle_of(kueue, workload)
        amounts = charged_amounts(workload)
        short = _short(amounts, said.message if said else "")
        evicted = condition_of_workload(workload, "Evicted")
        if evicted is not None and evicted.status != "True":
            evicted = None
        waits_for_quota = state is AdmissionState.PENDING and obstacle is None
        hold = KueueHold(
            workload=str(key_of(workload)),
            owner=owner_name(workload),
            state=state,
            since=since_when(workload, state),
            local_queue=workload.spec.queue_name,
            cluster_queue=kueue.cluster_queue_name(workload),
            cohort=queue.spec.cohort_name if queue is not None else "",
            reason=said.reason if said else "",
            message=_message(said, obstacle),
            remedy=_remedy(obstacle) if obstacle else _check_remedy(workload, said.message if said else ""),
            evicted=f"{evicted.reason}: {evicted.message}{_in_favour(kueue, evicted)}" if evicted else "",
            evicted_at=evicted.last_transition_time if evicted else None,
            requests={name: humanized(name, amount, up=True) for name, amount in amounts.items()},
            quotas=standings(kueue, queue, short) if queue is not None else [],
            held_by=self._holders_of(kueue, queue, short) if queue is not None and waits_for_quota else [],
            checks=_checks(workload),
            requeue_at=workload.status.requeue_state.requeue_at if workload.status.requeue_state else None,
            not_read=list(kueue.not_read),
        )
        return self._queued(kueue, hold, queue) if state is AdmissionState.PENDING else hold

    def without_workload(self, metadata: ObjectMeta, kind: str) -> KueueHold:
        """Of a pod, Job or the like that Kueue is to admit, and of which there is no Workload."""
        queue, group = metadata.labels.get(QUEUE_NAME, ""), metadata.labels.get(POD_GROUP, "")
        remedy = ""
        if self._kueue is None:
            message = "this cluster serves none of Kueue's objects (v1beta2)"
            remedy = f"install Kueue, or create the {kind} again without it"
        elif self._kueue.workloads is None:
            message = "its Workload may not be read"
        elif group:
            size = metadata.annotations.get(POD_GROUP_SIZE, "?")
            message = f"no Workload of its pod group {group} exists"
            remedy = f"Kueue makes one when all {size} pods of the group are there, all in one queue"
        else:
            message = "no Workload of it exists"
            remedy = f"does Kueue run, and does it manage each {kind}? Its log says why it made none"
        not_read = list(self._kueue.not_read) if self._kueue is not None else []
        return KueueHold(
            state=AdmissionState.UNKNOWN, local_queue=queue, message=message, remedy=remedy, not_read=not_read
        )

    def _queued(self, kueue: KueueSnapshot, hold: KueueHold, queue: ClusterQueue | None) -> KueueHold:
        """With its position, where the lists of all namespaces tell it."""
        if queue is None or not kueue.whole:
            return hold
        name = hold.cluster_queue
        if name not in self._lines:
            line = [str(key_of(each)) for each in pending_workloads(kueue, name)]
            self._lines[name] = line, {each: place for place, each in enumerate(line, 1)}
        line, places = self._lines[name]
        if hold.workload not in places:
            return hold  # it is not queued again yet
        position = None if takes_turns(queue) else places[hold.workload]
        return msgspec.structs.replace(
            hold,
            position=position,
            pending=len(line),
            strategy=queue.spec.queueing_strategy,
            ahead=line[: min(MOST_AHEAD, position - 1)] if position else [],
        )

    def _holders_of(self, kueue: KueueSnapshot, queue: ClusterQueue, short: Collection[str]) -> list[QuotaHolder]:
        key = (queue.metadata.name, *short)
        if key not in self._holders:
            self._holders[key] = quota_holders(kueue, queue, short, self._now)
        return self._holders[key]


def _said(workload: KueueWorkload, state: AdmissionState) -> Condition | None:
    """The condition that says why it is where it is."""
    if state is AdmissionState.DEACTIVATED:
        return None
    found = condition_of_workload(workload, SAID_BY.get(state, "QuotaReserved"))
    if found is not None and not found.message:
        return None
    if state is AdmissionState.PENDING and is_backing_off(workload) and holds_now(workload, "Evicted"):
        return condition_of_workload(workload, "Evicted")
    return found


def _message(said: Condition | None, obstacle: Obstacle | None) -> str:
    """Kueue's own, or that of an obstacle that says the same and more."""
    if obstacle is not None and (said is None or obstacle.kind not in KUEUE_EXPLAINS):
        return obstacle.message
    return said.message if said is not None else "not considered yet"


def _remedy(obstacle: Obstacle) -> str:
    return str(obstacle) if obstacle.kind in NEEDS_MORE else obstacle.remedy


def _in_favour(kueue: KueueSnapshot, evicted: Condition) -> str:
    """Kueue names the workload that it made way for by its uid."""
    named = filter(None, (kueue.by_uid.get(uid) for uid in UID.findall(evicted.message)))
    return "".join(f"; that is Workload {key_of(each)}" for each in named)


def _short(amounts: dict[str, int], message: str) -> Collection[str]:
    """The resources whose quota matters: those that Kueue names, and GPU memory."""
    return [name for name in amounts if name in message or name == names.MEMORY]


def _checks(workload: KueueWorkload) -> list[CheckStanding]:
    return [
        CheckStanding(name=each.name, state=each.state, message=each.message, since=each.last_transition_time)
        for each in workload.status.admission_checks or ()
    ]


def _check_remedy(workload: KueueWorkload, said: str) -> str:
    """Of a check that is not ready: what it says. After a retry Kueue has `said` that itself."""
    checks = workload.status.admission_checks or ()
    waits = [each for each in checks if each.state != "Ready" and each.message and each.message not in said]
    return "; ".join(f"check {each.name} is {each.state}: {each.message}" for each in waits)


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
