"""What tests of a real kubelet with containerd share. They need Linux and root, and say so where they have neither."""

import os
import sys

import pytest
from running import pod

from instaslice.kube.client import Client
from instaslice.kube.core import PODS
from instaslice.local import images
from instaslice.local.cluster import ClusterSpec

REAL = ClusterSpec(nodes=0, real_node=True, bare=True)

linux_and_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="a real node needs Linux and root on this machine"
)


async def run(client: Client, name: str, script: str, **spec) -> None:
    await client.create(PODS, pod("default", name, image=images.BUSYBOX, command=["sh", "-c", script], **spec))
