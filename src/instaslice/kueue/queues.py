"""What an administrator gives Kueue so that it counts GPU memory: a ResourceFlavor, a ClusterQueue, LocalQueues, and on
request our AdmissionCheck.

Pure. Beside them stands a policy for Jobs, which Kueue charges before our webhook sees their pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from instaslice.api import names
from instaslice.kube.core import PartialObjectMetadata
from instaslice.kube.resource import Resource
from instaslice.kueue.objects import ADMISSION_CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES, QUEUE_NAME, RESOURCE_FLAVORS

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
JOB_POLICY: Final = "instaslice-kueue-jobs"
"""The name of the policy for Jobs and of its binding."""
JOB_POLICIES: Final = Resource(
    PartialObjectMetadata,
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    group=ADMISSION_GROUP,
    namespaced=False,
)
JOB_POLICY_BINDINGS: Final = Resource(
    PartialObjectMetadata,
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    group=ADMISSION_GROUP,
    namespaced=False,
)

Manifest = dict[str, Any]


@dataclass(frozen=True)
class NominalQuota:
    """What a ClusterQueue gives out; a quantity each."""

    cpu: str
    memory: str
    gpu_memory: str

    @property
    def by_resource(self) -> dict[str, str]:
        return {"cpu": self.cpu, "memory": self.memory, names.MEMORY: self.gpu_memory}


@dataclass(frozen=True)
class QueueNames:
    """How the objects are called. There is a LocalQueue of that name in each namespace."""

    cluster_queue: str = "gpu"
    local_queue: str = "gpu"
    flavor: str = "gpu"
    namespaces: Sequence[str] = ("default",)
    cohort: str = ""
    admission_check: str = ""
    """Ours, by which the queue admits only what can be placed; "" for a queue without one."""


def queue_manifests(quota: NominalQuota, called: QueueNames) -> list[Manifest]:
    """ResourceFlavor, AdmissionCheck, ClusterQueue and LocalQueues, in the order in which they are applied."""
    local = [_local_queue(called, namespace) for namespace in called.namespaces]
    check = {"controllerName": names.PLACEMENT_CHECK}
    checks = [_manifest(ADMISSION_CHECKS, called.admission_check, check)] if called.admission_check else []
    return [_manifest(RESOURCE_FLAVORS, called.flavor, {}), *checks, _cluster_queue(quota, called), *local]


def _cluster_queue(quota: NominalQuota, called: QueueNames) -> Manifest:
    amounts = quota.by_resource
    flavor = {
        "name": called.flavor,
        "resources": [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()],
    }
    spec: Manifest = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": list(amounts), "flavors": [flavor]}],
    }
    if called.cohort:
        # What the others of the cohort have borrowed is taken back as soon as it is needed: without that, whoever
        # lends has to wait until the borrower is done.
        spec |= {"cohortName": called.cohort, "preemption": {"reclaimWithinCohort": "Any"}}
    if called.admission_check:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": called.admission_check}]}
    return _manifest(CLUSTER_QUEUES, called.cluster_queue, spec)


def _local_queue(called: QueueNames, namespace: str) -> Manifest:
    return _manifest(LOCAL_QUEUES, called.local_queue, {"clusterQueue": called.cluster_queue}, namespace)


def job_policy() -> list[Manifest]:
    """A policy that refuses Jobs in a queue whose slices would be charged twice, not at all, or by an amount that is no
    number of GB, and its binding."""
    both = "limits", "requests"
    present = [f"(has(c.resources) && has(c.resources.{each}) ? c.resources.{each} : {{}})" for each in both]
    ours = " || ".join(f"{each}.exists(n, n.startsWith('{names.RESOURCE}'))" for each in present)
    nvidias = " || ".join(f"{each}.exists(n, n.startsWith('{names.NVIDIA_RESOURCE}'))" for each in present)
    memory = " || ".join(f"'{names.MEMORY}' in {each}" for each in present)
    unitless = " && ".join(
        f"(!('{names.MEMORY}' in {each}) || string({each}['{names.MEMORY}']).matches('^[1-9][0-9]*[kM]?$'))"
        for each in present
    )
    template = "object.spec.template.spec"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["batch"],
                    "apiVersions": ["v1"],
                    "resources": ["jobs"],
                    "operations": ["CREATE", "UPDATE"],
                }
            ]
        },
        "matchConditions": [
            {"name": "in-a-queue", "expression": _queued("object")},
            # Not one that was in it with these containers: it could not be changed any more, not even to be deleted.
            # But resources of a suspended Job can be changed, and Kueue charges what the template says then.
            {
                "name": "new-in-it",
                "expression": f"oldObject == null || !({_queued('oldObject')}) || {_containers_changed()}",
            },
        ],
        "variables": [
            {
                "name": "containers",
                "expression": f"{template}.containers + "
                f"(has({template}.initContainers) ? {template}.initContainers : [])",
            }
        ],
        "validations": [
            {
                "expression": f"!variables.containers.exists(c, {ours})",
                "message": f"Kueue charges a Job from its template, and {names.RESOURCE}* there costs nothing; "
                f"write {names.NVIDIA_RESOURCE}* instead",
            },
            {
                "expression": f"!variables.containers.exists(c, ({nvidias}) && ({memory}))",
                "message": f"a container that names both {names.NVIDIA_RESOURCE}* and {names.MEMORY} would be charged "
                f"twice; leave out {names.MEMORY}, it follows from the slices",
            },
            {
                # A Job that asks for 8Gi would wait for eight thousand million GB, and be told to ask for less. The API
                # server writes 8000 as 8k.
                "expression": f"variables.containers.all(c, {unitless})",
                "message": f"{names.MEMORY} is a number of GB; give a whole number from 1 on, without a unit, as in "
                f'{names.MEMORY}: "8"',
            },
        ],
    }
    binding = {"policyName": JOB_POLICY, "validationActions": ["Deny"]}
    return [_manifest(JOB_POLICIES, JOB_POLICY, spec), _manifest(JOB_POLICY_BINDINGS, JOB_POLICY, binding)]


def _containers_changed() -> str:
    before, after = "oldObject.spec.template.spec", "object.spec.template.spec"
    initial = [f"(has({each}.initContainers) ? {each}.initContainers : [])" for each in (before, after)]
    return f"{before}.containers != {after}.containers || {initial[0]} != {initial[1]}"


def _queued(job: str) -> str:
    return f"has({job}.metadata.labels) && '{QUEUE_NAME}' in {job}.metadata.labels"


def _manifest(resource: Resource[Any], name: str, spec: Manifest, namespace: str = "") -> Manifest:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
