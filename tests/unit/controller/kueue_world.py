"""A world with Kueue in it: its objects, and what Kueue does with the answers that its AdmissionChecks get."""

from datetime import timedelta

import msgspec
from world import World

from instaslice.api import names
from instaslice.kube.core import Condition, Container, PodSpec, ResourceRequirements
from instaslice.kube.meta import ObjectMeta
from instaslice.kueue.objects import (
    ADMISSION_CHECKS,
    ADMITTED,
    EVICTED,
    KUEUE_WORKLOADS,
    PENDING,
    QUOTA_RESERVED,
    RETRY,
    AdmissionCheck,
    AdmissionCheckSpec,
    AdmissionCheckState,
    KueueWorkload,
    KueueWorkloadSpec,
    KueueWorkloadStatus,
    PodSet,
    PodSetAssignment,
    PodTemplate,
    QuotaReservation,
    RequeueState,
)

CHECK = "placement"


class KueueWorld(World):
    def __init__(self, **more):
        super().__init__(admission_check=True, **more)
        spec = AdmissionCheckSpec(controller_name=names.PLACEMENT_CHECK)
        self.server.put(ADMISSION_CHECKS, AdmissionCheck(metadata=ObjectMeta(name=CHECK), spec=spec))

    @property
    def answers(self):
        return self.controller.kueue.check

    def queue(
        self,
        name,
        *profiles,
        count=1,
        namespace="team",
        retries=None,
        check=CHECK,
        priority=0,
        labels=None,
        affinity=None,
        owners=(),
        pod_set="main",
        **limits,
    ):
        """A Job of so many pods whose workload has reserved its quota; each pod has a container a profile."""
        written = [{f"{names.NVIDIA_RESOURCE}{profile}": "1"} for profile in profiles] or [{}]
        containers = [
            Container(name=f"c{i}", resources=ResourceRequirements(limits={**each, **limits}))
            for i, each in enumerate(written)
        ]
        template = PodTemplate(
            metadata=ObjectMeta(labels=labels or {}), spec=PodSpec(containers=containers, affinity=affinity)
        )
        pods = PodSet(name=pod_set, count=count, template=template)
        state = AdmissionCheckState(name=check, state=PENDING, retry_count=retries)
        status = KueueWorkloadStatus(
            conditions=[self.condition(QUOTA_RESERVED)],
            admission=QuotaReservation("gpu", [PodSetAssignment(name=pod_set, count=count)]),
            admission_checks=[state],
        )
        meta = ObjectMeta(
            namespace=namespace,
            name=name,
            uid=f"workload-{name}",
            creation_timestamp=self.clock.now(),
            owner_references=list(owners),
        )
        self.put(
            KueueWorkload(metadata=meta, spec=KueueWorkloadSpec(pod_sets=[pods], priority=priority), status=status)
        )

    # What Kueue does --------------------------------------------------------------------------------------------------

    def deeds(self):
        return sorted([*super().deeds(), *(("kueue", name) for name in self.workloads if self._kueue_work(name))])

    def _kueue_work(self, name):
        """Evicting a workload that is Retry, when its delay is over and not before; noting when it may come back."""
        workload, answer = self.workloads[name], self.answer(name)
        if answer.state != RETRY or answer.last_transition_time is None:
            return None
        due = answer.last_transition_time + timedelta(seconds=answer.requeue_after_seconds)
        requeue = workload.status.requeue_state
        if due > self.clock.now():
            return RequeueState(requeue_at=due) if requeue is None or requeue.requeue_at != due else None
        return EVICTED if not workload.has(EVICTED) else None

    def _do_kueue(self, name):
        work, answer = self._kueue_work(name), self.answer(name)
        if work is not EVICTED:
            self._change(name, requeue_state=work)
            return
        retries = (answer.retry_count or 0) + 1
        reset = msgspec.structs.replace(answer, state=PENDING, message="Reset", retry_count=retries)
        evicted = msgspec.structs.replace(self.condition(EVICTED), message=f"Evicted due to {answer.message}")
        self._change(name, conditions=[self.condition(QUOTA_RESERVED), evicted], admission_checks=[reset])
        self._change(name, conditions=[self.condition(QUOTA_RESERVED, "False"), evicted], admission=None)

    def _change(self, name, **status):
        workload = self.workloads[name]
        self.put(msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, **status)))

    def refusal(self, name):
        """Why it was not admitted, and after how many seconds Kueue brings it back; None while it holds quota."""
        workload = self.workloads[name]
        if workload.has(QUOTA_RESERVED) or self.state(name) != PENDING or workload.status.requeue_state is None:
            return None
        seconds = (workload.status.requeue_state.requeue_at - self.clock.now()).total_seconds()
        return workload.condition(EVICTED).message.removeprefix("Evicted due to "), seconds

    def put(self, workload):
        self.server.put(KUEUE_WORKLOADS, workload)

    def condition(self, kind, status="True"):
        return Condition(type=kind, status=status, last_transition_time=self.clock.now())

    def set_condition(self, name, kind):
        workload = self.workloads[name]
        left = [each for each in workload.status.conditions if each.type != kind]
        status = msgspec.structs.replace(workload.status, conditions=[*left, self.condition(kind)])
        self.put(msgspec.structs.replace(workload, status=status))

    def admit(self, name):
        """All its checks are ready."""
        self.set_condition(name, ADMITTED)

    def evict(self, name):
        self.set_condition(name, EVICTED)

    def delete(self, name):
        self.server.drop(KUEUE_WORKLOADS, self.workloads[name])

    def pod_of(self, name, *profiles, held_for=None, **more):
        """A pod of the workload, as Kueue had it created."""
        (update,) = self.answer(name).pod_set_updates
        uid = self.add_pod(*profiles, **more)
        meta = self.pods[uid].metadata
        meta = msgspec.structs.replace(meta, annotations={**meta.annotations, **(held_for or update.annotations)})
        self._set(msgspec.structs.replace(self.pods[uid], metadata=meta))
        return uid

    def answer(self, name):
        (state,) = self.workloads[name].status.admission_checks
        return state

    def state(self, name):
        return self.answer(name).state

    def held(self):
        """The profiles of all places that are held."""
        return sorted(grant.want for grant in self.dispatcher.state.ledger.held.grants())
