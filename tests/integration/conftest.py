"""One real cluster for a test run, a namespace for each test in which pods can be made.

No kubectl: tests talk to the API server through `instaslice.kube`.
"""

import uuid

import leftovers
import pytest
from versions import KUBERNETES

from instaslice.kube.client import Client
from instaslice.kube.core import NAMESPACES, Namespace
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec
from instaslice.local.objects import ClusterObjects


@pytest.fixture(scope="session", autouse=True)
def state_home():
    """Clusters of tests lie apart from the user's own. What a killed test run left is removed by the next."""
    leftovers.remove()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(leftovers.HOME))
        yield leftovers.HOME


@pytest.fixture
def new_cluster(state_home):
    """Makes clusters that are gone after the test: `new_cluster("a")`."""
    made = []

    def make(name: str) -> Cluster:
        made.append(Cluster(leftovers.own(name)))
        return made[-1]

    yield make
    for each in made:
        each.down()


@pytest.fixture(scope="session")
def cluster(state_home):
    """The cluster that all tests share: two emulated nodes with two A100-40GB each, and nothing of ours in it."""
    shared = Cluster(leftovers.own("shared"))
    shared.up(ClusterSpec(nodes=2, gpus=2, bare=True, kubernetes=KUBERNETES), Source())
    yield shared
    shared.down()


@pytest.fixture
async def client(cluster):
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as made:
        yield made


@pytest.fixture
async def namespace(client):
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name=name)))
    await ClusterObjects(client).namespace_ready(name)
    yield name
    await client.delete(NAMESPACES, Key("", name))
