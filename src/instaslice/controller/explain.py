"""Why a pod is where it is: its stage, since when, what it waits for and what would make it fit, or its slices.

Pure. Builds the controller's own ledger from a snapshot and asks it what the controller would ask; decides nothing. An
object that cannot be handled is left out, and the explanation says so.
"""

from datetime import UTC, datetime
from functools import partial
from random import Random

import msgspec

from instaslice.api import names
from instaslice.api.pods import gated, was_given_slices, why_unbound
from instaslice.api.reasons import PodReason
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.explanation import (
    GATED_BY_OTHERS,
    SAID_BY_THE_POD,
    WAITS,
    ExplainedSlice,
    Explanation,
    Stage,
    WaitingPod,
    asks_nvidia,
    by_itself,
    changed,
    held_message,
    kueue_gates,
)
from instaslice.controller.feasible_nodes import (
    lacking,
    never_held,
    node_out,
    nodes_that_could_hold,
    nodes_that_could_hold_in_use,
    nodes_that_could_hold_later,
)
from instaslice.controller.lifecycle import Phase
from instaslice.controller.orders import Limits, NullOrders
from instaslice.controller.pod_condition import PodCondition, condition_of
from instaslice.controller.pod_placer import first_plan
from instaslice.controller.pod_request import PodRequest
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.slice_holders import holders, rollout
from instaslice.kube.core import Pod
from instaslice.kube.meta import key_of
from instaslice.kube.workloads import WorkloadResource
from instaslice.kueue.hold import KueueHolds
from instaslice.placement import NodeName, Policy, Refusal, RequestKey

RENEWED_WITHIN = 3.0
"""Lease durations: a controller that renewed its Lease longer ago does not run."""


BETWEEN_LEADERS = 10.0
"""Seconds for which a Lease that was given back says nothing: another replica is about to take it."""


