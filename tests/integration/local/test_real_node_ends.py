"""What is left of a real node, and of one that was still starting, when it is taken down: nothing."""

import asyncio
import subprocess
import sys

import psutil
import pytest
from machine import kill_everything, processes_of, snapshot
from real_nodes import REAL, linux_and_root, run
from running import phase

from instaslice.kube.client import Client
from instaslice.local.binaries import Source

pytestmark = linux_and_root


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


def containers(command: str) -> list[psutil.Process]:
    """Live processes with exactly this command line, in whatever namespace."""
    return [each for each in psutil.process_iter(["cmdline"]) if " ".join(each.info["cmdline"] or ()) == command]
