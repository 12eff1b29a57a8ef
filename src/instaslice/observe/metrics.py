"""Every metric that our processes have: its name, what it means, its labels, and which process has it.

Units are Prometheus' base units and part of the name, ratios go from 0 to 1. The reference in docs/metrics.md is
written from here. Labels are bounded: each says by what in LABELS, and a test fails where it does not.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What a metric does over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class Component(StrEnum):
    """Which of our processes has a metric."""

    CONTROLLER = "controller"
    WEBHOOK = "webhook"
    AGENT = "agent"


class Bound(StrEnum):
    """What limits the values of a label, and with it the number of series."""

    LISTED = "listed"
    """A fixed list in our code."""
    MODELS = "models"
    """The GPU models of the cluster and their profiles."""
    API = "api"
    """The kinds of objects that we read and write, and the codes of HTTP."""
    NODE = "node"
    """What one node has: its GPUs, and the slices that exist on them now."""


LABELS: Final = {
    "code": (Bound.API, "HTTP status of the answer; `none` where there was none"),
    "component": (Bound.LISTED, "`controller`, `webhook` or `agent`"),
    "kind": (Bound.LISTED, "`pod`, `node` or `instaslice`"),
    "model": (Bound.MODELS, "GPU model, `A100-40GB`"),
    "operation": (Bound.LISTED, "`create`, `destroy` or `list`"),
    "profile": (Bound.MODELS, "profile, `1g.5gb`; `other` where no GPU of the node has it"),
    "queue": (Bound.LISTED, "what the worker behind the queue does"),
    "reason": (Bound.LISTED, "why, one of a fixed list"),
    "resource": (Bound.API, "plural of the kind, `pods`; `raw` for a request that is for none"),
    "result": (Bound.LISTED, "`changed`, `unchanged`, `refused` or `not a review`"),
    "state": (Bound.LISTED, "one of a fixed list"),
    "verb": (Bound.API, "`get`, `list`, `watch`, `create`, `replace`, `apply`, `patch` or `delete`"),
    "version": (Bound.LISTED, "our version"),
    "node": (Bound.NODE, "name of the node"),
    "gpu": (Bound.NODE, "index of the GPU in its node, as in DCGM's metrics"),
    "UUID": (Bound.NODE, "UUID of the GPU, as in DCGM's metrics"),
    "GPU_I_ID": (Bound.NODE, "GPU instance id, as in DCGM's metrics"),
    "GPU_I_PROFILE": (Bound.NODE, "profile, as in DCGM's metrics"),
    "mig_uuid": (Bound.NODE, "UUID of the MIG device"),
    "namespace": (Bound.NODE, "namespace of the pod that has the slice"),
    "pod": (Bound.NODE, "its name"),
    "container": (Bound.NODE, "its container"),
}
"""Label → what limits its values, and what it says."""

EVERYONE: Final = tuple(Component)
LONG: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)
"""Seconds, from what an emulated GPU takes to a working day."""
SHORT: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1)
HARDWARE: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class Metric:
    """One metric. `help` is a sentence for people who have not read our code."""

    name: str
    kind: Kind
    help: str
    components: tuple[Component, ...]
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Of a histogram, their upper bounds."""


def _gauge(name: str, component: Component, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, text, (component,), labels)


def _counter(name: str, component: Component, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, text, (component,), labels)


def _histogram(name: str, component: Component, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, text, (component,), labels, buckets)


# Every process -------------------------------------------------------------------------------------------------------

BUILD = Metric(
    "instaslice_build_info",
    Kind.INFO,
    "Always 1; the labels say which version of which process this is.",
    EVERYONE,
    ("version", "component"),
)
API_REQUESTS = Metric(
    "instaslice_api_requests_total",
    Kind.COUNTER,
    "Requests to the API server, each try by itself.",
    EVERYONE,
    ("verb", "resource", "code"),
)
WATCH_RESTARTS = Metric(
    "instaslice_watch_restarts_total",
    Kind.COUNTER,
    "Watches that were opened again: `ended` by the server, which is normal every few minutes, `gone` (listed again), "
    "`quiet` (no news for long), `failed`.",
    EVERYONE,
    ("resource", "reason"),
)

# The controller; all but the first two only from the one that leads --------------------------------------------------

