"""Kueue's kinds as typed structs (`kueue.x-k8s.io/v1beta2`), each with only the fields someone here uses.

`KueueWorkload` is Kueue's Workload: the word alone means Deployments, Jobs and the like in `kube.workloads`.
"""

from datetime import datetime

import msgspec

from instaslice.kube.core import Condition, LabelSelector, PodSpec, Toleration
from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource

GROUP = "kueue.x-k8s.io"
VERSION = "v1beta2"

QUEUE_NAME = f"{GROUP}/queue-name"
"""Label of a pod, Job or other object: the LocalQueue of its namespace that it waits in."""
ADMISSION_GATE = f"{GROUP}/admission"
"""Scheduling gate of a plain pod that Kueue has not admitted."""
POD_GROUP = f"{GROUP}/pod-group-name"
"""Label of plain pods that are admitted together: the name of their Workload."""
POD_GROUP_SIZE = f"{GROUP}/pod-group-total-count"
"""Annotation: how many pods the group has. Kueue makes no Workload of it before all are there."""
ROLE_HASH = f"{GROUP}/role-hash"
"""Annotation of the pods of a group: equal for those that ask for the same, and the name of their pod set."""

QUOTA_RESERVED, ADMITTED, EVICTED, FINISHED = "QuotaReserved", "Admitted", "Evicted", "Finished"
"""Conditions of a workload."""
CHECK_ACTIVE = "Active"
"""Condition of an AdmissionCheck: its controller works on it. A ClusterQueue with one that is not admits nothing."""
PENDING, READY, RETRY = "Pending", "Ready", "Retry"
"""States of a check. Pending keeps the quota of the workload reserved, Retry releases it."""

Amounts = dict[str, str | int]
"""Quantities by resource name, as the API server writes them."""


class PodTemplate(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class PodSet(ApiStruct, frozen=True):
    """Pods of a workload that are alike."""

    name: str = ""
    count: int = 1
    template: PodTemplate = PodTemplate()


class PodSetAssignment(ApiStruct, frozen=True):
    name: str = ""
    count: int | None = None
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    """The ResourceFlavor by resource name."""
    resource_usage: Amounts = msgspec.field(default_factory=dict)
    """What is charged for all pods of the set together."""


class QuotaReservation(ApiStruct, frozen=True):
    """`status.admission` of a workload: the quota that it holds; it is admitted once its checks are ready too."""

    cluster_queue: str = ""
    pod_set_assignments: list[PodSetAssignment] | None = None


class RequeueState(ApiStruct, frozen=True):
    count: int | None = None
    requeue_at: datetime | None = None


class PodSetUpdate(ApiStruct, frozen=True):
    """What Kueue adds to the pods of a set when it admits their workload."""

    name: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class AdmissionCheckState(ApiStruct, frozen=True):
    """What the controller of an AdmissionCheck says of one workload: Pending, Ready, Retry or Rejected."""

    name: str = ""
    state: str = ""
    last_transition_time: datetime | None = None
    message: str = ""
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    """How often it was Retry, since the workload was last evicted for another reason."""
    pod_set_updates: list[PodSetUpdate] | None = None


class PodSetRequest(ApiStruct, frozen=True):
    """What Kueue counted for all pods of a set together when it last considered the workload: after its
    transformations."""

    name: str = ""
    resources: Amounts = msgspec.field(default_factory=dict)


class ReclaimablePod(ApiStruct, frozen=True):
    """Pods of a set that have ended and are no longer charged."""

    name: str = ""
    count: int = 0


class KueueWorkloadSpec(ApiStruct, frozen=True):
    pod_sets: list[PodSet] | None = None
    queue_name: str = ""
    priority: int | None = None
    active: bool = True


class KueueWorkloadStatus(ApiStruct, frozen=True):
    conditions: list[Condition] | None = None
    admission: QuotaReservation | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: list[ReclaimablePod] | None = None
    admission_checks: list[AdmissionCheckState] | None = None
    resource_requests: list[PodSetRequest] | None = None
    """Of a workload without quota."""


class KueueWorkload(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: KueueWorkloadSpec = KueueWorkloadSpec()
    status: KueueWorkloadStatus = KueueWorkloadStatus()

    def condition(self, kind: str) -> Condition | None:
        return next((each for each in self.status.conditions or () if each.type == kind), None)

    def has(self, kind: str) -> bool:
        """Whether a condition is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"


class QuotaOfResource(ApiStruct, frozen=True):
    name: str = ""
    nominal_quota: str | int = 0
    borrowing_limit: str | int | None = None
    lending_limit: str | int | None = None


class FlavorQuotas(ApiStruct, frozen=True):
    name: str = ""
    resources: list[QuotaOfResource] | None = None


class ResourceGroup(ApiStruct, frozen=True):
    covered_resources: list[str] | None = None
    flavors: list[FlavorQuotas] | None = None


class CheckOfQueue(ApiStruct, frozen=True):
    name: str = ""


class ChecksOfQueue(ApiStruct, frozen=True):
    admission_checks: list[CheckOfQueue] | None = None


class AdmissionScope(ApiStruct, frozen=True):
    """Whether LocalQueues take turns by what they used before, and not their workloads by age alone."""

    admission_mode: str = ""


class ClusterQueueSpec(ApiStruct, frozen=True):
    resource_groups: list[ResourceGroup] | None = None
    cohort_name: str = ""
    queueing_strategy: str = "BestEffortFIFO"
    stop_policy: str = "None"
    admission_checks_strategy: ChecksOfQueue | None = None
    namespace_selector: LabelSelector | None = None
    """The namespaces whose workloads it takes; without one none."""
    admission_scope: AdmissionScope | None = None


class UsageOfResource(ApiStruct, frozen=True):
    name: str = ""
    total: str | int = 0
    borrowed: str | int = 0


class FlavorUsage(ApiStruct, frozen=True):
    name: str = ""
    resources: list[UsageOfResource] | None = None


class QueueStatus(ApiStruct, frozen=True):
    """Of a ClusterQueue and of a LocalQueue."""

    conditions: list[Condition] | None = None
    flavors_reservation: list[FlavorUsage] | None = None
    """What workloads hold that have their quota."""
    flavors_usage: list[FlavorUsage] | None = None
    """What workloads hold that are admitted."""
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0


class ClusterQueue(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: QueueStatus = QueueStatus()


class LocalQueueSpec(ApiStruct, frozen=True):
    cluster_queue: str = ""
    stop_policy: str = "None"


class LocalQueue(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: QueueStatus = QueueStatus()


class AdmissionCheckSpec(ApiStruct, frozen=True):
    controller_name: str = ""


class AdmissionCheckStatus(ApiStruct, frozen=True):
    conditions: list[Condition] | None = None


class AdmissionCheck(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class ResourceFlavorSpec(ApiStruct, frozen=True):
    """What Kueue adds to the pods that are charged to this flavor."""

    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: list[Toleration] | None = None


class ResourceFlavor(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


KUEUE_WORKLOADS = Resource(KueueWorkload, "Workload", "workloads", VERSION, GROUP)
CLUSTER_QUEUES = Resource(ClusterQueue, "ClusterQueue", "clusterqueues", VERSION, GROUP, namespaced=False)
LOCAL_QUEUES = Resource(LocalQueue, "LocalQueue", "localqueues", VERSION, GROUP)
ADMISSION_CHECKS = Resource(AdmissionCheck, "AdmissionCheck", "admissionchecks", VERSION, GROUP, namespaced=False)
RESOURCE_FLAVORS = Resource(ResourceFlavor, "ResourceFlavor", "resourceflavors", VERSION, GROUP, namespaced=False)
