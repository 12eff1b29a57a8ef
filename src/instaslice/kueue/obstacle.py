"""What keeps a workload from ever being admitted as things are, and the remedy.

Pure. What passes by itself, such as a quota in use, is none. Reads queues where they tell, and Kueue's own message
where only that does: `Workload namespace doesn't match ClusterQueue selector`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from instaslice.api import names
from instaslice.kube.core import LabelSelector
from instaslice.kueue.configuration import charged_gb
from instaslice.kueue.objects import ClusterQueue, KueueWorkload, LocalQueue
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.kueue.workload_state import (
    AdmissionState,
    admission_state,
    charged_amounts,
    condition_of_workload,
)

QUEUES = "`instaslice kueue manifests`"
CONFIGURATION = "`instaslice kueue manifests --config`"
RESUMED = """-p '{"spec":{"stopPolicy":"None"}}'"""
DEACTIVATED = "Deactivated"
"""What the reason of an eviction starts with that goes with it: `DeactivatedDueToRequeuingLimitExceeded`."""


class ObstacleKind(StrEnum):
    DEACTIVATED = "deactivated"
    STOPPED = "queue stopped"
    NO_QUEUE = "no such queue"
    INACTIVE = "queue inactive"
    NAMESPACE = "namespace not selected"
    NOT_COVERED = "resource not covered"
    TOO_MUCH = "more than the quota"


DECIDED = (ObstacleKind.DEACTIVATED, ObstacleKind.STOPPED)
"""What somebody has decided, and nothing is wrong."""


@dataclass(frozen=True)
class Obstacle:
    """`about` is the object to change; `message` says what is wrong with it."""

    kind: ObstacleKind
    about: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}"


def obstacle_of(kueue: KueueSnapshot, workload: KueueWorkload) -> Obstacle | None:
    """The first thing that has to change before the workload can get its quota; None where nothing has to."""
    match admission_state(workload):
        case AdmissionState.DEACTIVATED:
            return _deactivated(workload)
        case AdmissionState.PENDING:
            return _of_local_queue(kueue, workload) or _of_cluster_queue(kueue, workload)
        case _:
            return None


def uncovered(workload: KueueWorkload, queue: ClusterQueue | None) -> list[str]:
    """The resources for which Kueue found no quota in the queue, by its own message: it can be told to ignore what no
    queue covers. None is a queue that may not be read."""
    groups = queue.spec.resource_groups or () if queue is not None else ()
    covered = {name for group in groups for name in group.covered_resources or ()}
    said = _message(workload)
    mark = "resource {}" if queue is not None else "resource {} unavailable in ClusterQueue"
    return [name for name in charged_amounts(workload) if name not in covered and mark.format(name) in said]


def not_covered(resource: str, queue: str) -> Obstacle:
    """What to do where a queue does not cover a resource."""
    about, message = f"clusterqueue {queue}", f"ClusterQueue {queue} has no quota of {resource}"
    if resource.startswith(names.NVIDIA_RESOURCE) and resource not in charged_gb():
        message += ", and it is no profile of a known GPU"
        remedy = "ask for one that exists: `instaslice status` shows the GPUs of the cluster"
    elif resource.startswith(names.NVIDIA_RESOURCE):
        about = "Kueue's configuration"
        message += f", and Kueue's configuration does not replace it by {names.MEMORY}"
        remedy = f"give Kueue the transformations that {CONFIGURATION} prints, and restart it"
    elif resource.startswith(names.RESOURCE):
        about = "Kueue's configuration"
        message += f", and Kueue's configuration does not exclude {names.RESOURCE}*"
        remedy = f"give Kueue the excluded prefix that {CONFIGURATION} prints, and restart it"
    elif resource == names.MEMORY:
        remedy = f"add {resource} to its coveredResources with a quota, as {QUEUES} prints it"
    else:
        remedy = f"add {resource} to its coveredResources with a quota"
    return Obstacle(ObstacleKind.NOT_COVERED, about, message, remedy)


def _deactivated(workload: KueueWorkload) -> Obstacle:
    evicted = condition_of_workload(workload, "Evicted")
    # Of an eviction before, the condition stays.
    by_that = evicted is not None and evicted.status == "True" and evicted.reason.startswith(DEACTIVATED)
    why = f" ({evicted.reason}: {evicted.message})" if evicted is not None and by_that else ""
    key = workload.metadata
    remedy = f"""kubectl patch workload {key.name} -n {key.namespace} --type merge -p '{{"spec":{{"active":true}}}}'"""
    return Obstacle(
        ObstacleKind.DEACTIVATED,
        f"workload {key.namespace}/{key.name}",
        f"its Workload is deactivated{why}",
        f"to have it queued again: {remedy}",
    )


def _of_local_queue(kueue: KueueSnapshot, workload: KueueWorkload) -> Obstacle | None:
    name, namespace = workload.spec.queue_name, workload.metadata.namespace
    about = f"localqueue {namespace}/{name}"
    queue = kueue.local_queue(workload)
    if queue is None:
        if kueue.local_queues is None:
            return None
        there = [each.metadata.name for each in kueue.local_queues if each.metadata.namespace == namespace]
        message = f"LocalQueue {name} does not exist in namespace {namespace}"
        others = f"name one of those that do ({', '.join(sorted(there))})" if there else "none does"
        return Obstacle(ObstacleKind.NO_QUEUE, about, message, f"create it, or {others}" if there else "create it")
    if queue.spec.stop_policy != "None":
        return _stopped(queue, "LocalQueue", about, f"localqueue {name} -n {namespace}")
    return None


def _of_cluster_queue(kueue: KueueSnapshot, workload: KueueWorkload) -> Obstacle | None:
    name = kueue.cluster_queue_name(workload)
    queue = kueue.cluster_queue(name)
    if not name:
        return None
    if queue is not None:
        if not_open := _not_open(queue):
            return not_open
    elif kueue.cluster_queues is not None:
        message = f"ClusterQueue {name} does not exist"
        remedy = f"create it, or name another in LocalQueue {workload.spec.queue_name}"
        return Obstacle(ObstacleKind.NO_QUEUE, f"clusterqueue {name}", message, remedy)
    said = _message(workload)
    if "doesn't match ClusterQueue selector" in said:
        return _other_namespace(workload, name, queue)
    if missing := uncovered(workload, queue):
        return not_covered(missing[0], name)
    if "maximum capacity" in said:
        return Obstacle(
            ObstacleKind.TOO_MUCH,
            f"workload {workload.metadata.namespace}/{workload.metadata.name}",
            f"it asks for more than ClusterQueue {name} can ever give ({said})",
            "no workload that ends helps: ask for less, or raise the quota",
        )
    return None


def _not_open(queue: ClusterQueue) -> Obstacle | None:
    name = queue.metadata.name
    about = f"clusterqueue {name}"
    if queue.spec.stop_policy != "None":
        return _stopped(queue, "ClusterQueue", about, about)
    active = next((each for each in queue.status.conditions or () if each.type == "Active"), None)
    if active is None or active.status != "False":
        return None
    message = f"ClusterQueue {name} is inactive ({active.reason}: {active.message})"
    return Obstacle(ObstacleKind.INACTIVE, about, message, "create what it names, or take it out of the queue")


def _stopped(queue: ClusterQueue | LocalQueue, kind: str, about: str, argument: str) -> Obstacle:
    message = f"{kind} {queue.metadata.name} is stopped ({queue.spec.stop_policy})"
    return Obstacle(
        ObstacleKind.STOPPED, about, message, f"to resume it: kubectl patch {argument} --type merge {RESUMED}"
    )


def _other_namespace(workload: KueueWorkload, name: str, queue: ClusterQueue | None) -> Obstacle:
    message = f"ClusterQueue {name} does not take workloads of namespace {workload.metadata.namespace}"
    selector = queue.spec.namespace_selector if queue is not None else LabelSelector()
    wanted = f" ({selected})" if selector is not None and (selected := _selected(selector)) else ""
    remedy = f"label the namespace as its namespaceSelector says{wanted}, or use a LocalQueue of another ClusterQueue"
    if selector is None:
        remedy = "it has no namespaceSelector, which selects none: an empty one ({}) selects all"
    return Obstacle(ObstacleKind.NAMESPACE, f"clusterqueue {name}", message, remedy)


def _selected(selector: LabelSelector) -> str:
    labels = [f"{name}={value}" for name, value in sorted((selector.match_labels or {}).items())]
    return ", ".join([*labels, *_expressions(selector)])


def _expressions(selector: LabelSelector) -> Iterable[str]:
    for each in selector.match_expressions or ():
        values = f" ({', '.join(each.values)})" if each.values else ""
        yield f"{each.key} {each.operator}{values}"


def _message(workload: KueueWorkload) -> str:
    """What Kueue says of its quota."""
    found = condition_of_workload(workload, "QuotaReserved")
    return found.message if found is not None and found.status == "False" else ""
