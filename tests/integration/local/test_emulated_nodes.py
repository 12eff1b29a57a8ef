"""The shared cluster: real control plane, nodes whose kubelet kwok plays."""

import pytest
from running import phase, pod

from instaslice.api.names import EMULATED
from instaslice.kube.client import Client, JsonOp, Selector
from instaslice.kube.core import NODES, PODS
from instaslice.kube.errors import Forbidden, NotFound
from instaslice.kube.meta import Key
from instaslice.local import components


@pytest.mark.parametrize(
    "annotations, ending",
    [
        pytest.param({"run-for": "200ms"}, "Succeeded", id="runs as long as it says, then succeeds"),
        pytest.param({"run-for": "200ms", "exit-code": "3"}, "Failed", id="fails with the exit code it names"),
    ],
)
async def test_how_a_pod_ends(client, namespace, annotations, ending):
    await client.create(PODS, pod(namespace, "p", **annotations))
    ended = await phase(client, namespace, "p", "Succeeded", "Failed")
    assert ended.status.phase == ending


async def test_a_pod_without_a_time_runs_until_it_is_deleted(client, namespace):
    await client.create(PODS, pod(namespace, "p"))
    await phase(client, namespace, "p", "Running")
    # Another pod lives and ends meanwhile; this one is still there.
    await client.create(PODS, pod(namespace, "q", **{"run-for": "1s"}))
    await phase(client, namespace, "q", "Succeeded")
    assert (await client.get(PODS, Key(namespace, "p"))).status.phase == "Running"
    await client.delete(PODS, Key(namespace, "p"), grace_seconds=0)
    with pytest.raises(NotFound):
        await client.get(PODS, Key(namespace, "p"))


async def test_a_gated_pod_is_scheduled_when_its_gate_is_gone(client, namespace):
    await client.create(
        PODS, pod(namespace, "p", schedulingGates=[{"name": "gpu.das.com/slice"}], **{"run-for": "1ms"})
    )
    await client.create(PODS, pod(namespace, "other", **{"run-for": "1ms"}))
    await phase(client, namespace, "other", "Succeeded")
    assert (await client.get(PODS, Key(namespace, "p"))).spec.node_name == ""
    await client.patch(PODS, Key(namespace, "p"), [JsonOp(op="remove", path="/spec/schedulingGates")])
    assert (await phase(client, namespace, "p", "Succeeded")).spec.node_name.startswith("gpu-")


async def test_nodes_say_which_gpus_they_have(client):
    found = await client.list(NODES, Selector(labels=EMULATED))
    assert sorted(node.metadata.name for node in found) == ["gpu-0", "gpu-1"]
    for node in found:
        assert node.metadata.labels[EMULATED] == "A100-40GB"
        assert node.metadata.labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
        assert node.metadata.labels["nvidia.com/gpu.count"] == "2"
        assert node.status.allocatable["cpu"] == "64"


async def test_the_server_is_the_version_that_is_pinned(client):
    assert f'"gitVersion": "v{components.KUBERNETES}"'.encode() in await client.raw("GET", "/version")


async def test_rbac_is_on(cluster):
    """kwok's own certificate may do what kwok does and nothing else."""
    async with await Client.connect(cluster.plane().kubeconfig("kwok")) as kwok:
        await kwok.list(PODS)
        with pytest.raises(Forbidden):
            await kwok.raw("GET", "/api/v1/secrets")
