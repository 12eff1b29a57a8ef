"""What our processes may do, as documents of RBAC."""

import pytest

from instaslice.api import names, roles

WHO = {"kind": "ServiceAccount", "namespace": "slices", "name": "controller"}
ALL = {"controller": roles.CONTROLLER, "agent": roles.AGENT, "webhook": roles.webhook()}


def test_rules_for_the_cluster_and_for_our_own_namespace_are_bound_apart():
    made = roles.documents("slicer", roles.CONTROLLER, WHO, namespace="slices")
    assert [document["kind"] for document in made] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    assert [document["metadata"].get("namespace") for document in made] == [None, None, "slices", "slices"]
    for role, binding in (made[:2], made[2:]):
        assert binding["roleRef"] == {"apiGroup": roles.RBAC, "kind": role["kind"], "name": "slicer"}
        assert binding["subjects"] == [WHO]


def test_one_that_needs_nothing_in_our_namespace_gets_no_role_there():
    made = roles.documents("agent", roles.AGENT, WHO)
    assert [document["kind"] for document in made] == ["ClusterRole", "ClusterRoleBinding"]


@pytest.mark.parametrize("role", ALL.values(), ids=ALL)
def test_nobody_may_do_everything(role):
    for rule in (*role.cluster, *role.own):
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}


def test_the_webhook_reads_one_secret_and_one_configuration():
    role = roles.webhook(configuration="hooks", secret="tls")
    named = {tuple(rule["resourceNames"]) for rule in (*role.cluster, *role.own) if "get" in rule["verbs"]}
    assert named == {("hooks",), ("tls",)}


@pytest.mark.parametrize(
    "writer, field",
    [
        pytest.param(roles.CONTROLLER, "instaslices", id="the controller writes what is promised"),
        pytest.param(roles.AGENT, "instaslices/status", id="the agent writes what is"),
    ],
)
def test_who_writes_which_half_of_an_instaslice(writer, field):
    may = {what for rule in writer.cluster if names.GROUP in rule["apiGroups"] and "patch" in rule["verbs"]
           for what in rule["resources"]}  # fmt: skip
    assert field in may
    other = roles.AGENT if writer is roles.CONTROLLER else roles.CONTROLLER
    if field == "instaslices/status":
        assert all(field not in rule["resources"] for rule in other.cluster)
