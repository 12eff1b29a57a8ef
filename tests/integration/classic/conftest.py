"""Stories of classic mode: a cluster with all our processes in it, shared by the tests of this folder.

`client` and `namespace` are of that cluster here, and every test is watched by the invariants. A story has a `stage`
with nodes of its own; tests that break what others share take `new_cluster` instead.
"""

import leftovers
import pytest
from invariants import invariants
from stage import Stage
from versions import KUBERNETES

from instaslice.kube.client import Client
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec

__all__ = ["invariants"]


@pytest.fixture(scope="session")
def sliced(state_home):
    """Two emulated nodes with two A100-40GB each, webhook, controller and agent."""
    shared = Cluster(leftovers.own("sliced"))
    shared.up(ClusterSpec(nodes=2, gpus=2, kubernetes=KUBERNETES), Source())
    yield shared
    shared.down()


@pytest.fixture
async def client(sliced):
    async with await Client.connect(sliced.kubeconfig, rate=1000, burst=1000) as made:
        yield made


@pytest.fixture
async def stage(client, namespace):
    """Nodes and pods of one story. When it is over its pods go, and every slot has to come back."""
    async with Stage(client, namespace).following() as made:
        yield made
        await made.clear()
