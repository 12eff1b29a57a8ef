"""A stage with queues: what a story gives Kueue, and what Kueue makes of it.

The objects of Kueue that have no namespace bear the name of the story's, so that stories do not share quota.
"""

import asyncio

import manifests
from stage import PATIENCE, STORY, Stage, pod
from waiting import until

from instaslice.api import names
from instaslice.doctor import KueueQuota, ObservedCluster, examine_queues
from instaslice.geometry import ProfileName
from instaslice.kube.cache import Cache
from instaslice.kube.client import JsonOp, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, PartialObjectMetadata
from instaslice.kube.errors import KubeError, NotFound
from instaslice.kube.meta import Key, key_of
from instaslice.kube.quantities import whole
from instaslice.kube.resource import Resource
from instaslice.kube.workloads import DEPLOYMENTS, JOBS
from instaslice.kueue.objects import (
    ADMISSION_CHECKS,
    ADMISSION_GATE,
    CLUSTER_QUEUES,
    EVICTED,
    GROUP,
    KUEUE_WORKLOADS,
    LOCAL_QUEUES,
    QUEUE_NAME,
    QUOTA_RESERVED,
    RESOURCE_FLAVORS,
    VERSION,
)
from instaslice.kueue.queues import (
    JOB_POLICIES,
    JOB_POLICY,
    JOB_POLICY_BINDINGS,
    NominalQuota,
    QueueNames,
    job_policy,
    queue_manifests,
)

KINDS = {each.kind: each for each in (RESOURCE_FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES)}
PRIORITIES = Resource(
    PartialObjectMetadata, "WorkloadPriorityClass", "workloadpriorityclasses", VERSION, GROUP, namespaced=False
)
PRIORITY = f"{GROUP}/priority-class"
QUEUE = "gpu"
"""The LocalQueue of a story with one queue."""