class Explainer:
    """Answers about one cluster at one moment."""

    def __init__(self, cluster: ClusterSnapshot, policy: Policy, holds: KueueHolds | None = None) -> None:
        """Without `holds`, Kueue's objects were not read: of a pod that Kueue holds, just that is said."""
        self._cluster = cluster
        self._holds = holds
        self._pods = {pod.metadata.uid: pod for pod in cluster.pods}
        self._namespaces = {each.metadata.name: each for each in cluster.namespaces}
        self._dispatcher, self.left_out = _dispatcher(cluster, policy)
        self._state, self._placer = self._dispatcher.state, self._dispatcher.placer
        self._messages: dict[RequestKey, str] = {}
        """Of waiting pods: those with one request wait for the same."""
        self._can_run: dict[RequestKey, bool] = {}
        self._stopped = _stopped(cluster)

    def explain(self, pod: Pod, deployment: WorkloadResource | None = None) -> Explanation:
        """What the controller would say about the pod now. `deployment` is the one that it belongs to, if it can be
        read."""
        brief, uid = self._brief(pod), pod.metadata.uid
        explanation = partial(Explanation, **msgspec.structs.asdict(brief))
        if self._holds is not None and kueue_gates(pod):
            explanation = partial(explanation, kueue=self._holds.of_pod(pod))
        if brief.stage in SAID_BY_THE_POD:
            return explanation()
        explanation = partial(explanation, left_out=self.left_out)
        if brief.stage is not Stage.WAITING:
            return explanation(slices=[] if brief.stage in GATED_BY_OTHERS else _locations(self._cluster, uid))
        request = self._placer.request(pod)
        could = list(nodes_that_could_hold(self._state, self._placer, pod))
        # Not of one that fits now or waits for a claim, whoever holds slices.
        short = self._state.filters.for_pod(pod).rules_out_all is None and self._placer.refusal(pod) is not None
        held_by = holders(
            self._state, self._pods, could if short else (), {each for choice in request.choices for each in choice}
        )
        return explanation(
            ahead=sum(map(self._may_run, self._state.queue.ahead(uid))),
            nodes=_ruled_out(self._state, pod, request),
            could=sorted(could),
            could_later=sorted(nodes_that_could_hold_later(self._state, self._placer, pod)),
            could_in_use=sorted(nodes_that_could_hold_in_use(self._state, self._placer, pod)),
            held_by=held_by,
            rollout=rollout(pod, held_by, self._cluster.pods, deployment),
        )

    def waiting(self) -> list[WaitingPod]:
        """The pods that do not run yet: first those that only wait for slices, in the order of the queue."""
        order = {uid: place for place, uid in enumerate(self._state.queue)}
        found = []
        for pod in self._cluster.pods:
            brief = self._brief(pod)
            unseen = brief.stage is Stage.NOT_OURS and asks_nvidia(pod) and not (pod.spec.node_name or pod.ended)
            if unseen or brief.stage in WAITS:
                found.append((pod, brief))
        end, never = len(order), datetime.max.replace(tzinfo=UTC)
        found.sort(key=lambda each: (order.get(each[0].metadata.uid, end), each[1].since or never, each[1].pod))
        return [brief for _, brief in found]

    def _brief(self, pod: Pod) -> WaitingPod:
        brief = by_itself(pod, self._namespaces.get(pod.metadata.namespace))
        if brief.stage in SAID_BY_THE_POD:
            return brief
        stage, since, message = self._where(pod, brief)
        return msgspec.structs.replace(brief, stage=stage, since=since, message=message)

    def _where(self, pod: Pod, brief: WaitingPod) -> tuple[Stage, datetime | None, str]:
        created = pod.metadata.creation_timestamp
        if pod.metadata.uid in self._state.queue:
            return Stage.WAITING, created, self._why_waiting(pod)
        if brief.stage is Stage.HELD_BY_KUEUE and self._holds is not None:
            return brief.stage, created, held_message(pod, self._holds.of_pod(pod))
        if brief.stage in GATED_BY_OTHERS:
            return brief.stage, created, brief.message
        condition = condition_of(self._state, self._placer, pod.metadata.uid)
        if not gated(pod):
            stage, message = _past_the_gate(pod, condition)
        else:
            stage, message = _gated(self._state, pod, condition)
            message += f"; {self._stopped}" if self._stopped else ""
        return stage, changed(pod, names.SLICE_READY) or created, message

    def _why_waiting(self, pod: Pod) -> str:
        key = self._placer.request(pod).key
        if key not in self._messages:
            condition = condition_of(self._state, self._placer, pod.metadata.uid)
            self._messages[key] = condition.message if condition else ""
        if message := self._messages[key]:
            return message + (f"; {self._stopped}" if self._stopped else "")
        if self._stopped:
            return f"fits now, but {self._stopped}"
        written = pod.condition(names.SLICE_READY)
        if written is not None and written.reason == PodReason.WAITING:
            # It may know more: that an agent does not answer, or which GPUs it reserves for another pod.
            return f"fits now by what the API server holds, but the controller said: {written.message}"
        turn = "about to be placed"
        if any(map(self._may_run, self._state.queue.ahead(pod.metadata.uid))):
            turn = "placed once the pods ahead of it have been considered"
        unled = self._cluster.lease is None and not self._cluster.lease_unknown
        doubt = "; does the controller run?" if unled else ""
        return f"fits now, and is {turn}{doubt}"

    def _may_run(self, uid: str) -> bool:
        """Whether a waiting pod gets slices as soon as enough are free: no other pod waits for one that never does."""
        pod = self._state.pods[uid]
        key = self._placer.request(pod).key
        if key not in self._can_run:
            held = self._state.filters.for_pod(pod).rules_out_all is not None
            could = nodes_that_could_hold(self._state, self._placer, pod)
            self._can_run[key] = not held and any(True for _ in could)
        return self._can_run[key]


def _stopped(cluster: ClusterSnapshot) -> str:
    """What the controller's Lease says where none runs; "" where one does, or nothing tells. Clocks differ, so a holder
    is given the benefit of the doubt."""
    if cluster.lease is None:
        return ""
    key, spec = key_of(cluster.lease), cluster.lease.spec
    age = abs(cluster.now - datetime.fromisoformat(spec.renew_time)).total_seconds() if spec.renew_time else 0.0
    if not spec.holder_identity:
        # The next leader takes over within seconds.
        return f"no controller runs: nobody holds lease {key}" if age > BETWEEN_LEADERS else ""
    if age <= RENEWED_WITHIN * spec.lease_duration_seconds:
        return ""
    return f"no controller seems to run: {spec.holder_identity} renewed lease {key} {age:.0f} s ago"


def _ruled_out(state: ClusterState, pod: Pod, request: PodRequest) -> dict[str, list[str]]:
    nodes: dict[str, list[str]] = {}
    for name in sorted(state.ledger.nodes):
        if reason := _why_not(state, pod, request, name):
            nodes.setdefault(reason, []).append(name)
    return dict(sorted(nodes.items(), key=lambda item: -len(item[1])))


