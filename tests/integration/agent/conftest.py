"""The agent as a process on the shared cluster, for nodes that are this test's own."""

import asyncio
import contextlib
import uuid

import pytest
from machines import Agent, Machine, node_manifest

from instaslice.api import crd, names, roles
from instaslice.api.instaslice import INSTASLICES
from instaslice.kube.core import NAMESPACES, NODES, PartialObjectMetadata
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.local.objects import GRANTS, RBAC
from instaslice.local.pki import Authority

DEFINITIONS = Resource(
    PartialObjectMetadata,
    "CustomResourceDefinition",
    "customresourcedefinitions",
    group="apiextensions.k8s.io",
    namespaced=False,
)


@pytest.fixture
async def defined(client):
    """The definition is in the server and served."""
    await client.apply(DEFINITIONS, crd.definition(), manager="test", force=True)
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NotFound):
                await client.list(INSTASLICES)
                return
            await asyncio.sleep(0.05)


@pytest.fixture
def group():
    """Tells the nodes of this test from all others."""
    return f"agent-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def machine(client, defined, group):
    """Makes nodes, gone after the test: `await machine()`."""
    made = []

    async def make(**shape):
        made.append(Machine(client, f"{group}-{len(made)}"))
        await client.create(NODES, node_manifest(made[-1].name, group, **shape))
        return made[-1]

    yield make
    for each in made:
        for resource in (NODES, INSTASLICES):
            with contextlib.suppress(NotFound):
                await client.delete(resource, each.key)


@pytest.fixture
async def account(cluster, client, group, tmp_path):
    """A kubeconfig for a user who may do what the agent needs, and no more."""
    subject = {"kind": "User", "apiGroup": RBAC, "name": group}
    granted = roles.documents(group, roles.agent(emulated_nodes=True), subject)
    # It stays: agents of other tests renew their Lease there.
    await client.apply(NAMESPACES, {"metadata": {"name": names.NAMESPACE}}, manager="test", force=True)
    for each in granted:
        await client.create(GRANTS[each["kind"]], each)
    plane = cluster.plane()
    authority = Authority(plane.layout.pki)
    yield authority.kubeconfig(
        tmp_path / "kubeconfig", server=plane.server, client=authority.issue(group, group), name="agent"
    )
    for each in granted:
        await client.delete(GRANTS[each["kind"]], Key(each["metadata"].get("namespace", ""), group))


@pytest.fixture
async def agent(account, group, tmp_path):
    """Not started yet: `await agent.start("--grace", "1")`."""
    made = Agent(account, group, tmp_path / "gpus")
    yield made
    await made.end()
