"""The real cluster that integration tests share. Temporary: `instaslice.local` takes the place of the helper."""

import shutil
import uuid

import pytest
import temporary_cluster

from instaslice.kube.client import Client
from instaslice.kube.core import NAMESPACES, Namespace
from instaslice.kube.meta import Key, ObjectMeta


@pytest.fixture(scope="session")
def cluster():
    made = temporary_cluster.start()
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture
async def client(cluster):
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as made:
        yield made


@pytest.fixture
async def namespace(client):
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name=name)))
    yield name
    await client.delete(NAMESPACES, Key("", name))
