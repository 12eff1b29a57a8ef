"""Every name of ours that stands in a Kubernetes object. One place, so that nobody misspells one."""

from instaslice.geometry import ProfileName, UnknownProfile
from instaslice.geometry.names import RESOURCE_PREFIX

GROUP = "gpu.das.com"

GATE = f"{GROUP}/slice"
"""Scheduling gate of a pod whose slices do not exist yet."""

NVIDIA_RESOURCE = "nvidia.com/mig-"
"""What users write: `nvidia.com/mig-1g.5gb`; `+me` is written `.me`."""
RESOURCE = f"{GROUP}/mig-"
"""What the webhook makes of it, and what nodes advertise."""
MEMORY = f"{GROUP}/mem"
"""GPU memory in GB by profile label, for quotas. A user may ask for it alone, and gets a slice that holds it."""
ANY_SLICE = f"{RESOURCE}any"
"""What the webhook adds to a container that asks for GPU memory alone: its slice, of whatever profile."""
FIT = f"{GROUP}/fit"
"""Annotation by users: which slice an ask for GPU memory alone gets, `tight` (the default) or `any`."""
COMPUTE_SLICES = f"{GROUP}/compute-slices"
"""Annotation by users: how many compute slices such a slice has at least."""
GIVEN = f"{GROUP}/given"
"""Annotation: what such a pod got, as JSON: container → GB asked for, profile, GB of that profile."""

REQUESTED = f"{GROUP}/requested"
"""Annotation: what the pod asked for before the webhook renamed it, as JSON."""
ADMISSION = f"{GROUP}/admission"
"""Annotation: the uid of the admission request that gated the pod. A pod has no uid yet when the webhook sees it, and
often no name; by this its lines in the webhook's log are found. Nothing else depends on it."""
MIG_UUIDS = f"{GROUP}/mig-uuids"
"""Annotation: the slices that the pod was given."""
NODE = f"{GROUP}/node"
"""Annotation: the node of those slices, to which the pod was pinned when it was ungated."""
RESERVED_ANNOTATIONS = (REQUESTED, MIG_UUIDS, NODE, GIVEN)
"""Annotations that only we write, and trust."""

SLICE_READY = f"{GROUP}/SliceReady"
"""Condition of a pod: whether its slices exist; its message says why not."""

MANAGED = f"{GROUP}/managed"
"""Taint of the nodes whose GPUs are ours, where the administrator wants it."""
TAINTED = f"{GROUP}/tainted"
"""Annotation of a node: that taint is ours, and not one that the node was registered with."""
STATIC_MIG_LABELS = f"{GROUP}/static-mig-labels"
"""Annotation of a node: which labels of a static MIG layout are ours, as a digest."""
COMPANION = f"{GROUP}/companion-quota"
"""Label of a ResourceQuota that counts by our names what another one counts by NVIDIA's."""
OPT_OUT = f"{GROUP}/slicing"
"""Label of a namespace; `disabled` opts it out."""
OPTED_OUT = "disabled"

PLACEMENT_CHECK = f"{GROUP}/placement"
"""The controllerName of Kueue's AdmissionChecks that we answer."""
HELD_FOR = f"{GROUP}/held-for"
"""Annotation that Kueue gives to the pods of a workload for whose pods we hold places: its uid and the name of the pod
set. It is no secret: it only counts in the namespace of the workload."""

PLACEHOLDER = f"{GROUP}/placeholder"
"""Label of the pods that show a node autoscaler what others wait for."""
WAITING = f"{GROUP}/waiting"
"""Annotation of a placeholder: the pod that it was made for."""
PLACEHOLDER_PRIORITY = "instaslice-placeholder"
"""The PriorityClass of placeholders."""
PLACEHOLDERS = "instaslice-placeholders"
"""The namespace of placeholders. Nobody but the controller creates pods there."""

CONTROLLER = "instaslice-controller"
"""The field manager of the controller's writes."""
NAMESPACE = "instaslice-system"
"""Where we run, unless the administrator says otherwise."""
DEMAND = "instaslice-demand"
"""The ConfigMap in which the controller keeps what pods asked for, so that a restart forgets nothing of it."""
EMULATION = "instaslice-emulation"
"""The Lease that the agent of emulated nodes renews in our namespace, and that their status names."""
WEBHOOK = "instaslice-webhook"
"""The webhook's Service, and the stem of what else is named after it."""

EMULATED = "local.gpu.das.com/emulated"
"""Label of a node whose GPUs are emulated; its value is their model, by our name."""
FAULT = "local.gpu.das.com/fault"
"""Annotation of such a node: the faults that its GPUs have now."""
BOOT = "local.gpu.das.com/boot"
"""Annotation of such a node: each new value is a reboot."""
GPU_COUNT = "nvidia.com/gpu.count"
"""Label: how many GPUs a node has, as NVIDIA's feature discovery writes it."""


def resource_name(profile: ProfileName) -> str:
    """The resource that nodes advertise for a profile: `gpu.das.com/mig-1g.5gb.me`."""
    return f"{GROUP}/{profile.resource}"


def nvidia_resource_name(profile: ProfileName) -> str:
    """The resource by which users ask for a profile: `nvidia.com/mig-1g.5gb.me`."""
    return NVIDIA_RESOURCE.removesuffix(RESOURCE_PREFIX) + profile.resource


def renamed(resource: str) -> str | None:
    """What the webhook makes of a resource name; None where it leaves it as it is, or refuses it."""
    if not resource.startswith(NVIDIA_RESOURCE):
        return None
    try:
        return resource_name(ProfileName.parse(resource))
    except UnknownProfile:
        return None


def renamed_in_quota(item: str) -> str | None:
    """The same of an item of a ResourceQuota: `requests.nvidia.com/mig-1g.5gb`. Of resources like these it has no other
    form."""
    prefix, _, resource = item.partition(".")
    found = renamed(resource) if prefix == "requests" else None
    return found and f"requests.{found}"
