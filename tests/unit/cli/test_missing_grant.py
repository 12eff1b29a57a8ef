"""What a user without permission is told: what is missing, and commands that grant it."""

import shlex

import pytest

from instaslice.cli.terminal.missing_grant import in_cluster, in_namespace
from instaslice.kube.errors import Forbidden


def refused(user):
    why = f'instaslices.gpu.das.com is forbidden: User "{user}" cannot list resource "instaslices"' if user else "no"
    return Forbidden(f"list instaslices: 403 Forbidden: {why}", status=403, reason="Forbidden")


def commands(error):
    return [shlex.split(each) for each in str(error).split("`") if each.startswith("kubectl ")]


@pytest.mark.parametrize(
    "user, binding",
    [
        pytest.param("alice", "instaslice-viewer:alice", id="a name"),
        pytest.param("system:serviceaccount:team:bot", "instaslice-viewer:system:serviceaccount:team:bot", id="a pod"),
        pytest.param("https://idp/x", "instaslice-viewer:https:--idp-x", id="what no object can be called"),
        pytest.param("o'neil; rm x", "instaslice-viewer:o'neil; rm x", id="what a shell would take apart"),
    ],
)
def test_the_administrator_gets_commands_for_this_user(user, binding):
    error = in_cluster(refused(user))
    role, bound = commands(error)
    assert role[:4] == ["kubectl", "create", "clusterrole", "instaslice-viewer"]
    assert "--resource=pods,nodes,namespaces,instaslices.gpu.das.com" in role
    assert bound[3:] == [binding, "--clusterrole=instaslice-viewer", f"--user={user}"]
    assert str(error).startswith("list instaslices: 403 Forbidden: ")


def test_of_one_namespace_the_role_of_kubernetes_is_enough():
    (bound,) = commands(in_namespace(refused("alice"), "team-a"))
    assert bound[2:] == [
        "rolebinding",
        "instaslice-viewer:alice",
        "--namespace=team-a",
        "--clusterrole=view",
        "--user=alice",
    ]


def test_an_unknown_user_is_left_to_the_administrator():
    assert commands(in_cluster(refused("")))[1][-1] == "--user=USER"
