"""Stories of classic mode: a cluster with all our processes in it, shared by the tests of this folder.

`client` and `namespace` are of that cluster here. Tests that break its parts take `new_cluster` instead.
"""

import os

import pytest

from instaslice.kube.client import Client
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, Spec


@pytest.fixture(scope="session")
def sliced(state_home):
    """Two emulated nodes with two A100-40GB each, webhook, controller and agent."""
    shared = Cluster(f"t{os.getpid()}-sliced")
    shared.up(Spec(nodes=2, gpus=2), Source())
    yield shared
    shared.down()


@pytest.fixture
async def client(sliced):
    async with await Client.connect(sliced.kubeconfig, rate=1000, burst=1000) as made:
        yield made