LEADER = _gauge("instaslice_leader", Component.CONTROLLER, "1 on the controller that leads, 0 on a standby.")
LEASE_AGE = _gauge(
    "instaslice_lease_renewal_age_seconds",
    Component.CONTROLLER,
    "Time since the leader renewed its Lease, or a standby last tried to get it.",
)
ALLOCATIONS = _gauge(
    "instaslice_allocations",
    Component.CONTROLLER,
    "Slices that are allocated to pods, by how far they are.",
    "state",
)
STATE_SECONDS = _histogram(
    "instaslice_state_seconds",
    Component.CONTROLLER,
    "Time that pods were waiting, and that allocations were in each state, observed when the state is left.",
    LONG,
    "state",
)
STATE_OLDEST = _gauge(
    "instaslice_state_oldest_seconds",
    Component.CONTROLLER,
    "Time that the oldest has been in its state: a pod that waits, an allocation in any other. Counted from the start "
    "of the controller where it does not know more.",
    "state",
)
WAITING_PODS = _gauge(
    "instaslice_waiting_pods",
    Component.CONTROLLER,
    "Pods that have our gate, by the reason in their condition gpu.das.com/SliceReady; `Unknown` before it is written.",
    "reason",
)
QUEUE = _gauge("instaslice_queue_length", Component.CONTROLLER, "Pods in the queue for a placement.")
WORK_QUEUE = _gauge(
    "instaslice_work_queue_length", Component.CONTROLLER, "Orders that are yet to be carried out.", "queue"
)
DECISION_SECONDS = _histogram(
    "instaslice_decision_seconds",
    Component.CONTROLLER,
    "Time of one pass over the queue, in which any number of pods is placed.",
    SHORT,
)
GPUS = _gauge(
    "instaslice_gpus",
    Component.CONTROLLER,
    "GPUs by whether slices are placed on them: `open`, or why not; of several reasons the first of the list counts.",
    "model",
    "state",
)
MEMORY = _gauge(
    "instaslice_gpu_memory_bytes",
    Component.CONTROLLER,
    "GPU memory as models are labelled (1 GB is 10^9 bytes): `allocated`; `free` for further slices; `unusable`, free "
    "but where no sequence of further slices could reach it; `closed`, free on GPUs where nothing is placed.",
    "model",
    "state",
)
LARGEST = _gauge(
    "instaslice_largest_free_slice_bytes",
    Component.CONTROLLER,
    "Memory of the largest profile that still fits on an open GPU of the model; 0 where none does.",
    "model",
)
ROOM = _gauge(
    "instaslice_gpus_with_room",
    Component.CONTROLLER,
    "Open GPUs on which one more slice of the profile fits.",
    "model",
    "profile",
)
HELD = _gauge(
    "instaslice_slices_held",
    Component.CONTROLLER,
    "Slots that are taken, by profile: by allocations, by foreign slices, and by placements that failed.",
    "model",
    "profile",
)
NODES = _gauge(
    "instaslice_nodes",
    Component.CONTROLLER,
    "Nodes with an Instaslice object: `serving`; `not serving`, as the agent says or because it is gone; `unreadable`, "
    "the object makes no sense.",
    "state",
)
FOREIGN = _gauge(
    "instaslice_foreign_slices", Component.CONTROLLER, "Slices on the hardware that no allocation asked for."
)
FAILED_PLACEMENTS = _gauge(
    "instaslice_failed_placements",
    Component.CONTROLLER,
    "Slots in which the hardware did not create a slice, kept free of pods until they are tried again.",
)
LOST_PODS = _gauge(
    "instaslice_lost_pods", Component.CONTROLLER, "Pods past their gate whose slices are not known any more."
)
SET_ASIDE = _gauge(
    "instaslice_set_aside_objects",
    Component.CONTROLLER,
    "Objects that could not be handled and are left alone until they change; the log says why.",
    "kind",
)
FAILURES = _counter(
    "instaslice_failures_total",
    Component.CONTROLLER,
    "Objects that were set aside, and steps that failed unexpectedly.",
)

# The webhook ---------------------------------------------------------------------------------------------------------

ADMISSIONS = _counter(
    "instaslice_admissions_total", Component.WEBHOOK, "Requests of the API server, by what became of the pod.", "result"
)

# The agent -----------------------------------------------------------------------------------------------------------

SLICE = Metric(
    "instaslice_slice_info",
    Kind.INFO,
    "Always 1; a slice that exists now and the container that it was allocated to, to join with DCGM's metrics.",
    (Component.AGENT,),
    ("UUID", "GPU_I_ID", "GPU_I_PROFILE", "mig_uuid", "namespace", "pod", "container"),
)
SLICES = _gauge("instaslice_slices", Component.AGENT, "Slices of a node as its agent reports them.", "node", "state")
GPU_HEALTHY = _gauge(
    "instaslice_gpu_healthy",
    Component.AGENT,
    "1 where slices can be made on the GPU, 0 where it is unhealthy; the condition GpusReady says why.",
    "node",
    "UUID",
    "gpu",
    "model",
)
NODE_READY = _gauge(
    "instaslice_node_ready",
    Component.AGENT,
    "1 where pods can start with slices, 0 where they cannot; the condition Ready of the Instaslice object says why.",
    "node",
)
OPERATION_SECONDS = _histogram(
    "instaslice_slice_operation_seconds",
    Component.AGENT,
    "Time of calls to the GPU's driver, failed ones too. `list` has an empty profile.",
    HARDWARE,
    "operation",
    "profile",
)
OPERATION_ERRORS = _counter(
    "instaslice_slice_operation_errors_total",
    Component.AGENT,
    "Calls to the GPU's driver that failed, by error: `InUse` is tried again until the last process is gone.",
    "operation",
    "profile",
    "reason",
)

METRICS: Final = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
