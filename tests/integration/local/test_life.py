"""A cluster from up to down, with everything killed on the way."""

import signal
import subprocess
import sys

import msgspec
import pytest
from machine import kill_everything, processes_of, snapshot, wait_for_start

from instaslice.api.names import EMULATED
from instaslice.errors import BadInput
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import NAMESPACES, NODES, Namespace
from instaslice.kube.meta import ObjectMeta
from instaslice.local import operator
from instaslice.local.binaries import Source

PLANE = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok")
OURS = tuple(operator.ROLES)


def up(cluster, **spec) -> None:
    """In a process of its own, as a user does it: the processes of a cluster are not ours to wait for."""
    words = [f"--{key}" if value is True else f"--{key}={value}" for key, value in spec.items()]
    done = subprocess.run(
        [sys.executable, "-m", "instaslice.cli", "up", cluster.name, *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


async def names(cluster, resource, labels=""):
    async with await Client.connect(cluster.kubeconfig) as client:
        return {each.metadata.name for each in await client.list(resource, Selector(labels=labels))}


async def test_up_after_everything_was_killed_has_everything_again(new_cluster):
    cluster = new_cluster("killed")
    up(cluster, nodes=3)
    async with await Client.connect(cluster.kubeconfig) as client:
        await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="kept")))
    kill_everything(cluster)

    up(cluster)

    assert all(cluster.components().values())
    assert "kept" in await names(cluster, NAMESPACES)
    assert await names(cluster, NODES) == {"gpu-0", "gpu-1", "gpu-2"}


async def test_up_again_changes_the_number_of_nodes_and_restarts_nothing(new_cluster):
    cluster = new_cluster("grown")
    up(cluster, nodes=1)
    before = {name: cluster.processes.find(name).pid for name in (*PLANE, *OURS)}
    up(cluster, nodes=3)
    assert await names(cluster, NODES, EMULATED) == {"gpu-0", "gpu-1", "gpu-2"}
    up(cluster, nodes=0)
    assert await names(cluster, NODES) == set()
    assert {name: cluster.processes.find(name).pid for name in (*PLANE, *OURS)} == before


async def test_a_cluster_may_lie_deeper_than_a_socket_can(new_cluster, state_home, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(state_home / ("d" * 120)))
    up(new_cluster("deep"), nodes=1, bare=True)


def test_what_another_version_runs_is_not_joined(new_cluster):
    cluster = new_cluster("older")
    up(cluster, nodes=0, bare=True)
    record = cluster.record()
    record.format = 0
    cluster.layout.record.write_bytes(msgspec.json.encode(record))
    before = cluster.components()
    with pytest.raises(BadInput, match=r"another version .* `instaslice down .*` first"):
        cluster.up(cluster.spec(), Source())
    assert cluster.components() == before
    kill_everything(cluster)
    up(cluster)


async def test_two_clusters_live_side_by_side(cluster, new_cluster):
    other = new_cluster("other")
    up(other, nodes=1, bare=True)
    async with await Client.connect(other.kubeconfig) as client:
        await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="only-there")))
    assert "only-there" not in await names(cluster, NAMESPACES)
    assert not set(other.record().ports.values()) & set(cluster.record().ports.values())
    other.down()
    assert all(cluster.components().values())


@pytest.mark.parametrize("killed", [False, True], ids=["while it runs", "after all of it was killed"])
async def test_down_leaves_nothing(new_cluster, killed):
    before = snapshot()
    cluster = new_cluster("gone")
    up(cluster, nodes=1)
    if killed:
        kill_everything(cluster)
    assert cluster.down()
    assert processes_of(cluster.layout.root) == []
    assert snapshot() == before
    assert not cluster.layout.root.exists()
    assert not cluster.down()


@pytest.mark.parametrize("after", ["etcd", "kube-apiserver", "kube-scheduler", "kwok", operator.AGENT])
async def test_up_killed_on_the_way_is_finished_by_the_next(new_cluster, after):
    """SIGKILL at the moment a component has been started; then down leaves nothing, or up makes it whole."""
    cluster = new_cluster("cut")
    begun = subprocess.Popen(
        [sys.executable, "-m", "instaslice.cli", "up", cluster.name],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_for_start(cluster, after, begun)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    if after == "kube-scheduler":
        cluster.down()
        assert processes_of(cluster.layout.root) == []
    up(cluster, nodes=1)
    assert all(cluster.components().values())
    assert set(cluster.components()) == {*PLANE, *OURS}
