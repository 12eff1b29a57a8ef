"""Kueue's objects as a test writes them: workloads of jobs and pods, queues with a quota of GPU memory."""

from datetime import timedelta

import msgspec
from small_worlds import NOW

from instaslice.kueue.objects import ClusterQueue, KueueWorkload, LocalQueue
from instaslice.kueue.snapshot import KueueSnapshot

MEMORY = "gpu.das.com/mem"
NOT_COVERED = "couldn't assign flavors to pod set main: resource {} unavailable in ClusterQueue"
IN_USE = (
    "couldn't assign flavors to pod set main: insufficient unused quota for gpu.das.com/mem in flavor any, "
    "5 more needed"
)


def said(kind, status, reason="", message="", ago=60):
    at = (NOW - timedelta(seconds=ago)).isoformat()
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def workload(name, *, age=60, queue="team", why="", requests=None, limits=(), admitted=None, **more):
    """A workload of the Job of that name. `why` it has no quota; `requests` what Kueue counted; `limits` of each
    container of its template; `admitted` what it is charged."""
    conditions = list(more.get("conditions", ()))
    status = {"conditions": conditions}
    if why:
        conditions.append(said("QuotaReserved", "False", more.get("reason", "Pending"), why))
    if requests is not None:
        status["resourceRequests"] = [{"name": "main", "resources": requests}]
    if admitted is not None:
        conditions += [said("QuotaReserved", "True", ago=age), said("Admitted", "True", ago=age)]
        charged = [{"name": "main", "resourceUsage": admitted}]
        status["admission"] = {"clusterQueue": more.get("in_queue", "gpus"), "podSetAssignments": charged}
    status |= more.get("status", {})
    containers = [
        {"name": f"c{number}", "resources": {"limits": dict(each)}} for number, each in enumerate(limits or [{}])
    ]
    pods = {"name": "main", "count": more.get("count", 1), "template": {"spec": {"containers": containers}}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}
    document = {
        "metadata": {
            "namespace": "team-a",
            "name": f"job-{name}",
            "uid": f"wl-{name}",
            "creationTimestamp": (NOW - timedelta(seconds=age)).isoformat(),
            "ownerReferences": [] if more.get("alone") else [more.get("owner", owner)],
        },
        "spec": {"podSets": [pods], "queueName": queue, **more.get("spec", {})},
        "status": status,
    }
    return msgspec.convert(document, KueueWorkload)


def cluster_queue(name="gpus", *, mem=20, used=0, borrowed=0, covered=("cpu", MEMORY), conditions=(), **spec):
    """A queue of one flavor with a quota of GPU memory."""
    quotas = [{"name": each, "nominalQuota": mem if each == MEMORY else 100} for each in covered]
    for each in quotas:
        if each["name"] == MEMORY and "borrowing_limit" in spec:
            each["borrowingLimit"] = spec["borrowing_limit"]
    spec.pop("borrowing_limit", None)
    usage = [{"name": MEMORY, "total": used, "borrowed": borrowed}]
    document = {
        "metadata": {"name": name},
        "spec": {
            "resourceGroups": [{"coveredResources": covered, "flavors": [{"name": "any", "resources": quotas}]}],
            "namespaceSelector": {},
            **spec,
        },
        "status": {"flavorsReservation": [{"name": "any", "resources": usage}], "conditions": conditions},
    }
    return msgspec.convert(document, ClusterQueue)


def local_queue(name="team", cluster_queue="gpus", **spec):
    document = {"metadata": {"namespace": "team-a", "name": name}, "spec": {"clusterQueue": cluster_queue, **spec}}
    return msgspec.convert(document, LocalQueue)


def kueue(*workloads, queues=None, local=None, **more):
    """Those workloads, in LocalQueue `team` of ClusterQueue `gpus` unless there are others."""
    queues = [cluster_queue()] if queues is None else queues
    return KueueSnapshot(workloads, [local_queue()] if local is None else local, queues, **more)
