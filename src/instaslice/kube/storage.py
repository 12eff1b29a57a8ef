"""Volumes, and what decides where they can be used: claims, classes, drivers. Only with fields that are read."""

from typing import Any, Final

from instaslice.kube.core import LabelSelector, NodeSelector
from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource

BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"


class StorageRequests(ApiStruct, frozen=True):
    requests: dict[str, str] | None = None

    @property
    def storage(self) -> str:
        return (self.requests or {}).get("storage", "")


class ClaimSpec(ApiStruct, frozen=True):
    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: StorageRequests = StorageRequests()
    volume_name: str = ""
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""


class ClaimStatus(ApiStruct, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def class_name(self) -> str:
        return self.metadata.annotations.get(BETA_CLASS, self.spec.storage_class_name)

    @property
    def bound(self) -> bool:
        """Fully: the volume knows of it too."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations


class VolumeNodeAffinity(ApiStruct, frozen=True):
    required: NodeSelector | None = None


class ClaimReference(ApiStruct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CSISource(ApiStruct, frozen=True):
    driver: str
    volume_handle: str


class VolumeSpec(ApiStruct, frozen=True):
    capacity: dict[str, str] | None = None
    access_modes: list[str] | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSISource | None = None

    @property
    def storage(self) -> str:
        return (self.capacity or {}).get("storage", "")


class VolumeStatus(ApiStruct, frozen=True):
    phase: str = ""


class PersistentVolume(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def class_name(self) -> str:
        return self.metadata.annotations.get(BETA_CLASS, self.spec.storage_class_name)


class TopologyRequirement(ApiStruct, frozen=True):
    key: str
    values: list[str] | None = None


class TopologyTerm(ApiStruct, frozen=True):
    match_label_expressions: list[TopologyRequirement] | None = None


class StorageClass(ApiStruct, frozen=True):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] | None = None


class Attachable(ApiStruct, frozen=True):
    count: int | None = None


class NodeDriver(ApiStruct, frozen=True):
    name: str
    allocatable: Attachable | None = None


class CSINodeSpec(ApiStruct, frozen=True):
    drivers: list[NodeDriver] | None = None


class CSINode(ApiStruct, frozen=True):
    """The drivers of one node, and how many volumes each may attach there."""

    metadata: ObjectMeta
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(ApiStruct, frozen=True):
    storage_capacity: bool = False
    prevent_pod_scheduling_if_missing: bool = False


class CSIDriver(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(ApiStruct, frozen=True):
    """What a driver could still make of one class for the nodes of one topology."""

    metadata: ObjectMeta
    storage_class_name: str
    node_topology: LabelSelector | None = None
    capacity: str = ""
    maximum_volume_size: str = ""


class AttachmentSource(ApiStruct, frozen=True):
    persistent_volume_name: str = ""


class AttachmentSpec(ApiStruct, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: AttachmentSpec = AttachmentSpec()


_GROUP: Final = "storage.k8s.io"
CLAIMS = Resource(PersistentVolumeClaim, "PersistentVolumeClaim", "persistentvolumeclaims")
VOLUMES = Resource(PersistentVolume, "PersistentVolume", "persistentvolumes", namespaced=False)
CLASSES = Resource(StorageClass, "StorageClass", "storageclasses", group=_GROUP, namespaced=False)
CSI_NODES = Resource(CSINode, "CSINode", "csinodes", group=_GROUP, namespaced=False)
CSI_DRIVERS = Resource(CSIDriver, "CSIDriver", "csidrivers", group=_GROUP, namespaced=False)
CSI_CAPACITIES = Resource(CSIStorageCapacity, "CSIStorageCapacity", "csistoragecapacities", group=_GROUP)
ATTACHMENTS = Resource(VolumeAttachment, "VolumeAttachment", "volumeattachments", group=_GROUP, namespaced=False)

StorageObject = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
)
STORAGE_KINDS: Final[tuple[Resource[Any], ...]] = (
    CLAIMS,
    VOLUMES,
    CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_CAPACITIES,
    ATTACHMENTS,
)
"""All kinds that kube-scheduler reads to place a pod with volumes."""