class QueueStage(Stage):
    """`workloads` are those of Kueue in the story's namespace, `queues` its ClusterQueues."""

    def __init__(self, client, namespace):
        super().__init__(client, namespace)
        self.workloads, self.queues, self.jobs = Cache(), Cache(), Cache()
        for cache in (self.workloads, self.queues, self.jobs):
            cache.on_change(self._hear)
        self._queues = {}
        self._checked = False
        self._wrong = []

    def watched(self):
        here = Selector(namespace=self.namespace)
        ours = [
            (KUEUE_WORKLOADS, self.workloads, here),
            (JOBS, self.jobs, here),
            (CLUSTER_QUEUES, self.queues, Selector()),
        ]
        return [*super().watched(), *ours]

    def __str__(self):
        lines = [super().__str__()]
        for each in self.workloads:
            told = [f"{one.type}={one.status} {one.message}" for one in each.status.conditions or ()]
            lines.append(f"workload {each.metadata.name}: {'; '.join(told) or 'nothing said'}")
        lines += [f"queue {name}: {self.usage(name)} GB, {self.pending(name)} pending" for name in self._queues]
        return "\n".join(lines)

    # Queues -----------------------------------------------------------------------------------------------------------

    async def queue(self, gb, *, name=QUEUE, cohort="", active=True, **spec):
        """A ClusterQueue for that many GB of GPU memory and its LocalQueue, as `instaslice kueue manifests` prints
        them, or a change of it; `spec` is added to the ClusterQueue's."""
        self._queues[name] = f"{self.namespace}-{name}"
        called = QueueNames(
            cluster_queue=self._queues[name],
            local_queue=name,
            flavor=self.namespace,
            namespaces=(self.namespace,),
            cohort=cohort and f"{self.namespace}-{cohort}",
        )
        for document in queue_manifests(NominalQuota(cpu="1000", memory="1000Gi", gpu_memory=str(gb)), called):
            if document["kind"] == CLUSTER_QUEUES.kind:
                document["spec"] |= spec
            await self.client.apply(KINDS[document["kind"]], document, manager="story", force=True)
        await self.until(f"queue {name} active: {active}", lambda: self._active(name) is active)

    async def placement_check(self):
        """What `queue` takes so that it admits only what can be placed."""
        name = self.namespace
        document = {"metadata": {"name": name}, "spec": {"controllerName": names.PLACEMENT_CHECK}}
        await self.client.apply(ADMISSION_CHECKS, document, manager="story", force=True)
        self._checked = True
        return {"admissionChecksStrategy": {"admissionChecks": [{"name": name}]}}

    def refusal(self, owner):
        """Why our check did not admit the workload of this Job or pod the last time; "" where it never refused it."""
        found = self.workload(owner)
        evicted = found.condition(EVICTED) if found else None
        return evicted.message if evicted else ""

    async def refused(self, owner, *reasons):
        """Return once our check has refused it for one of these reasons, and its quota is released."""

        def find():
            found = self.workload(owner)
            return found and not found.has(QUOTA_RESERVED) and any(each in self.refusal(owner) for each in reasons)

        await self.until(f"workload of {owner} refused: {' or '.join(reasons)}", find)

    def cluster_queue(self, name=QUEUE):
        return self.queues.get(Key("", self._queues[name]))

    def _active(self, name):
        found = self.cluster_queue(name)
        told = found and [each.status == "True" for each in found.status.conditions or () if each.type == "Active"]
        return told[0] if told else None

    def usage(self, name=QUEUE):
        """GB of GPU memory that Kueue says this queue's workloads hold."""
        found = self.cluster_queue(name)
        used = [one for each in (found and found.status.flavors_reservation) or () for one in each.resources or ()]
        return sum(whole(each.total) for each in used if each.name == names.MEMORY)

    def pending(self, name=QUEUE):
        """How many workloads wait in it."""
        found = self.cluster_queue(name)
        return found.status.pending_workloads if found else 0

    def labels(self):
        """GB of the slices that pods of the story are promised, by the names of their profiles."""
        return sum(
            ProfileName.parse(each.profile).gb for each in self.held() if each.state not in ("deleting", "deleted")
        )

    async def charged(self, gb, *, pending=0, name=QUEUE):
        """Return once the queue has charged that many GB, as many as the slices have together, and that many wait."""

        def find():
            return (self.usage(name), self.pending(name)) == (gb, pending) and self.total() == self.labels()

        await self.until(f"{gb} GB charged in {name}, {pending} pending, slices of the same size", find)

    async def quota(self, gb, *, pending=0, name=QUEUE):
        """Return once the queue has charged that many GB, whatever the slices are; and that many wait, or any."""
        waiting = {pending} if pending is not None else range(1000)
        await self.until(
            f"{gb} GB charged in {name}, {pending} pending",
            lambda: self.usage(name) == gb and self.pending(name) in waiting,
        )

    def total(self):
        """What all queues of the story have charged."""
        return sum(map(self.usage, self._queues))

    # What waits in them -----------------------------------------------------------------------------------------------

    def queued_pod(self, name, slices="1g.5gb", *, queue=QUEUE, priority="", **more):
        """A plain pod in a queue."""
        made = pod(name, slices, **more)
        made["metadata"]["labels"] = self._labels(queue, priority)
        return made

    async def job(self, name, slices="1g.5gb", *, queue=QUEUE, count=1, run_for="", priority="", owned_by=None, **more):
        """A Job of that many pods at the same time, on the story's own nodes. It runs until it is deleted, or as long
        as `run_for` says."""
        made = pod(name, slices, run_for=run_for, **more)
        made["metadata"] = {each: text for each, text in made["metadata"].items() if each != "name"}
        made["spec"].setdefault("nodeSelector", {STORY: self.namespace})
        spec = {"parallelism": count, "completions": count, "backoffLimit": 0, "template": made}
        metadata = {"name": name, "namespace": self.namespace, "labels": self._labels(queue, priority)}
        if owned_by:
            owner = {"apiVersion": JOBS.api_version, "kind": JOBS.kind}
            owner |= {"name": owned_by.metadata.name, "uid": owned_by.metadata.uid}
            metadata["ownerReferences"] = [owner]
        return await self.client.create(JOBS, {"metadata": metadata, "spec": spec})

    async def refused_job(self, limits, *, queue=QUEUE):
        """What the API server says of a Job with one container with these limits; "" where it takes it."""
        try:
            await self.job("refused", queue=queue, containers=[manifests.container(limits=limits)])
        except KubeError as error:
            return error.message
        return ""

    async def refused_limits(self, name, limits):
        """What the API server says of other limits for a Job that is suspended; "" where it takes them."""
        path = "/spec/template/spec/containers/0/resources"
        wanted = {"limits": {each: str(count) for each, count in limits.items()}}
        try:
            await self.client.patch(
                JOBS, Key(self.namespace, name), [JsonOp(op="replace", path=path, value=wanted)], manager="story"
            )
        except KubeError as error:
            return error.message
        return ""

    async def job_policy(self):
        """The policy for Jobs, in force for this story alone: it stays so for a moment after it is deleted."""
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        for document in job_policy():
            if document["kind"] == JOB_POLICY_BINDINGS.kind:
                document["spec"]["matchResources"] = {"namespaceSelector": here}
            kind = {each.kind: each for each in (JOB_POLICIES, JOB_POLICY_BINDINGS)}[document["kind"]]
            await self.client.apply(kind, document, manager="story", force=True)
        probe = {"gpu.das.com/mig-1g.5gb": 1}
        async with asyncio.timeout(PATIENCE):
            # Only a request shows whether the API server knows it.
            while not await self.refused_job(probe):
                await self.delete_job("refused")

    async def priorities(self, **values):
        """WorkloadPriorityClasses, which decide in a queue and nowhere else."""
        for name, value in values.items():
            document = {"metadata": {"name": f"{self.namespace}-{name}"}, "value": value}
            await self.client.create(PRIORITIES, document)

    async def deployment(self, name, slices="1g.5gb", *, queue=QUEUE, replicas=1, priority=""):
        """A Deployment in a queue: each of its pods waits there for itself."""
        chosen = {"app": name}
        template = {
            "metadata": {"labels": chosen},
            "spec": {**pod(name, slices)["spec"], "restartPolicy": "Always", "nodeSelector": {STORY: self.namespace}},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": chosen}, "template": template}
        metadata = {"name": name, "namespace": self.namespace, "labels": self._labels(queue, priority)}
        return await self.client.create(DEPLOYMENTS, {"metadata": metadata, "spec": spec})

    def _labels(self, queue, priority):
        labels = {QUEUE_NAME: queue} if queue else {}
        return labels | ({PRIORITY: f"{self.namespace}-{priority}"} if priority else {})

    async def scale(self, name, replicas):
        await self.client.merge(DEPLOYMENTS, Key(self.namespace, name), {"spec": {"replicas": replicas}})
        await self.until(f"{replicas} pods of {name}", lambda: len(self.pods_of(name)) == replicas)

    async def finish(self, name):
        """End a pod of a Job as if its program had succeeded."""
        noted = {"metadata": {"annotations": {"local.gpu.das.com/run-for": "0s"}}}
        await self.client.merge(PODS, Key(self.namespace, name), noted)
        await self.phase(name, "Succeeded")

    async def activate(self, owner, active):
        """Whether Kueue may admit the workload of a Job at all; one that it has admitted is stopped."""
        key = key_of(self.workload(owner))
        await self.client.merge(KUEUE_WORKLOADS, key, {"spec": {"active": active}})

    def preempted(self):
        """The owners of workloads that Kueue has evicted for others."""
        return [
            each.metadata.owner_references[0].name
            for each in self.workloads
            if any(one.type == "Preempted" and one.status == "True" for one in each.status.conditions or ())
        ]

    def why_not_admitted(self, owner):
        """In Kueue's words."""
        found = self.workload(owner)
        told = (found and found.status.conditions) or ()
        return next((each.message for each in told if each.type == "QuotaReserved" and each.status == "False"), "")

    async def gated_by_kueue(self, name):
        """Return once Kueue has a workload for the pod and holds it."""

        def find():
            found = self.pod(name)
            gates = [each.name for each in (found and found.spec.scheduling_gates) or ()]
            return ADMISSION_GATE in gates and self.workload(name)

        await self.until(f"pod {name} held by Kueue", find)

    def pods_of(self, owner):
        """The pods of a Job or Deployment that have not ended, by the beginning of their names."""
        return [each for each in self.pods if each.metadata.name.startswith(f"{owner}-") and not each.ended]

    def running_pods(self, owner):
        return [each for each in self.pods_of(owner) if each.status.phase == "Running"]

    async def job_runs(self, name, count=1):
        """The pods of a Job or a Deployment once that many run, with their slices."""

        def find():
            found = self.running_pods(name)
            return found if len(found) == count else None

        found = await self.until(f"{count} pods of {name} running", find)
        return await self.running(*(each.metadata.name for each in found))

    async def job_waits(self, name):
        """Return once Kueue has seen the Job and holds it: it is suspended, and has no pods."""

        def find():
            found = self.jobs.get(Key(self.namespace, name))
            return found and found.spec.suspend and self.workload(name) and not self.pods_of(name)

        await self.until(f"job {name} suspended", find)

    async def job_ended(self, name):
        def find():
            found = self.jobs.get(Key(self.namespace, name))
            return found and any(
                each.type == "Complete" and each.status == "True" for each in found.status.conditions or ()
            )

        await self.until(f"end of job {name}", find)

    async def delete_job(self, name):
        key = Key(self.namespace, name)
        # Without a policy the API server leaves the pods of a Job behind, unlike kubectl.
        await self.client.raw("DELETE", JOBS.path(*key), params={"propagationPolicy": "Background"})
        await self.until(f"end of the pods of {name}", lambda: not self.pods_of(name) and self.jobs.get(key) is None)

    def workload(self, owner):
        """Kueue's Workload of the pod or Job with this name."""
        return next(
            (each for each in self.workloads if owner in [one.name for one in each.metadata.owner_references]), None
        )

    async def healthy(self):
        """Return once the doctor finds nothing wrong with what Kueue charges."""

        async def find():
            self._wrong = await self.found_by_the_doctor()
            return not self._wrong

        await until(find, PATIENCE, lambda: "\n".join(self._wrong))

    async def found_by_the_doctor(self):
        """What it finds wrong with what Kueue charges."""
        cluster = await ObservedCluster.read(self.client, SystemClock())
        return [str(each) for each in examine_queues(await KueueQuota.read(self.client), cluster)]

    # The end ----------------------------------------------------------------------------------------------------------

    async def clear(self):
        """Whatever was in the queues is gone, then the quota is free, then the queues are gone."""
        for kind in (DEPLOYMENTS, JOBS):
            await self.client.raw("DELETE", kind.path(self.namespace), params={"propagationPolicy": "Background"})
        await self.until("no jobs", lambda: not len(self.jobs))
        await super().clear()
        await self.until("quota back", lambda: self.total() == 0)
        for name in self._queues:
            await self._remove(LOCAL_QUEUES, Key(self.namespace, name))
            await self._remove(CLUSTER_QUEUES, Key("", self._queues[name]))
        await self._remove(RESOURCE_FLAVORS, Key("", self.namespace))
        if self._checked:
            await self._remove(ADMISSION_CHECKS, Key("", self.namespace))
        for kind in (JOB_POLICY_BINDINGS, JOB_POLICIES):
            await self._remove(kind, Key("", JOB_POLICY))

    async def _remove(self, resource, key):
        try:
            await self.client.delete(resource, key)
        except NotFound:
            return
