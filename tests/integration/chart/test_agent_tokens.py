"""What the token of one node's agent may do: with RBAC and policy as the chart installs them, on a real API server."""

import json

import pytest
from waiting import until

from instaslice.api import crd, roles
from instaslice.api.instaslice import INSTASLICES
from instaslice.kube.client import Client, JsonOp, Selector
from instaslice.kube.core import NODES, PODS
from instaslice.kube.errors import Forbidden, KubeError
from instaslice.kube.meta import Key
from instaslice.local.objects import ACCOUNTS, DEFINITIONS, GRANTS, ClusterObjects
from instaslice.local.pki import Authority
from instaslice.webhook import agent_policy
from instaslice.webhook.policy import BINDINGS, POLICIES

HERE, THERE = "gpu-0", "gpu-1"
ALLOCATION = {
    "id": "a/main/0",
    "pod": {"namespace": "team", "name": "train", "uid": "1"},
    "container": "main",
    "profile": "1g.5gb",
    "gpu": "GPU-0",
    "start": 0,
    "size": 1,
    "state": "creating",
}


@pytest.fixture
async def account(client, namespace):
    """The account of the agents, with its role and the policy that restricts it."""
    objects = ClusterObjects(client)
    await objects.apply(DEFINITIONS, crd.definition())
    await objects.definitions_established([crd.NAME])
    await client.create(ACCOUNTS, {"metadata": {"namespace": namespace, "name": "agent"}})
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": "agent"}
    name = f"agent-{namespace}"
    written = [(GRANTS[each["kind"]], each) for each in roles.documents(name, roles.AGENT, subject)]
    written.append((POLICIES, agent_policy.policy(f"system:serviceaccount:{namespace}:agent", name=name)))
    written.append((BINDINGS, agent_policy.binding(name=name)))
    for resource, document in written:
        await objects.apply(resource, document)
    yield namespace
    for resource, document in reversed(written):
        metadata = document["metadata"]
        await client.delete(resource, Key(metadata.get("namespace", ""), metadata["name"]))


@pytest.fixture
async def agents(client, account, cluster, tmp_path):
    """Node → a client with the token of the agent's pod there, and "" → one whose token is bound to no pod."""
    authority, server = Authority(cluster.plane().layout.pki), cluster.plane().server
    made = {}
    for node in (HERE, THERE, ""):
        bound = {}
        if node:
            spec = {"nodeName": node, "serviceAccountName": "agent", "containers": [{"name": "main", "image": "none"}]}
            pod = await client.create(PODS, {"metadata": {"namespace": account, "name": f"agent-{node}"}, "spec": spec})
            reference = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
            bound = {"boundObjectRef": reference}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [], **bound}}
        answer = await client.raw("POST", ACCOUNTS.path(account, "agent", "token"), body=json.dumps(request).encode())
        token = json.loads(answer)["status"]["token"]
        file = authority.kubeconfig(tmp_path / f"agent-{node}", server=server, client=token, name="agent")
        made[node] = await Client.connect(file, rate=1000, burst=1000)
    for node in (HERE, THERE):
        # The authorizer and the policies hear of what is new by watches of their own.
        await until(lambda node=node: created(made[node], node), 30)
    await until(
        lambda: refused(made[HERE].merge(INSTASLICES, Key("", THERE), {"metadata": {"labels": {"x": "y"}}})), 30
    )
    yield made
    for each in made.values():
        await each.close()
    for node in (HERE, THERE):
        await client.delete(INSTASLICES, Key("", node))


async def created(agent, node):
    try:
        await agent.create(INSTASLICES, {"metadata": {"name": node}, "spec": {"allocations": []}})
    except Forbidden:
        return False
    return True


async def refused(call):
    try:
        await call
    except Forbidden as error:
        return str(error)
    return ""


def status(generation=1):
    return [JsonOp(op="add", path="/status", value={"observedGeneration": generation})]


async def test_an_agent_does_its_work_on_its_own_node(agents):
    agent, key = agents[HERE], Key("", HERE)
    await agent.patch(INSTASLICES, key, status(), subresource="status")
    # As it does when the object belongs to an earlier node of that name.
    await agent.delete(INSTASLICES, key)
    assert await created(agent, HERE)
    assert {each.metadata.name for each in await agent.list(INSTASLICES)} >= {HERE, THERE}
    assert await agent.list(NODES, Selector(fields=f"metadata.name={HERE}"))


@pytest.mark.parametrize("whose", [HERE, ""], ids=["of another node", "bound to no pod"])
async def test_a_token_cannot_touch_the_object_of_a_node_that_is_not_its_own(agents, whose):
    agent, other = agents[whose], Key("", THERE)
    named = f"this token is of {'node ' + HERE if whose else 'no node'}"
    for attempt in (
        agent.patch(INSTASLICES, other, status(7), subresource="status"),
        agent.merge(INSTASLICES, other, {"metadata": {"labels": {"x": "y"}}}),
        agent.delete(INSTASLICES, other),
        agent.create(INSTASLICES, {"metadata": {"name": "gpu-9"}, "spec": {"allocations": []}}),
    ):
        assert named in await refused(attempt)


async def test_an_agent_cannot_promise_slices(agents):
    agent, key = agents[HERE], Key("", HERE)
    says = "the spec of an Instaslice object is written by the controller"
    assert says in await refused(agent.merge(INSTASLICES, key, {"spec": {"allocations": [ALLOCATION]}}))
    await agent.delete(INSTASLICES, key)
    document = {"metadata": {"name": HERE}, "spec": {"allocations": [ALLOCATION]}}
    assert says in await refused(agent.create(INSTASLICES, document))
    assert await created(agent, HERE)


async def test_the_controller_is_not_restricted(agents, client):
    await client.merge(INSTASLICES, Key("", HERE), {"spec": {"allocations": [ALLOCATION]}})
    await agents[HERE].patch(INSTASLICES, Key("", HERE), status(2), subresource="status")
    await client.merge(INSTASLICES, Key("", HERE), {"spec": {"allocations": []}})


async def test_an_agent_has_no_business_with_pods_secrets_and_nodes(agents, account):
    agent = agents[HERE]
    pod, node = f"/api/v1/namespaces/{account}/pods", f"/api/v1/nodes/{HERE}"
    body = json.dumps({"metadata": {"labels": {"x": "y"}}}).encode()
    attempts = [
        ("GET", f"{pod}/agent-{THERE}"),
        ("PATCH", f"{pod}/agent-{HERE}"),
        ("DELETE", f"{pod}/agent-{HERE}"),
        ("POST", pod),
        ("POST", f"{pod}/agent-{HERE}/exec"),
        ("POST", f"{pod}/agent-{HERE}/eviction"),
        ("GET", f"/api/v1/namespaces/{account}/secrets"),
        ("GET", "/api/v1/secrets"),
        ("GET", node),
        ("PATCH", node),
        ("PATCH", f"{node}/status"),
        ("DELETE", node),
        ("GET", f"{node}/proxy/pods"),
        ("GET", f"/api/v1/namespaces/{account}/configmaps"),
        ("POST", f"/api/v1/namespaces/{account}/serviceaccounts/agent/token"),
        ("DELETE", "/apis/gpu.das.com/v1alpha1/instaslices"),
    ]
    done = [(method, path) for method, path in attempts if await allowed(agent, method, path, body)]
    assert done == []


async def allowed(agent, method, path, body):
    try:
        await agent.raw(method, path, body=None if method == "GET" else body)
    except Forbidden:
        return False
    except KubeError:
        return True  # past the authorizer
    return True
