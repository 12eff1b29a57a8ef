"""The Kubernetes kinds we read and write, each with only the fields someone here uses.

Add a field when code reads it, not before: the price of a field is paid for every object in every cache.
"""

from datetime import datetime

import msgspec

from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource


class PartialObjectMetadata(ApiStruct, frozen=True):
    """Any object, where only its metadata matters."""

    metadata: ObjectMeta


class Namespace(ApiStruct, frozen=True):
    metadata: ObjectMeta


class SchedulingGate(ApiStruct, frozen=True):
    name: str


class ResourceRequirements(ApiStruct, frozen=True):
    limits: dict[str, str | int] = msgspec.field(default_factory=dict)
    requests: dict[str, str | int] = msgspec.field(default_factory=dict)


class ContainerPort(ApiStruct, frozen=True):
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(ApiStruct, frozen=True):
    name: str
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    ports: list[ContainerPort] | None = None

    @property
    def sidecar(self) -> bool:
        """Of an init container: it runs on beside the containers that follow."""
        return self.restart_policy == "Always"


class Toleration(ApiStruct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(ApiStruct, frozen=True):
    """One line of a node selector term: a label or field, `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`. Label
    selectors have the first four."""

    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(ApiStruct, frozen=True):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(ApiStruct, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredTerm(ApiStruct, frozen=True):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(ApiStruct, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class LabelSelector(ApiStruct, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class PodAffinityTerm(ApiStruct, frozen=True):
    """The API server has merged `matchLabelKeys` and `mismatchLabelKeys` into the selector."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedTerm(ApiStruct, frozen=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(ApiStruct, frozen=True):
    """Towards other pods, or away from them."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[WeightedTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(ApiStruct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ClaimSource(ApiStruct, frozen=True):
    claim_name: str


class EphemeralSource(ApiStruct, frozen=True):
    """A volume for which Kubernetes makes a claim of its own, named after pod and volume."""


class Disk(ApiStruct, frozen=True):
    """A volume that the pod names itself and that only one pod of a node may write to: a disk in Google's or Amazon's
    cloud, iSCSI, Ceph. Each kind fills in its own fields."""

    pd_name: str = ""
    volume_id: str = msgspec.field(name="volumeID", default="")
    iqn: str = ""
    monitors: list[str] | None = None
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class Volume(ApiStruct, frozen=True):
    name: str
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    gce_persistent_disk: Disk | None = None
    aws_elastic_block_store: Disk | None = None
    iscsi: Disk | None = None
    rbd: Disk | None = None


class PodSpec(ApiStruct, frozen=True):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    priority: int = 0
    scheduler_name: str = "default-scheduler"
    overhead: dict[str, str | int] | None = None
    # Requests of the pod as a whole, which count in place of its containers'.
    resources: ResourceRequirements | None = None


class Condition(ApiStruct, frozen=True):
    """A condition of a pod or a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(ApiStruct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None


class Pod(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> bool:
        """Succeeded or failed: nothing of it runs, or will run again."""
        return self.status.phase in ("Succeeded", "Failed")

    def condition(self, name: str) -> Condition | None:
        return next((each for each in self.status.conditions or () if each.type == name), None)


class Taint(ApiStruct, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(ApiStruct, frozen=True):
    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeStatus(ApiStruct, frozen=True):
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: list[Condition] | None = None


class Node(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())


class LeaseSpec(ApiStruct, frozen=True):
    """Times are strings: the server takes exactly six digits after the second, which `micro_time` writes."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(ApiStruct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


class ObjectReference(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(ApiStruct, frozen=True):
    count: int
    last_observed_time: str


class Event(ApiStruct, frozen=True):
    """events.k8s.io/v1."""

    metadata: ObjectMeta
    regarding: ObjectReference
    # No default: a field at its default is not sent, and the server wants this one always.
    type: str
    event_time: str | None = None
    reason: str = ""
    action: str = ""
    note: str = ""
    reporting_controller: str = ""
    reporting_instance: str = ""
    series: EventSeries | None = None


NAMESPACES = Resource(Namespace, "Namespace", "namespaces", namespaced=False)
PODS = Resource(Pod, "Pod", "pods")
NODES = Resource(Node, "Node", "nodes", namespaced=False)
CONFIG_MAPS = Resource(ConfigMap, "ConfigMap", "configmaps")
LEASES = Resource(Lease, "Lease", "leases", group="coordination.k8s.io")
EVENTS = Resource(Event, "Event", "events", group="events.k8s.io")
