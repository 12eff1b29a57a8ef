"""The Kubernetes kinds we read and write, each with only the fields someone here uses.

Add a field when code reads it, not before: the price of a field is paid for every object in every cache.
"""

import msgspec

from instaslice.kube.meta import ObjectMeta, Part
from instaslice.kube.resource import Resource


class Bare(Part, frozen=True):
    """Any object, when only its name matters."""

    metadata: ObjectMeta


class Namespace(Part, frozen=True):
    metadata: ObjectMeta


class SchedulingGate(Part, frozen=True):
    name: str


class Resources(Part, frozen=True):
    limits: dict[str, str | int] = msgspec.field(default_factory=dict)
    requests: dict[str, str | int] = msgspec.field(default_factory=dict)


class Container(Part, frozen=True):
    name: str
    resources: Resources = Resources()


class PodSpec(Part, frozen=True):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    node_selector: dict[str, str] | None = None


class PodStatus(Part, frozen=True):
    phase: str = ""


class Pod(Part, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Part, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Part, frozen=True):
    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeStatus(Part, frozen=True):
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)
    capacity: dict[str, str] = msgspec.field(default_factory=dict)


class Node(Part, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(Part, frozen=True):
    """Times are strings: the server takes exactly six digits after the second, which `micro_time` writes."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(Part, frozen=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Part, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(Part, frozen=True):
    count: int
    last_observed_time: str


class Event(Part, frozen=True):
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
LEASES = Resource(Lease, "Lease", "leases", group="coordination.k8s.io")
EVENTS = Resource(Event, "Event", "events", group="events.k8s.io")
