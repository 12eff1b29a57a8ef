"""A real kubelet with containerd on this machine. Needs Linux and root; says so where it has neither."""

import asyncio
import os
import subprocess
import sys

import msgspec
import psutil
import pytest
from machine import kill_everything, processes_of, snapshot
from running import phase, pod

from instaslice.kube.client import Client
from instaslice.kube.core import PODS
from instaslice.kube.meta import Key
from instaslice.local import images
from instaslice.local.binaries import Source
from instaslice.local.cluster import Spec

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="a real node needs Linux and root on this machine"
)

REAL = Spec(nodes=0, real_node=True, bare=True)


@pytest.fixture
def real(new_cluster):
    cluster = new_cluster("real")
    cluster.up(REAL, Source())
    return cluster


async def run(client: Client, name: str, script: str, **spec) -> None:
    await client.create(PODS, pod("default", name, image=images.BUSYBOX, command=["sh", "-c", script], **spec))


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
    async with await Client.connect(real.kubeconfig) as client:
        await run(client, "stays", "sleep 3600")
        await phase(client, "default", "stays", "Running")
        before = await container(client, "stays")
        real.kill(component)
        assert real.components()[component] is False
        real.start(component)
        # The kubelet is back when it runs another pod; the first one is the same container still.
        await run(client, "after", "true")
        await phase(client, "default", "after", "Succeeded")
        assert await container(client, "stays") == before


async def test_a_node_whose_every_process_was_killed_comes_back_and_runs_pods(real):
    async with await Client.connect(real.kubeconfig) as client:
        await run(client, "lost", "sleep 3600")
        await phase(client, "default", "lost", "Running")
        real.kill("node")
        await asyncio.to_thread(real.up, REAL, Source())
        assert all(real.components().values())
        await run(client, "after", "true")
        await phase(client, "default", "after", "Succeeded")


@pytest.mark.parametrize("killed", [False, True], ids=["while a pod runs", "after all of it was killed"])
async def test_down_leaves_nothing_of_a_real_node(new_cluster, killed):
    before = snapshot()
    cluster = new_cluster("gone")
    await asyncio.to_thread(cluster.up, REAL, Source())
    async with await Client.connect(cluster.kubeconfig) as client:
        await run(client, "stays", "sleep 987654")
        await phase(client, "default", "stays", "Running")
    assert containers("sleep 987654")
    if killed:
        kill_everything(cluster)
    cluster.down()
    assert containers("sleep 987654") == []
    assert processes_of(cluster.layout.root) == []
    assert snapshot() == before


@pytest.mark.parametrize("after", ["node", "containerd", "kubelet"])
async def test_up_killed_while_a_real_node_starts_is_undone_by_down_and_finished_by_up(new_cluster, after):
    before = snapshot()
    cluster = new_cluster("cut")
    begun = subprocess.Popen(
        [sys.executable, "-m", "instaslice.cli", "up", cluster.name, "--real-node", "--nodes", "0", "--bare"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    while after not in cluster.components() and begun.poll() is None:
        pass
    begun.kill()
    begun.wait()
    assert after in cluster.components()
    if after == "containerd":
        cluster.down()
        assert processes_of(cluster.layout.root) == []
        assert snapshot() == before
    await asyncio.to_thread(cluster.up, REAL, Source())
    async with await Client.connect(cluster.kubeconfig) as client:
        await run(client, "hello", "true")
        await phase(client, "default", "hello", "Succeeded")


async def test_two_real_nodes_live_side_by_side(real, new_cluster):
    other = new_cluster("twin")
    await asyncio.to_thread(other.up, REAL, Source())
    for cluster in (real, other):
        async with await Client.connect(cluster.kubeconfig) as client:
            await run(client, "hello", f"echo {cluster.name}")
            await phase(client, "default", "hello", "Succeeded")
            assert await logs(client, "hello") == f"{cluster.name}\n"
    assert real.record().network != other.record().network
    other.down()
    async with await Client.connect(real.kubeconfig) as client:
        await client.delete(PODS, Key("default", "hello"), grace_seconds=0)
        await run(client, "again", "true")
        await phase(client, "default", "again", "Succeeded")


def containers(command: str) -> list[psutil.Process]:
    """Live processes with exactly this command line, in whatever namespace."""
    return [each for each in psutil.process_iter(["cmdline"]) if " ".join(each.info["cmdline"] or ()) == command]
