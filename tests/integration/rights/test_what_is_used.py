"""Each process uses all that it is granted, and needs no more: the API server's audit log of a run with every feature.

What a run cannot show, because nothing goes wrong in it, has its reason in `roles.SELDOM_USED`.
"""

import asyncio
import contextlib

import aiohttp
import leftovers
import pytest
from audited import lacking, requested, unused
from waiting import until

from instaslice.api import names, roles
from instaslice.api.instaslice import INSTASLICES, Health
from instaslice.kube.client import Client, JsonOp, Selector
from instaslice.kube.core import CONFIG_MAPS, LEASES, NODES, PODS, PartialObjectMetadata
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.kueue.objects import ADMISSION_CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES, QUEUE_NAME, RESOURCE_FLAVORS
from instaslice.kueue.queues import NominalQuota, QueueNames, queue_manifests
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec
from instaslice.local.control_plane import CLIENTS
from instaslice.local.objects import GRANTS, ClusterObjects
from instaslice.local.operator import AGENT, CONTROLLER, WEBHOOK, observe_port
from instaslice.local.pki import Authority

PATIENCE = 90
FLAGS = ("--taint-nodes", "--static-mig-labels", "--keep-quotas", "--autoscaling-hints=2", "--admission-check")
ALL = dict.fromkeys(roles.CONTROLLER_FLAGS, True)
ROLES = {
    CONTROLLER: (roles.controller(**ALL), roles.METRICS_AUTH),
    AGENT: (roles.agent(emulated_nodes=True), roles.METRICS_AUTH),
    WEBHOOK: (roles.webhook(), roles.METRICS_AUTH),
}
QUOTAS = Resource(PartialObjectMetadata, "ResourceQuota", "resourcequotas")


def pod(name, profile="1g.5gb", **spec):
    main = {"name": "main", "image": "none", "resources": {"limits": {f"nvidia.com/mig-{profile}": 1}}}
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"containers": [main], **spec}}


