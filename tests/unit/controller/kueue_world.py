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

    def queue(self, name, *profiles, count=1, namespace="team", retries=None, check=CHECK, **limits):
        """A Job of so many pods whose workload has reserved its quota; each pod has a container a profile."""
        written = [{f"{names.NVIDIA_RESOURCE}{profile}": "1"} for profile in profiles] or [{}]
        containers = [
            Container(name=f"c{i}", resources=ResourceRequirements(limits={**each, **limits}))
            for i, each in enumerate(written)
        ]
        pods = PodSet(name="main", count=count, template=PodTemplate(spec=PodSpec(containers=containers)))
        state = AdmissionCheckState(name=check, state=PENDING, retry_count=retries)
        status = KueueWorkloadStatus(
            conditions=[self.condition(QUOTA_RESERVED)],
            admission=QuotaReservation("gpu", [PodSetAssignment(name="main", count=count)]),
            admission_checks=[state],
        )
        meta = ObjectMeta(namespace=namespace, name=name, uid=f"workload-{name}", creation_timestamp=self.clock.now())
        self.put(KueueWorkload(metadata=meta, spec=KueueWorkloadSpec(pod_sets=[pods]), status=status))

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

    def later(self, seconds):
        return self.clock.now() + timedelta(seconds=seconds)
