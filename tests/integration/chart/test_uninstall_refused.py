"""When the API server refuses what Helm creates before an uninstall: the policy of the chart, on a real API server."""

import pytest
from waiting import until

from instaslice.api import crd
from instaslice.api.instaslice import INSTASLICES
from instaslice.cli.drained import holds
from instaslice.kube.client import JsonOp
from instaslice.kube.core import PartialObjectMetadata
from instaslice.kube.errors import Forbidden
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.local.objects import DEFINITIONS, ClusterObjects
from instaslice.webhook import uninstall_policy
from instaslice.webhook.policy import BINDINGS, POLICIES

CONFIG_MAPS = Resource(PartialObjectMetadata, "ConfigMap", "configmaps")


def allocation(number, state):
    return {
        "id": f"uid/main/{number}",
        "pod": {"namespace": "team", "name": f"train-{number}", "uid": "1"},
        "container": "main",
        "profile": "1g.5gb",
        "gpu": "GPU-0",
        "start": number,
        "size": 1,
        "state": state,
    }


def prepared(number, state):
    return {
        **{key: allocation(number, state)[key] for key in ("id", "gpu", "profile", "start", "size")},
        "state": state,
    }


@pytest.fixture
async def uninstall(client, namespace):
    """Asks for the ConfigMap of the uninstall, and returns why it is refused, or nothing."""
    objects = ClusterObjects(client)
    await objects.apply(DEFINITIONS, crd.definition())
    await objects.definitions_established([crd.NAME])
    name = f"uninstall-{namespace}"
    await client.create(POLICIES, uninstall_policy.policy(namespace, name=name))
    await client.create(BINDINGS, uninstall_policy.binding(name=name))

    async def ask():
        try:
            await client.create(CONFIG_MAPS, {"metadata": {"namespace": namespace, "name": name}})
        except Forbidden as error:
            return str(error)
        await client.delete(CONFIG_MAPS, Key(namespace, name))
        return ""

    yield ask
    await client.delete(BINDINGS, Key("", name))
    await client.delete(POLICIES, Key("", name))


@pytest.fixture
async def node(client, namespace):
    """The Instaslice object of a node, with these allocations and slices: `await node([...], [...])`."""
    key = Key("", f"node-{namespace}")
    await client.create(INSTASLICES, {"metadata": {"name": key.name}, "spec": {"allocations": []}})

    async def write(allocations, slices):
        await client.merge(INSTASLICES, key, {"spec": {"allocations": allocations}})
        status = [JsonOp(op="add", path="/status", value={"observedGeneration": 1, "slices": slices})]
        await client.patch(INSTASLICES, key, status, subresource="status")
        return await client.get(INSTASLICES, key)

    yield write
    await client.delete(INSTASLICES, key)


async def test_an_uninstall_is_refused_exactly_while_a_pod_holds_a_slice(uninstall, node, namespace):
    await node([allocation(0, "ungated")], [prepared(0, "created")])
    # The API server hears of the policy and of the object by watches of its own.
    refused = await until(uninstall, 30)
    assert f"pod team/train-0 on node node-{namespace}: 1g.5gb. Pods hold slices" in refused
    assert "helm uninstall … --no-hooks" in refused
    cases = {
        "it is yet to be created": ([allocation(0, "creating")], []),
        "it is yet to be destroyed": ([allocation(0, "deleting")], [prepared(0, "deleting")]),
        "it was destroyed": ([allocation(0, "deleting")], [prepared(0, "deleted")]),
        "it never was": ([allocation(0, "failed")], []),
        "one of two is held": ([allocation(0, "deleted"), allocation(1, "ungated")], [prepared(1, "created")]),
        "there is none": ([], []),
        "two are held": ([allocation(0, "ungated"), allocation(1, "created")], []),
    }
    for case, (allocations, slices) in cases.items():
        now = await node(allocations, slices)
        wanted = any(holds(each, now) for each in now.spec.allocations)
        await until(lambda wanted=wanted: agrees(uninstall, wanted), 30, case)
    assert f"pod team/train-0 on node node-{namespace}: 1g.5gb, and 1 more" in await uninstall()


async def test_a_node_that_empties_as_many_slices_as_it_can_have_is_seen(uninstall, node):
    """The API server ignores a policy that costs it too much."""
    slices = [{**prepared(0, "created"), "id": f"foreign/{number}"} for number in range(1000)]
    last = {**prepared(0, "deleting"), "id": allocation(511, "deleting")["id"]}
    ending = [{**allocation(number, "deleting"), "start": 0} for number in range(512)]
    await node(ending, [*slices, last])
    assert "pod team/train-511" in await until(uninstall, 30)


async def agrees(uninstall, wanted):
    return bool(await uninstall()) == wanted


async def test_without_instaslice_objects_nothing_is_refused(uninstall, node, client, namespace):
    await node([allocation(0, "ungated")], [])
    await until(uninstall, 30)
    await client.delete(INSTASLICES, Key("", f"node-{namespace}"))
    await until(lambda: agrees(uninstall, False), 30)
    # The fixture deletes it once more.
    await client.create(INSTASLICES, {"metadata": {"name": f"node-{namespace}"}, "spec": {"allocations": []}})
