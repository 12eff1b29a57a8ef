"""The verbs on the real API server, and what it answers when they cannot be done."""

import msgspec
import pods
import pytest

from instaslice.kube import errors
from instaslice.kube.client import Client, JsonOp, Selector
from instaslice.kube.core import LEASES, NODES, PODS, Lease, LeaseSpec, Node
from instaslice.kube.meta import Key, ObjectMeta


@pytest.fixture
async def train(client, namespace):
    await client.create(PODS, pods.pod(namespace, "train", app="x"))
    return Key(namespace, "train")


@pytest.fixture
async def node(client, namespace):
    """A node named after the test's namespace, so that tests do not meet."""
    yield await client.create(NODES, Node(metadata=ObjectMeta(name=f"node-{namespace}")))
    await client.delete(NODES, Key("", f"node-{namespace}"))


async def test_what_was_created_is_read_back(client, train):
    pod = await client.get(PODS, train)
    assert (pod.metadata.name, pod.metadata.labels) == ("train", {"app": "x"})
    assert [container.name for container in pod.spec.containers] == ["main"]


async def test_a_list_takes_selectors(client, namespace, train):
    await client.create(PODS, pods.pod(namespace, "other", app="y"))
    found = await client.list(PODS, Selector(namespace=namespace, labels="app=y"))
    assert [pod.metadata.name for pod in found] == ["other"]


async def test_a_deleted_pod_is_not_found_and_the_message_says_which(client, train):
    await client.delete(PODS, train, grace_seconds=0)
    with pytest.raises(errors.NotFound, match=f"^get pods {train}: 404 NotFound: "):
        await client.get(PODS, train)


async def test_creating_a_name_twice(client, namespace, train):
    with pytest.raises(errors.AlreadyExists, match=f"^create pods {train}: 409 "):
        await client.create(PODS, pods.pod(namespace, "train"))


async def test_deleting_what_took_the_name_meanwhile_is_a_conflict(client, train):
    with pytest.raises(errors.Conflict):
        await client.delete(PODS, train, uid="00000000-0000-0000-0000-000000000000", grace_seconds=0)


async def test_apply_owns_what_it_sends_and_gives_up_what_it_leaves_out(client, train):
    labels = {"metadata": {**train._asdict(), "labels": {"slice": "a", "gone": "soon"}}}
    await client.apply(PODS, labels, manager="ours")
    del labels["metadata"]["labels"]["gone"]
    pod = await client.apply(PODS, labels, manager="ours")
    assert pod.metadata.labels == {"app": "x", "slice": "a"}


async def test_apply_of_a_field_that_another_owns_is_a_conflict_until_forced(client, train):
    await client.apply(PODS, {"metadata": {**train._asdict(), "labels": {"slice": "a"}}}, manager="theirs")
    mine = {"metadata": {**train._asdict(), "labels": {"slice": "b"}}}
    with pytest.raises(errors.Conflict, match="theirs"):
        await client.apply(PODS, mine, manager="ours")
    assert (await client.apply(PODS, mine, manager="ours", force=True)).metadata.labels["slice"] == "b"


async def test_a_json_patch_whose_test_fails_changes_nothing(client, train):
    ops = [
        JsonOp(op="test", path="/metadata/labels/app", value="not x"),
        JsonOp(op="remove", path="/metadata/labels/app"),
    ]
    with pytest.raises(errors.Invalid, match=f"^patch pods {train}: 422 "):
        await client.patch(PODS, train, ops)
    assert (await client.get(PODS, train)).metadata.labels == {"app": "x"}


async def test_a_json_patch_can_set_null_and_remove(client, train):
    pod = await client.patch(PODS, train, [JsonOp(op="remove", path="/metadata/labels/app")])
    assert pod.metadata.labels == {}


async def test_a_stale_replace_is_a_conflict(client, namespace):
    """A Lease that nobody else looks at: controllers change nodes as soon as they come."""
    mine = Lease(metadata=ObjectMeta(namespace=namespace, name="l"), spec=LeaseSpec(holder_identity="a"))
    first = await client.create(LEASES, mine)
    await client.replace(LEASES, msgspec.structs.replace(first, spec=LeaseSpec(holder_identity="b")))
    with pytest.raises(errors.Conflict):
        await client.replace(LEASES, msgspec.structs.replace(first, spec=LeaseSpec(holder_identity="c")))


async def test_status_is_written_apart(client, node):
    key = Key("", node.metadata.name)
    body = {"metadata": {"name": key.name}, "status": {"capacity": {"example.com/slice": "7"}}}
    written = await client.apply(NODES, body, manager="ours", subresource="status")
    assert written.status.capacity == {"example.com/slice": "7"}


async def test_an_object_that_breaks_a_rule_says_which(client, namespace):
    broken = pods.pod(namespace, "broken")
    broken["spec"]["containers"][0]["name"] = "Not A Name"
    with pytest.raises(errors.Invalid, match=f"create pods {namespace}/broken: 422 Invalid: .*name"):
        await client.create(PODS, broken)


async def test_a_server_that_is_not_there_is_named_with_its_kubeconfig(cluster, tmp_path, nobody):
    text = cluster.kubeconfig.read_text()
    server = next(line.split("server:")[1].strip() for line in text.splitlines() if "server:" in line)
    elsewhere = tmp_path / "kubeconfig"
    elsewhere.write_text(text.replace(server, f"https://{nobody}"))
    async with await Client.connect(elsewhere) as client:
        with pytest.raises(errors.Unreachable, match=f"get pods a/b: no answer from https://{nobody}.*{elsewhere}"):
            await client.get(PODS, Key("a", "b"))


async def test_a_list_in_pages_is_whole(client, namespace, monkeypatch):
    monkeypatch.setattr("instaslice.kube.client.PAGE_SIZE", 3)
    await pods.make(client, namespace, [f"p{number}" for number in range(8)])
    pages = [page async for page in client.pages(PODS, Selector(namespace=namespace))]
    assert [len(page.items) for page in pages] == [3, 3, 2]
    assert len({page.metadata.resource_version for page in pages}) == 1
