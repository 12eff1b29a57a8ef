"""The chart on a real node, installed by real Helm: the image is built and imported, and our pods run it.

A real kubelet with containerd and an emulated GPU; Kubernetes has nothing of ours but the chart. Needs Linux and root.
"""

import os
import subprocess
import sys
from pathlib import Path

import leftovers
import pytest
from helm import Helm
from versions import KUBERNETES

from instaslice.kube.client import Client
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec

ROOT = Path(__file__).parents[3]


def pytest_collection_modifyitems(items):
    if sys.platform != "linux" or os.geteuid() != 0:
        reason = pytest.mark.skip(reason="a real node needs Linux and root on this machine")
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(reason)


@pytest.fixture(scope="package")
def image(tmp_path_factory):
    """The archive of the image of this tree, and its name."""
    archive = tmp_path_factory.mktemp("image") / "instaslice.tar"
    argv = [sys.executable, "scripts/image", "archive", str(archive)]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert built.returncode == 0, built.stderr[-2000:]
    return archive, built.stdout.strip()


@pytest.fixture(scope="package")
def node(state_home, image):
    """Kubernetes alone, with the image on its real node; "next" is another tag of it."""
    archive, name = image
    made = Cluster(leftovers.own("install"))
    try:
        made.up(ClusterSpec(nodes=0, gpus=1, real_node=True, bare=True, kubernetes=KUBERNETES), Source())
        real = made.real_node()
        real.import_image(archive)
        real.tag_image(name, f"{name.rpartition(':')[0]}:next")
        yield made
    finally:
        made.down()


@pytest.fixture
def helm(node):
    return Helm(node.kubeconfig)


@pytest.fixture
def settings(node, image):
    """Values for this cluster, which has no kube-proxy: pods reach the API server over the bridge."""
    repository, _, tag = image[1].rpartition(":")
    record = node.record()
    return (
        f"image.repository={repository}",
        f"image.tag={tag}",
        "image.pullPolicy=Never",
        "agent.emulated.enabled=true",
        f"apiServer.host={record.network.ip}",
        f"apiServer.port={record.ports['kube-apiserver']}",
        "namespace.create=true",
    )


@pytest.fixture
async def client(node):
    async with await Client.connect(node.kubeconfig, rate=1000, burst=1000) as made:
        yield made
