"""A real kubelet with containerd and one emulated A100-40GB, InstaSlice on it; `client` and `namespace` are of it."""

import os
import sys
from pathlib import Path

import leftovers
import pytest
from cluster_monitor import ClusterMonitor
from versions import KUBERNETES

from instaslice.doctor import wait_until_settled
from instaslice.kube.client import Client
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec

SETTLES_WITHIN = 90.0


def pytest_collection_modifyitems(items):
    if sys.platform != "linux" or os.geteuid() != 0:
        reason = pytest.mark.skip(reason="a real node needs Linux and root on this machine")
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(reason)


@pytest.fixture(scope="module")
def sliced_node(state_home):
    """One for all tests of a module: a real node takes most of a minute to start."""
    made = Cluster(leftovers.own("node"))
    try:
        made.up(ClusterSpec(nodes=0, gpus=1, real_node=True, kubernetes=KUBERNETES), Source())
        yield made
    finally:
        made.down()


@pytest.fixture
async def client(sliced_node):
    async with await Client.connect(sliced_node.kubeconfig, rate=1000, burst=1000) as made:
        yield made


@pytest.fixture(autouse=True)
async def invariants(client):
    """No two pods on one slot during a test, and nothing lost after it. A test may add what it breaks on purpose."""
    meant = set()
    async with ClusterMonitor(client) as monitor:
        yield meant
    assert [str(each) for each in monitor.findings if each.invariant not in meant] == []
    assert [str(each) for each in await wait_until_settled(client, SETTLES_WITHIN)] == []