def _why_not(state: ClusterState, pod: Pod, request: PodRequest, name: NodeName) -> str | None:
    """What rules this node out; None if nothing does."""
    record = state.ledger.nodes[name]
    if reason := node_out(state, pod, name) or state.capacities.short(name, request.other_amounts):
        return reason
    if reason := state.filters.for_pod(pod)(name):
        return reason
    plan = first_plan(state.ledger.placer, request.demands(lambda each: each == name))
    if not isinstance(plan, Refusal):
        return state.capacities.short(name, request.our_amounts)
    closed = state.ledger.closed(name)
    if record.gpus and len(closed) == len(record.gpus):
        return "; ".join(dict.fromkeys(message for reasons in closed.values() for message in reasons.values()))
    if not record.gpus and record.unusable:
        return "; ".join(dict.fromkeys(record.unusable.values()))
    if never := never_held(state, request, name):
        return never
    # The remedy is printed once, for all nodes together.
    reason = plan.reason.partition(";")[0]
    return reason if "admits the pod" not in reason else lacking(state, request, name)


def _gated(state: ClusterState, pod: Pod, condition: PodCondition | None) -> tuple[Stage, str]:
    reservation = state.ledger.reservations.get(pod.metadata.uid)
    stage = Stage.STARTING if reservation is not None and reservation.phase(pod) is Phase.CREATED else Stage.CREATING
    written = pod.condition(names.SLICE_READY)
    if stage is Stage.STARTING and written is not None and written.reason == PodReason.UNGATE_REFUSED:
        return stage, written.message  # only the controller has the API server's answer
    if condition is not None and written is not None and reservation is not None and reservation.unanswered:
        # Only the controller knows its own time limit, and where the pod was before.
        about = condition.message.partition(": ")[0]
        if written.reason == condition.reason and written.message.partition(": ")[0] == about:
            return stage, written.message
    return stage, condition.message if condition else "is about to be ungated"


def _past_the_gate(pod: Pod, condition: PodCondition | None) -> tuple[Stage, str]:
    if not was_given_slices(pod):
        stage = Stage.TROUBLED
        message = "is past its gate without slices: our webhook did not see it when it was created; create it again"
    elif condition is None or not condition.ready:
        stage, message = Stage.TROUBLED, condition.message if condition else "its slices are not known"
    elif pod.spec.node_name:
        stage = Stage.RUNNING if pod.status.phase == "Running" else Stage.STARTING
        message = condition.message
    else:
        stage, message = Stage.STARTING, f"{condition.message}; waits for the scheduler to bind it: {why_unbound(pod)}"
    if pod.metadata.deletion_timestamp is not None:
        message += "; it is being deleted, and its slices are released when its containers have ended"
    return stage, message


def _dispatcher(cluster: ClusterSnapshot, policy: Policy) -> tuple[Dispatcher, list[str]]:
    """What the controller would know, and the objects that it could not handle."""
    now = cluster.now.timestamp()
    state = ClusterState(policy)
    made = Dispatcher(state, NullOrders(), lambda: now, Random(0), Limits())
    # In the order in which the controller starts: storage, nodes, allocations, pods.
    state.filters.volumes_known = cluster.storage is not None
    made.set_silent_leases(cluster.silent_leases)
    for namespace in cluster.namespaces:
        made.namespace_changed(None, namespace)
    for stored in cluster.storage or ():
        made.storage_changed(None, stored)
    for node in cluster.nodes:
        made.node_changed(None, node)
    for instaslice in cluster.instaslices:
        made.instaslice_changed(None, instaslice)
    for pod in cluster.pods:
        made.pod_changed(None, pod)
    made.start()
    left_out = [f"{unread.object}: {unread.why}" for unread in cluster.unread]
    pods = {pod.metadata.uid: str(key_of(pod)) for pod in cluster.pods}
    left_out += [f"{kind} {pods[key] if kind is ObjectKind.POD else key}: {why}" for kind, key, why in state.quarantine]
    return made, left_out


def _locations(cluster: ClusterSnapshot, uid: str) -> list[ExplainedSlice]:
    found: list[ExplainedSlice] = []
    for instaslice in cluster.instaslices:
        indexes = {gpu.uuid: gpu.index for gpu in instaslice.status.gpus}
        prepared = {each.id: each for each in instaslice.status.slices}
        for a in instaslice.spec.allocations:
            if a.pod.uid != uid or not a.wanted:
                continue
            made = prepared.get(a.id)
            found.append(
                ExplainedSlice(
                    node=instaslice.metadata.name,
                    gpu=a.gpu,
                    index=indexes.get(a.gpu),
                    profile=a.profile,
                    start=a.start,
                    container=a.container,
                    state=str(made.state) if made else "not reported yet",
                    mig_uuid=made.mig_uuid if made else None,
                )
            )
    return found
