"""What creates pods: Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs, and why pods are missing."""

import msgspec

from instaslice.kube.core import Condition
from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource


class RollingUpdate(ApiStruct, frozen=True):
    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class Strategy(ApiStruct, frozen=True):
    """How a Deployment replaces its pods: `Recreate` or `RollingUpdate`."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(ApiStruct, frozen=True):
    """Of all kinds; each has some of these."""

    replicas: int = 1
    strategy: Strategy = Strategy()
    suspend: bool = False
    parallelism: int = 1
    completions: int | None = None
    pod_management_policy: str = "OrderedReady"


class WorkloadStatus(ApiStruct, frozen=True):
    desired_number_scheduled: int = 0
    """Of a DaemonSet: the nodes that it is for."""
    succeeded: int = 0
    failed: int = 0
    conditions: list[Condition] | None = None


class WorkloadResource(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


DEPLOYMENTS = Resource(WorkloadResource, "Deployment", "deployments", group="apps")
REPLICA_SETS = Resource(WorkloadResource, "ReplicaSet", "replicasets", group="apps")
STATEFUL_SETS = Resource(WorkloadResource, "StatefulSet", "statefulsets", group="apps")
DAEMON_SETS = Resource(WorkloadResource, "DaemonSet", "daemonsets", group="apps")
JOBS = Resource(WorkloadResource, "Job", "jobs", group="batch")