class Stories:
    """What happens in a cluster in a day, one after the other."""

    def __init__(self, cluster, client):
        self.cluster, self.client = cluster, client

    async def phase(self, name, wanted):
        async def seen():
            return (await self.client.get(PODS, Key("default", name))).status.phase == wanted

        await until(seen, PATIENCE, f"pod {name} is {wanted}")

    async def ended(self, name):
        await self.client.delete(PODS, Key("default", name))

        async def free():
            objects = await self.client.list(INSTASLICES)
            return not any(each.pod.name == name and each.wanted for node in objects for each in node.spec.allocations)

        await until(free, PATIENCE, f"the slices of {name} are free")

    async def a_pod_comes_and_goes(self, name="train"):
        await self.client.create(PODS, pod(name))
        await self.phase(name, "Running")
        await self.ended(name)

    async def nodes_are_tainted_and_labelled(self):
        async def seen():
            node = await self.client.get(NODES, Key("", "gpu-0"))
            tainted = any(each.key == names.MANAGED for each in node.spec.taints or ())
            return tainted and names.STATIC_MIG_LABELS in node.metadata.annotations

        await until(seen, PATIENCE, "the taint and the labels of gpu-0")

    async def a_quota_is_kept(self):
        hard = {"requests.nvidia.com/mig-1g.5gb": "4"}
        quota = {"metadata": {"namespace": "default", "name": "gpus"}, "spec": {"hard": hard}}
        await self.client.create(QUOTAS, quota)

        async def companions():
            return await self.client.list(QUOTAS, Selector(namespace="default", labels=names.COMPANION))

        (before,) = await until(companions, PATIENCE, "a companion")
        change = [JsonOp(op="replace", path="/spec/hard/requests.nvidia.com~1mig-1g.5gb", value="3")]
        await self.client.patch(QUOTAS, Key("default", "gpus"), change)

        async def changed():
            return (await companions())[0].metadata.resource_version != before.metadata.resource_version

        await until(changed, PATIENCE, "the companion follows")
        # The companion of a quota that is deleted goes with its owner, maybe before the controller sees that.
        await self.client.patch(
            QUOTAS, Key("default", "gpus"), [JsonOp(op="replace", path="/spec/hard", value={"pods": "100"})]
        )

        async def gone():
            return not await companions()

        await until(gone, PATIENCE, "the companion goes")

    async def a_pod_waits_and_a_node_autoscaler_is_told(self):
        # More than is free, not more than a node could hold.
        for name in ("large-0", "large-1", "large-2", "large-3"):
            await self.client.create(PODS, pod(name, "7g.40gb"))
        for name in ("large-0", "large-1", "large-2", "large-3"):
            await self.phase(name, "Running")
        await self.client.create(PODS, pod("waits", "7g.40gb"))

        async def placeholders():
            return await self.client.list(PODS, Selector(namespace=names.PLACEHOLDERS))

        await until(placeholders, PATIENCE, "a placeholder")
        await self.client.delete(PODS, Key("default", "waits"))

        async def none():
            return not await placeholders()

        await until(none, PATIENCE, "no placeholder")
        for name in ("large-0", "large-1", "large-2", "large-3"):
            await self.ended(name)

    async def kueue_asks_whether_a_pod_fits(self):
        check = {"metadata": {"name": "slices"}, "spec": {"controllerName": names.PLACEMENT_CHECK}}
        await self.client.create(ADMISSION_CHECKS, check)
        kinds = {each.kind: each for each in (RESOURCE_FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES)}
        for document in queue_manifests(NominalQuota(cpu="8", memory="8Gi", gpu_memory="40"), QueueNames()):
            if document["kind"] == CLUSTER_QUEUES.kind:
                document["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "slices"}]}
            await self.client.create(kinds[document["kind"]], document)
        queued = pod("queued")
        queued["metadata"]["labels"] = {QUEUE_NAME: QueueNames.local_queue}
        await self.client.create(PODS, queued)
        await self.phase("queued", "Running")
        await self.ended("queued")

    async def the_demand_is_kept(self):
        async def kept():
            with contextlib.suppress(NotFound):
                return (await self.client.get(CONFIG_MAPS, Key(names.NAMESPACE, names.DEMAND))).data

        await until(kept, PATIENCE, "what pods asked for is in a ConfigMap")

    async def a_gpu_fails_and_recovers(self):
        fault = {"metadata": {"annotations": {names.FAULT: "0 lost"}}}
        await self.client.merge(NODES, Key("", "gpu-0"), fault)

        async def reported(health):
            found = await self.client.get(INSTASLICES, Key("", "gpu-0"))
            return any(each.health is health for each in found.status.gpus if each.index == 0)

        await until(lambda: reported(Health.UNHEALTHY), PATIENCE, "GPU 0 of gpu-0 is unhealthy")
        await self.client.merge(NODES, Key("", "gpu-0"), {"metadata": {"annotations": {names.FAULT: None}}})
        await until(lambda: reported(Health.HEALTHY), PATIENCE, "GPU 0 of gpu-0 is healthy")

    async def an_object_is_deleted_by_mistake(self):
        before = await self.client.get(INSTASLICES, Key("", "gpu-0"))
        await self.client.delete(INSTASLICES, Key("", "gpu-0"))

        async def made_again():
            try:
                found = await self.client.get(INSTASLICES, Key("", "gpu-0"))
            except NotFound:
                return False
            return found.metadata.uid != before.metadata.uid and found.status.gpus

        await until(made_again, PATIENCE, "the object of gpu-0 is made again")

    async def the_metrics_are_read(self):
        token = Authority(self.cluster.plane().layout.pki).token(CONTROLLER)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            for name in ROLES:
                port = self.cluster.record().ports[observe_port(name)]

                async def answered(url=f"https://127.0.0.1:{port}/metrics"):
                    with contextlib.suppress(aiohttp.ClientConnectionError):
                        async with session.get(url, ssl=False) as answer:
                            return answer.status

                # It is told who asks, and that they may not.
                assert await until(answered, PATIENCE, f"{name} serves metrics") == 403

    async def every_process_is_killed(self):
        for name in ROLES:
            self.cluster.kill(name)
        for name in ROLES:
            start(self.cluster, name)
        async with ClusterObjects.connect(self.cluster.kubeconfig) as objects:
            await self.cluster.operator().ready(WEBHOOK, objects)

        async def leads():
            lease = await self.client.get(LEASES, Key(names.NAMESPACE, names.CONTROLLER))
            return lease.spec.holder_identity

        await until(leads, PATIENCE, "a controller leads")
        await self.a_pod_comes_and_goes("after")


def start(cluster, name):
    """Start a process again, now with access to its metrics for those who may read them."""
    cluster.processes.start(name, [*cluster.processes.argv(name), "--metrics-auth"])


@pytest.fixture(scope="module")
def audited_cluster(state_home):
    made = Cluster(leftovers.own("audit"))
    try:
        made.up(ClusterSpec(nodes=2, gpus=2, kueue=True, audit=True, controller_flags=FLAGS), Source())
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def requests(audited_cluster):
    """What each user requested."""
    asyncio.run(tell(audited_cluster))
    return requested(audited_cluster.layout.audit_log)


async def tell(cluster):
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as client:
        objects = ClusterObjects(client)
        for name in ROLES:
            user = CLIENTS[name]
            subject = {"kind": "User", "apiGroup": roles.RBAC, "name": user}
            for document in roles.documents(f"{user}-metrics", roles.METRICS_AUTH, subject):
                await objects.apply(GRANTS[document["kind"]], document)
        stories = Stories(cluster, client)
        await stories.nodes_are_tainted_and_labelled()
        await stories.a_pod_comes_and_goes()
        await stories.a_quota_is_kept()
        await stories.a_pod_waits_and_a_node_autoscaler_is_told()
        await stories.kueue_asks_whether_a_pod_fits()
        await stories.the_demand_is_kept()
        await stories.a_gpu_fails_and_recovers()
        await stories.an_object_is_deleted_by_mistake()
        await stories.every_process_is_killed()
        await stories.the_metrics_are_read()


@pytest.mark.parametrize("process", ROLES)
def test_a_process_uses_all_that_it_is_granted(requests, process):
    found = unused(ROLES[process], requests[CLIENTS[process]])
    assert found == set(roles.SELDOM_USED[process]), "grant less, or give the reason in roles.SELDOM_USED"


@pytest.mark.parametrize("process", ROLES)
def test_a_process_asks_for_nothing_that_it_is_not_granted(requests, process):
    assert lacking(ROLES[process], requests[CLIENTS[process]]) == set()
