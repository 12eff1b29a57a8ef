"""A stage with queues: what a story gives Kueue, and what Kueue makes of it.

The objects of Kueue that have no namespace bear the name of the story's, so that stories do not share quota.
"""

from stage import STORY, Stage, pod

from instaslice.api import names
from instaslice.geometry import ProfileName
from instaslice.kube.cache import Cache
from instaslice.kube.client import Selector
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key
from instaslice.kube.quantities import whole
from instaslice.kube.workloads import DEPLOYMENTS, JOBS
from instaslice.kueue.objects import CLUSTER_QUEUES, KUEUE_WORKLOADS, LOCAL_QUEUES, QUEUE_NAME, RESOURCE_FLAVORS
from instaslice.kueue.queues import NominalQuota, QueueNames, queue_manifests

KINDS = {each.kind: each for each in (RESOURCE_FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES)}
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

    async def queue(self, gb, *, name=QUEUE, cohort="", **spec):
        """A ClusterQueue for that many GB of GPU memory and its LocalQueue, as `instaslice kueue manifests` prints
        them; `spec` is added to the ClusterQueue's."""
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
        await self.until(f"queue {name} active", lambda: self._active(name))

    def cluster_queue(self, name=QUEUE):
        return self.queues.get(Key("", self._queues[name]))

    def _active(self, name):
        found = self.cluster_queue(name)
        return found and any(each.type == "Active" and each.status == "True" for each in found.status.conditions or ())

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

    def total(self):
        """What all queues of the story have charged."""
        return sum(map(self.usage, self._queues))

    # What waits in them -----------------------------------------------------------------------------------------------

    def queued_pod(self, name, slices="1g.5gb", *, queue=QUEUE, priority="", **more):
        """A plain pod in a queue."""
        made = pod(name, slices, **more)
        made["metadata"]["labels"] = _labels(queue, priority)
        return made

    async def job(self, name, slices="1g.5gb", *, queue=QUEUE, count=1, run_for="", priority="", suspend=False, **more):
        """A Job of that many pods at the same time, on the story's own nodes. It runs until it is deleted, or as long
        as `run_for` says."""
        made = pod(name, slices, run_for=run_for, **more)
        made["metadata"] = {each: text for each, text in made["metadata"].items() if each != "name"}
        made["spec"].setdefault("nodeSelector", {STORY: self.namespace})
        spec = {"parallelism": count, "completions": count, "backoffLimit": 0, "template": made}
        metadata = {"name": name, "namespace": self.namespace, "labels": _labels(queue, priority)}
        return await self.client.create(
            JOBS, {"metadata": metadata, "spec": spec | ({"suspend": True} if suspend else {})}
        )

    async def deployment(self, name, slices="1g.5gb", *, queue=QUEUE, replicas=1):
        """A Deployment in a queue: each of its pods waits there for itself."""
        chosen = {"app": name}
        template = {
            "metadata": {"labels": chosen},
            "spec": {**pod(name, slices)["spec"], "restartPolicy": "Always", "nodeSelector": {STORY: self.namespace}},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": chosen}, "template": template}
        metadata = {"name": name, "namespace": self.namespace, "labels": _labels(queue, "")}
        return await self.client.create(DEPLOYMENTS, {"metadata": metadata, "spec": spec})

    def pods_of(self, owner):
        """The pods of a Job or Deployment that have not ended, by the beginning of their names."""
        return [each for each in self.pods if each.metadata.name.startswith(f"{owner}-") and not each.ended]

    async def job_runs(self, name, count=1):
        """The pods of a Job once that many run, with their slices."""

        def find():
            found = [each for each in self.pods_of(name) if each.status.phase == "Running"]
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
        await self.client.delete(JOBS, key)
        await self.until(f"end of the pods of {name}", lambda: not self.pods_of(name) and self.jobs.get(key) is None)

    def workload(self, owner):
        """Kueue's Workload of the pod or Job with this name."""
        return next(
            (each for each in self.workloads if owner in [one.name for one in each.metadata.owner_references]), None
        )

    # The end ----------------------------------------------------------------------------------------------------------

    async def clear(self):
        """Whatever was in the queues is gone, then the quota is free, then the queues are gone."""
        for kind in (DEPLOYMENTS, JOBS):
            await self.client.raw("DELETE", kind.path(self.namespace), params={"propagationPolicy": "Background"})
        await self.until("no jobs", lambda: not len(self.jobs))
        await super().clear()
        await self.until("quota back", lambda: self.total() == 0 and not len(self.workloads))
        for name in self._queues:
            await self._remove(LOCAL_QUEUES, Key(self.namespace, name))
            await self._remove(CLUSTER_QUEUES, Key("", self._queues[name]))
        await self._remove(RESOURCE_FLAVORS, Key("", self.namespace))

    async def _remove(self, resource, key):
        try:
            await self.client.delete(resource, key)
        except NotFound:
            return


def _labels(queue, priority):
    labels = {QUEUE_NAME: queue} if queue else {}
    return {**labels, **({"kueue.x-k8s.io/priority-class": priority} if priority else {})}
