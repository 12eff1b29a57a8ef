"""What the authorizer of a real API server lets our processes do."""

import pytest
from msgspec.json import decode, encode

from instaslice.api import names, roles
from instaslice.kube.core import NAMESPACES
from instaslice.kube.meta import Key
from instaslice.local.objects import GRANTS

OWN, HELD, TEAM = "own namespace", names.PLACEHOLDERS, "default"
PLAIN, TAINTS, HINTS = roles.controller(), roles.controller(taint_nodes=True), roles.controller(autoscaling_hints=True)

ROWS = [
    pytest.param(PLAIN, "patch", "pods", TEAM, True, id="the controller ungates pods"),
    pytest.param(PLAIN, "patch", "pods/status", TEAM, True, id="and writes their condition"),
    pytest.param(PLAIN, "delete", "pods", TEAM, False, id="but deletes none"),
    pytest.param(PLAIN, "create", "pods", OWN, False, id="and creates none, not even beside itself"),
    pytest.param(PLAIN, "delete", "pods", OWN, False, id="and removes none there"),
    pytest.param(PLAIN, "patch", "nodes", "", False, id="and no taints without the flag"),
    pytest.param(PLAIN, "get", "secrets", OWN, False, id="no secrets"),
    pytest.param(PLAIN, "update", "leases.coordination.k8s.io", OWN, True, id="its lease"),
    pytest.param(PLAIN, "update", "leases.coordination.k8s.io", TEAM, False, id="no other lease"),
    pytest.param(TAINTS, "patch", "nodes", "", True, id="taints with the flag"),
    pytest.param(TAINTS, "create", "pods", HELD, False, id="placeholders are another flag"),
    pytest.param(HINTS, "create", "pods", HELD, True, id="placeholders with the flag"),
    pytest.param(HINTS, "delete", "pods", HELD, True, id="which are removed too"),
    pytest.param(HINTS, "create", "pods", OWN, False, id="no placeholders beside the controller"),
    pytest.param(HINTS, "create", "pods", TEAM, False, id="nor in a namespace of users"),
    pytest.param(HINTS, "delete", "pods", TEAM, False, id="where none is removed"),
    pytest.param(roles.AGENT, "list", "pods", TEAM, True, id="the agent lists pods"),
    pytest.param(roles.AGENT, "watch", "pods", TEAM, False, id="but watches none"),
    pytest.param(roles.AGENT, "patch", "pods", TEAM, False, id="and writes none"),
    pytest.param(roles.AGENT, "delete", "pods", TEAM, False, id="and deletes none"),
    pytest.param(roles.AGENT, "patch", "nodes", "", False, id="nor taints nodes"),
    pytest.param(roles.AGENT, "patch", "nodes/status", "", True, id="it writes what they advertise"),
    pytest.param(roles.webhook(), "list", "secrets", OWN, False, id="the webhook reads its own secret only"),
    pytest.param(roles.webhook(), "get", "pods", TEAM, False, id="and no pods"),
]


@pytest.fixture
async def allowed(client, namespace):
    """Whether a user who has a role may do something: `await allowed(role, "patch", "nodes", "")`."""
    made = []

    async def ask(role, verb, what, where):
        subject = {"kind": "User", "apiGroup": roles.RBAC, "name": namespace}
        for document in roles.documents(namespace, role, subject, namespace=namespace):
            resource = GRANTS[document["kind"]]
            made.append((resource, document["metadata"]))
            await client.apply(resource, document, manager="test", force=True)
        plain, _, group = what.partition(".")
        name, _, part = plain.partition("/")
        of = {"verb": verb, "resource": name, "subresource": part, "group": group}
        of["namespace"] = namespace if where == OWN else where
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        review["spec"] = {"user": namespace, "resourceAttributes": of}
        answer = await client.raw("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=encode(review))
        return decode(answer)["status"]["allowed"]

    yield ask
    for resource, metadata in made:
        if resource is not NAMESPACES:
            await client.delete(resource, Key(metadata.get("namespace", ""), metadata["name"]))


@pytest.mark.parametrize("role, verb, resource, where, expected", ROWS)
async def test_what_each_process_may_do(allowed, role, verb, resource, where, expected):
    assert await allowed(role, verb, resource, where) is expected
