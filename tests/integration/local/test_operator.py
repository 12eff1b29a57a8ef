"""InstaSlice beside the control plane, as `instaslice up` starts it."""

import asyncio

import leftovers
import msgspec
import pytest
from running import phase, pod

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES
from instaslice.errors import BadInput
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import NODES, PODS, Pod
from instaslice.kube.errors import Forbidden, KubeError, NotFound, ServerError
from instaslice.kube.meta import Key
from instaslice.local import operator
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec
from instaslice.local.objects import ClusterObjects

SLICE = {"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}


@pytest.fixture(scope="module")
def ours(state_home):
    """A cluster whose parts these tests may break, if they mend them."""
    made = Cluster(leftovers.own("operator"))
    made.up(ClusterSpec(nodes=1), Source())
    yield made
    made.down()


@pytest.fixture
async def client(ours):
    async with await Client.connect(ours.kubeconfig) as made:
        yield made


def sliced(name: str, **more: str) -> dict:
    made = pod("default", name, **more)
    made["spec"]["containers"][0] |= SLICE
    return made


def gated(made: Pod) -> bool:
    return names.GATE in {gate.name for gate in made.spec.scheduling_gates or ()}


async def test_the_first_pod_after_up_is_gated(client):
    assert gated(await client.create(PODS, sliced("first")))


@pytest.mark.parametrize(
    "component, method, path",
    [
        pytest.param(operator.WEBHOOK, "GET", "/api/v1/pods", id="the webhook reads no pods"),
        pytest.param(operator.WEBHOOK, "GET", "/api/v1/secrets", id="the webhook reads no other Secrets"),
        pytest.param(operator.CONTROLLER, "DELETE", "/api/v1/namespaces/default/pods/p", id="the controller ends none"),
        pytest.param(operator.CONTROLLER, "GET", "/api/v1/secrets", id="the controller reads no Secrets"),
        pytest.param(operator.AGENT, "DELETE", "/api/v1/nodes/gpu-0", id="the agent removes no node"),
        pytest.param(operator.AGENT, "GET", "/api/v1/secrets", id="the agent reads no Secrets"),
    ],
)
async def test_what_our_processes_may_not_do(ours, component, method, path):
    async with await Client.connect(ours.plane().kubeconfig(component)) as process:
        with pytest.raises(Forbidden):
            await process.raw(method, path)


async def test_nobody_takes_the_gate_away_but_us(ours, client):
    ours.pause(operator.CONTROLLER)
    await client.create(PODS, sliced("held"))
    with pytest.raises(KubeError, match="only InstaSlice removes it"):
        await client.merge(PODS, Key("default", "held"), {"spec": {"schedulingGates": None}})
    ours.resume(operator.CONTROLLER)


async def test_pods_with_slices_are_refused_while_the_webhook_is_away_and_gated_when_it_is_back(ours, client):
    ours.kill(operator.WEBHOOK)
    assert not ours.components()[operator.WEBHOOK]
    with pytest.raises(ServerError):
        await client.create(PODS, sliced("too-soon"))
    await client.create(PODS, pod("default", "without-slices"))
    ours.start(operator.WEBHOOK)
    assert gated(await client.create(PODS, sliced("back")))


async def test_a_pod_gets_its_slice_although_every_process_was_killed_meanwhile(ours, client):
    await client.create(PODS, sliced("hardy", **{"run-for": "1s"}))
    for component in operator.ROLES:
        ours.kill(component)
        ours.start(component)
    ended = await phase(client, "default", "hardy", "Succeeded", seconds=60)
    assert ended.metadata.annotations[names.MIG_UUIDS].startswith("MIG-")


@pytest.mark.parametrize("latency", ["h200", "none"])
def test_up_with_another_latency_restarts_the_agent_alone(ours, latency):
    before = {name: ours.processes.find(name).pid for name in ours.components()}
    ours.up(ours.spec(latency=latency), Source())
    after = {name: ours.processes.find(name).pid for name in ours.components()}
    assert [name for name in before if before[name] != after[name]] == [operator.AGENT]


async def test_nodes_advertise_slices_and_report_their_gpus(client):
    (node,) = await client.list(NODES, Selector(labels=names.EMULATED))
    assert node.status.allocatable[f"{names.RESOURCE}1g.5gb"] == "14"
    reported = await client.get(INSTASLICES, Key("", node.metadata.name))
    assert len(reported.status.gpus) == 2


async def test_up_with_other_gpus_waits_for_what_the_nodes_report_then(ours, client):
    await asyncio.to_thread(ours.up, ours.spec(gpus=3, model="H100-80GB-SXM5"), Source())
    reported = await client.get(INSTASLICES, Key("", "gpu-0"))
    assert [gpu.model for gpu in reported.status.gpus] == ["H100-80GB-SXM5"] * 3
    await asyncio.to_thread(ours.up, ours.spec(gpus=2, model="A100-40GB"), Source())


async def test_a_flag_of_the_controller_comes_with_its_permission_and_the_next_up_keeps_both(ours):
    label, component = "nvidia.com/mig-1g.5gb.product", operator.CONTROLLER

    def unlabelled(cache):
        return [each.metadata.name for each in cache if label not in each.metadata.labels]

    await asyncio.to_thread(ours.up, ours.spec(controller_flags=("--static-mig-labels",)), Source())
    async with ClusterObjects.connect(ours.kubeconfig) as objects:
        await objects.until("not labelled: node", NODES, Selector(labels=names.EMULATED), unlabelled)
    before = ours.processes.find(component).pid
    await asyncio.to_thread(ours.up, ours.spec(), Source())
    assert ours.processes.find(component).pid == before
    async with await Client.connect(ours.plane().kubeconfig(component)) as controller:
        review = {"spec": {"resourceAttributes": {"verb": "patch", "resource": "nodes"}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = await controller.raw("POST", path, body=msgspec.json.encode(kind | review))
        assert msgspec.json.decode(answer)["status"]["allowed"]
    await asyncio.to_thread(ours.up, ours.spec(controller_flags=()), Source())
    assert ours.processes.find(component).pid != before


async def test_a_node_that_is_removed_is_named_with_the_pods_on_it(ours, client):
    await asyncio.to_thread(ours.up, ours.spec(nodes=2), Source())
    made = sliced("there")
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "gpu-1"}
    await client.create(PODS, made)
    await phase(client, "default", "there", "Running")
    said = []
    await asyncio.to_thread(ours.up, ours.spec(nodes=1), Source(), say=said.append)
    assert "removing 1 node (gpu-1) with 1 pod (default/there)" in said


async def test_a_paused_process_goes_on_where_it_was(ours, client):
    before = ours.processes.find(operator.WEBHOOK).pid
    ours.pause(operator.WEBHOOK)
    ours.resume(operator.WEBHOOK)
    assert gated(await client.create(PODS, sliced("resumed")))
    assert ours.processes.find(operator.WEBHOOK).pid == before


def test_a_cluster_that_has_us_does_not_become_bare(ours):
    with pytest.raises(BadInput, match=r"runs InstaSlice.*instaslice down t"):
        ours.up(ours.spec(bare=True), Source())


async def test_a_bare_cluster_has_nothing_of_ours(new_cluster):
    # Not the shared one: other tests put our definitions there.
    cluster = new_cluster("bare")
    await asyncio.to_thread(cluster.up, ClusterSpec(nodes=0, bare=True), Source())
    assert not set(operator.ROLES) & set(cluster.components())
    async with await Client.connect(cluster.kubeconfig) as client:
        for absent in (f"/api/v1/namespaces/{names.NAMESPACE}", f"/apis/{names.GROUP}"):
            with pytest.raises(NotFound):
                await client.raw("GET", absent)
