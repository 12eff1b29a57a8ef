"""The Instaslice object: one per node, of the node's name, cluster-scoped.

One writer per field. The agent of the node creates the object and writes `status` (what exists); the controller
writes `spec` (what is allocated). Both send JSON patches: server-side apply costs the API server several times
as much for a list of a hundred entries, and with one writer there is nothing to merge. The lists are maps by id, so
that no two entries are alike and that others may apply.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from instaslice.api.bounds import Amount, Count, Id, Label, Message, Name, ProfileText, Size, Start, Uuid, bounded_list
from instaslice.api.geometries import ModelGeometry
from instaslice.api.names import GROUP
from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource


class AllocationState(StrEnum):
    """How far an allocation is: creating, created, ungated, deleting, deleted; or failed, with a reason."""

    CREATING = "creating"
    CREATED = "created"
    UNGATED = "ungated"
    DELETING = "deleting"
    DELETED = "deleted"
    FAILED = "failed"


class SliceState(StrEnum):
    """What the agent has made of an allocation; foreign is a slice that no allocation asked for."""

    CREATING = "creating"
    CREATED = "created"
    DELETING = "deleting"
    # Stays until the allocation is gone from the spec: otherwise the controller could not tell a destroyed
    # slice from one that the agent does not know yet.
    DELETED = "deleted"
    FAILED = "failed"
    # Its id is its MIG UUID, or `<gpu>/<gi>` where it is incomplete. The slot is taken, by whomever.
    FOREIGN = "foreign"


class Health(StrEnum):
    """Whether slices may be made on a GPU."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class ConditionStatus(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class PodRef(ApiStruct, frozen=True):
    """The pod that an allocation is for."""

    namespace: Label
    name: Name
    uid: Uuid


class Allocation(ApiStruct, frozen=True):
    """One slice that is reserved for a container, with the CPU (milli-cores) and memory (bytes) reserved beside it."""

    id: Id
    pod: PodRef
    container: Label
    """The first of the pod's containers that uses it."""
    profile: ProfileText
    gpu: Uuid
    """UUID of the GPU."""
    start: Start
    """Its first memory slice, counted from 0."""
    size: Size
    """How many memory slices it takes."""
    state: AllocationState
    cpu: Amount = 0
    """Milli-cores."""
    memory: Amount = 0
    """Bytes."""
    asked_gb: Count = 0
    """GB of GPU memory that its container asked for, where it named no profile. The kubelet then knows the slice by
    another resource than that of its profile."""
    reason: Message = ""
    """Why it is being deleted."""

    @property
    def wanted(self) -> bool:
        """Whether its slice is to exist. The agent acts on this alone; the rest of `state` is for people to read. Our
        controller writes `deleting` for one that is not; `deleted` and `failed` by other writers mean the same."""
        return self.state not in (AllocationState.DELETING, AllocationState.DELETED, AllocationState.FAILED)


class InstasliceSpec(ApiStruct, frozen=True):
    """What is reserved on this node. Written by the controller alone."""

    # No default, so that an empty list is sent: the server makes null of an applied `spec: {}` that removes the last
    # entry, and then refuses it.
    allocations: Annotated[tuple[Allocation, ...], bounded_list(512, "id")]


class GpuStatus(ApiStruct, frozen=True):
    """One GPU of the node; `model` names an entry of `models`."""

    uuid: Uuid
    index: Count
    """Its number in the machine."""
    model: Name
    health: Health
    reason: Message = ""
    """What is wrong with it."""


class PreparedSlice(ApiStruct, frozen=True):
    """A slice on the hardware, or what became of one; its id is that of the allocation that it is for."""

    id: Id
    gpu: Uuid
    """UUID of the GPU."""
    profile: ProfileText
    start: Start
    """Its first memory slice, counted from 0."""
    size: Size
    """How many memory slices it takes."""
    state: SliceState
    mig_uuid: Uuid | None = None
    """What programs address it by."""
    gi: Count | None = None
    """Its GPU instance, by the driver's number."""
    ci: Count | None = None
    """Its compute instance, by the driver's number."""
    reason: Message = ""
    """Why it failed, or why it is not destroyed yet."""
    holder: Annotated[str, Meta(max_length=64)] | None = None
    """Of a foreign slice: the uid of the pod that holds it by the kubelet's word; empty where the kubelet names none,
    left out where there is no kubelet to ask."""


READY = "Ready"
"""The condition that says whether pods can start with slices on the node."""


class InstasliceCondition(ApiStruct, frozen=True):
    """A condition as Kubernetes writes them."""

    type: Name
    status: ConditionStatus
    reason: Name
    last_transition_time: Annotated[datetime, Meta(tz=True)]
    message: Message = ""
    observed_generation: Amount = 0


class Summary(ApiStruct, frozen=True):
    """The node in a few words, for tables: a printer column can only quote a field."""

    gpus: Message
    """How many of which model."""
    slices: Count
    """How many exist."""
    free_memory: Message
    """GB that no slice takes on healthy GPUs, of all."""


class InstasliceStatus(ApiStruct, frozen=True):
    """What is on this node. Written by its agent alone. `observedGeneration` is the spec that it has taken note of."""

    observed_generation: Amount  # no default: a status must not be empty, see Spec
    """The generation of the spec that the agent has taken note of."""
    lease: Name | None = None
    """The Lease that its agent renews while it runs, in the controller's namespace; left out where the kubelet shows
    whether it does, by what the node has allocatable."""
    boot_id: Uuid | None = None
    """Changes when the machine restarts: all slices are gone then."""
    models: Annotated[tuple[ModelGeometry, ...], bounded_list(16, "name")] = ()
    gpus: Annotated[tuple[GpuStatus, ...], bounded_list(64, "uuid")] = ()
    slices: Annotated[tuple[PreparedSlice, ...], bounded_list(1024, "id")] = ()
    conditions: Annotated[tuple[InstasliceCondition, ...], bounded_list(16, "type")] = ()
    summary: Summary | None = None


EMPTY_SPEC = InstasliceSpec(allocations=())
EMPTY_STATUS = InstasliceStatus(observed_generation=0)


class Instaslice(ApiStruct, frozen=True):
    """The GPUs of one node: the slices reserved for pods and the slices that exist."""

    metadata: ObjectMeta
    spec: InstasliceSpec = EMPTY_SPEC
    status: InstasliceStatus = EMPTY_STATUS


INSTASLICES = Resource(Instaslice, "Instaslice", "instaslices", version="v1alpha1", group=GROUP, namespaced=False)
