"""A real kubelet with containerd on this machine: pods run, whatever is killed.

One node for all these tests; each has pods of its own on it.
"""

import asyncio
import os
import subprocess

import msgspec
import pytest
from real_nodes import REAL, linux_and_root, run
from running import phase

from instaslice.kube.client import Client
from instaslice.kube.core import PODS
from instaslice.kube.meta import Key
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster

pytestmark = linux_and_root


@pytest.fixture(scope="module")
def real(state_home):
    """It takes most of a minute to start."""
    made = Cluster(f"t{os.getpid()}-real")
    try:
        made.up(REAL, Source())
        yield made
    finally:
        made.down()


async def logs(client: Client, name: str) -> str:
    """What the container wrote, by way of the API server and the kubelet's own HTTPS port."""
    return (await client.raw("GET", f"/api/v1/namespaces/default/pods/{name}/log")).decode()


async def container(client: Client, name: str) -> tuple[str, int]:
    """The identity of a pod's container and how often it was started again."""
    found = msgspec.json.decode(await client.raw("GET", f"/api/v1/namespaces/default/pods/{name}"))
    status = found["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"]


async def test_a_pod_completes_under_the_real_kubelet(real):
    async with await Client.connect(real.kubeconfig) as client:
        await run(client, "hello", "echo I am $(hostname)")
        ended = await phase(client, "default", "hello", "Succeeded", "Failed")
        assert (ended.status.phase, ended.spec.node_name) == ("Succeeded", "real-0")
        assert await logs(client, "hello") == "I am hello\n"
        await run(client, "fails", "exit 3")
        assert (await phase(client, "default", "fails", "Succeeded", "Failed")).status.phase == "Failed"


def test_kubectl_run_as_the_readme_has_it(real):
    kubectl = real.record().programs["kubectl"]
    words = ["run", "hi", "--image=busybox:1.35", "--restart=Never", "--attach", "--rm", "--quiet", "--", "echo", "hi"]
    done = subprocess.run(
        [kubectl, "--kubeconfig", real.kubeconfig, *words], capture_output=True, text=True, timeout=120
    )
    assert "hi" in done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("component", ["kubelet", "containerd"])
async def test_a_running_pod_does_not_notice_when_a_component_is_killed(real, component):
    stays, after = f"stays-{component}", f"after-{component}"
    async with await Client.connect(real.kubeconfig) as client:
        await run(client, stays, "sleep 3600")
        await phase(client, "default", stays, "Running")
        before = await container(client, stays)
        real.kill(component)
        assert real.components()[component] is False
        real.start(component)
        # The kubelet is back when it runs another pod; the first one is the same container still.
        await run(client, after, "true")
        await phase(client, "default", after, "Succeeded")
        assert await container(client, stays) == before


async def test_a_node_whose_every_process_was_killed_comes_back_and_runs_pods(real):
    async with await Client.connect(real.kubeconfig) as client:
        await run(client, "lost", "sleep 3600")
        await phase(client, "default", "lost", "Running")
        real.kill("node")
        await asyncio.to_thread(real.up, REAL, Source())
        assert all(real.components().values())
        await run(client, "after-all", "true")
        await phase(client, "default", "after-all", "Succeeded")


async def test_two_real_nodes_live_side_by_side(real, new_cluster):
    other = new_cluster("twin")
    await asyncio.to_thread(other.up, REAL, Source())
    for cluster in (real, other):
        async with await Client.connect(cluster.kubeconfig) as client:
            await run(client, "beside", f"echo {cluster.name}")
            await phase(client, "default", "beside", "Succeeded")
            assert await logs(client, "beside") == f"{cluster.name}\n"
    assert real.record().network != other.record().network
    other.down()
    async with await Client.connect(real.kubeconfig) as client:
        await client.delete(PODS, Key("default", "beside"), grace_seconds=0)
        await run(client, "again", "true")
        await phase(client, "default", "again", "Succeeded")
