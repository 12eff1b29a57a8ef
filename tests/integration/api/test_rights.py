"""What the authorizer of a real API server lets our processes do."""

import pytest
from msgspec.json import decode, encode
from waiting import until

from instaslice.api import names, roles
from instaslice.kube.core import NAMESPACES
from instaslice.kube.meta import Key
from instaslice.local.objects import GRANTS

OWN, PLACEHOLDERS, TEAM = "own namespace", names.PLACEHOLDERS, "default"

ROWS = [
    pytest.param(
        roles.controller(),
        [("patch", "pods", TEAM), ("patch", "pods/status", TEAM), ("update", "leases.coordination.k8s.io", OWN)],
        [
            *(("delete", "pods", where) for where in (TEAM, OWN, PLACEHOLDERS)),
            *(("create", "pods", where) for where in (TEAM, OWN, PLACEHOLDERS)),
            ("patch", "nodes", ""),
            *((verb, "configmaps", OWN) for verb in ("list", "delete", "get", "patch")),
            ("create", "configmaps", TEAM),
            ("get", "secrets", OWN),
            ("update", "leases.coordination.k8s.io", TEAM),
            ("patch", "instaslices.gpu.das.com/status", ""),
        ],
        id="the controller",
    ),
    pytest.param(
        roles.controller(taint_nodes=True),
        [("patch", "nodes", ""), ("update", "leases.coordination.k8s.io", OWN)],
        [("create", "pods", PLACEHOLDERS), ("delete", "nodes", ""), ("patch", "nodes/status", "")],
        id="which taints nodes",
    ),
    pytest.param(
        roles.controller(autoscaling_hints=True),
        [*((verb, "pods", PLACEHOLDERS) for verb in ("create", "delete")), ("create", "events.events.k8s.io", TEAM)],
        [*((verb, "pods", TEAM) for verb in ("create", "delete")), ("create", "pods", OWN), ("patch", "nodes", "")],
        id="which makes placeholders",
    ),
    pytest.param(
        roles.controller(keep_quotas=True),
        [(verb, "resourcequotas", TEAM) for verb in ("list", "watch", "create", "patch", "delete")],
        [("patch", "nodes", ""), ("create", "pods", TEAM), ("create", "limitranges", TEAM)],
        id="which keeps quotas",
    ),
    pytest.param(
        roles.controller(admission_check=True),
        [
            *((verb, "workloads.kueue.x-k8s.io", TEAM) for verb in ("list", "watch")),
            *((verb, "admissionchecks.kueue.x-k8s.io", "") for verb in ("list", "watch")),
            ("patch", "workloads.kueue.x-k8s.io/status", TEAM),
        ],
        [
            *((verb, "workloads.kueue.x-k8s.io", TEAM) for verb in ("create", "patch", "delete")),
            *((verb, "admissionchecks.kueue.x-k8s.io", "") for verb in ("create", "patch")),
            ("list", "clusterqueues.kueue.x-k8s.io", ""),
        ],
        id="which answers Kueue",
    ),
    pytest.param(
        roles.agent(emulated_nodes=True),
        [
            *(("list", "pods", TEAM), ("patch", "nodes/status", ""), ("patch", "instaslices.gpu.das.com/status", "")),
            *((verb, "events.events.k8s.io", "default") for verb in ("create", "patch")),
        ],
        [
            *((verb, "pods", TEAM) for verb in ("get", "watch", "create", "patch", "delete")),
            *((verb, "events.events.k8s.io", OWN) for verb in ("create", "patch")),
            ("patch", "nodes", ""),
        ],
        id="the agent",
    ),
    pytest.param(
        roles.webhook(),
        [("create", "secrets", OWN), ("list", "resourcequotas", TEAM), ("list", "limitranges", TEAM)],
        [("list", "secrets", OWN), ("get", "secrets", OWN), ("get", "pods", TEAM), ("create", "secrets", TEAM)],
        id="the webhook",
    ),
]


@pytest.fixture
async def grant(client, namespace):
    """Gives a role to a user, who may do nothing else: `await grant(role)`, until the test ends."""
    made = []

    async def give(role):
        subject = {"kind": "User", "apiGroup": roles.RBAC, "name": namespace}
        for document in roles.documents(namespace, role, subject, namespace=namespace):
            resource = GRANTS[document["kind"]]
            made.append((resource, document["metadata"]))
            await client.apply(resource, document, manager="test", force=True)

    yield give
    for resource, metadata in made:
        if resource is not NAMESPACES:
            await client.delete(resource, Key(metadata.get("namespace", ""), metadata["name"]))


@pytest.mark.parametrize("role, granted, refused", ROWS)
async def test_what_each_process_may_do(client, namespace, grant, role, granted, refused):
    async def allowed(verb, what, where):
        plain, _, group = what.partition(".")
        group, _, part = group.partition("/")
        plain, _, core_part = plain.partition("/")
        asked = {"verb": verb, "resource": plain, "subresource": part or core_part, "group": group}
        asked["namespace"] = namespace if where == OWN else where
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        review["spec"] = {"user": namespace, "resourceAttributes": asked}
        answer = await client.raw("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=encode(review))
        return decode(answer)["status"]["allowed"]

    await grant(role)
    for each in granted:
        # The authorizer hears of new roles by watches of its own.
        await until(lambda each=each: allowed(*each), 30)
    assert [each for each in refused if await allowed(*each)] == []
