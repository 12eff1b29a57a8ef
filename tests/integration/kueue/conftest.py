"""Stories with Kueue: one cluster with it and all our processes, shared by the tests of this folder.

`client` and `namespace` are of that cluster here, every test is watched by the invariants, and a story has a `stage`
with nodes and queues of its own.
"""

import leftovers
import pytest
from invariants import invariants
from queue_stage import QueueStage
from versions import KUBERNETES

from instaslice.kube.client import Client
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec

__all__ = ["invariants"]


@pytest.fixture(scope="session")
def queued(state_home):
    """Kueue, webhook, controller and agent, and one emulated node; stories add their own."""
    shared = Cluster(leftovers.own("queued"))
    # It answers the queues that have an AdmissionCheck of ours, and no others.
    flags = ("--admission-check",)
    shared.up(ClusterSpec(nodes=1, gpus=1, kueue=True, controller_flags=flags, kubernetes=KUBERNETES), Source())
    yield shared
    shared.down()


@pytest.fixture
async def client(queued):
    async with await Client.connect(queued.kubeconfig, rate=1000, burst=1000) as made:
        yield made


@pytest.fixture
async def stage(client, namespace):
    """Nodes, queues and pods of one story. When it is over the doctor finds nothing in the queues; then all of it goes,
    and every slot and all quota has to come back."""
    async with QueueStage(client, namespace).following() as made:
        yield made
        await made.healthy()
        await made.clear()
