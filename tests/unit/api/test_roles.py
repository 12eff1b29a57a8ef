"""What our processes may do, as documents of RBAC."""

import pytest

from instaslice.api import names, roles

WHO = {"kind": "ServiceAccount", "namespace": "slices", "name": "controller"}
CONTROLLER = roles.controller()
ALL_FLAGS = roles.controller(**dict.fromkeys(roles.CONTROLLER_FLAGS, True))
ALL = {
    "controller": CONTROLLER,
    "controller-flags": ALL_FLAGS,
    "agent": roles.agent(),
    "agent-of-emulated-nodes": roles.agent(emulated_nodes=True),
    "webhook": roles.webhook(),
}


def test_rules_for_the_cluster_and_for_our_own_namespace_are_bound_apart():
    made = roles.documents("slicer", CONTROLLER, WHO, namespace="slices")
    assert [document["kind"] for document in made] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    assert [document["metadata"].get("namespace") for document in made] == [None, None, "slices", "slices"]
    for role, binding in (made[:2], made[2:]):
        assert binding["roleRef"] == {"apiGroup": roles.RBAC, "kind": role["kind"], "name": "slicer"}
        assert binding["subjects"] == [WHO]


def test_one_that_needs_nothing_in_our_namespace_gets_no_role_there():
    made = roles.documents("agent", roles.agent(), WHO)
    assert [document["kind"] for document in made] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    assert {document["metadata"].get("namespace") for document in made[2:]} == {"default"}


@pytest.mark.parametrize("role", ALL.values(), ids=ALL)
def test_nobody_may_do_everything(role):
    for rule in (*role.cluster, *role.own, *role.placeholders, *role.default):
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}


def test_the_webhook_reads_one_secret_and_one_configuration():
    role = roles.webhook(configuration="hooks", secret="tls")
    named = {tuple(rule["resourceNames"]) for rule in (*role.cluster, *role.own) if "get" in rule["verbs"]}
    assert named == {("hooks",), ("tls",)}


@pytest.mark.parametrize(
    "writer, field",
    [
        pytest.param(CONTROLLER, "instaslices", id="the controller writes what is promised"),
        pytest.param(roles.agent(), "instaslices/status", id="the agent writes what is"),
    ],
)
def test_who_writes_which_half_of_an_instaslice(writer, field):
    may = {what for rule in writer.cluster if names.GROUP in rule["apiGroups"] and "patch" in rule["verbs"]
           for what in rule["resources"]}  # fmt: skip
    assert field in may
    other = roles.agent() if writer is CONTROLLER else CONTROLLER
    if field == "instaslices/status":
        assert all(field not in rule["resources"] for rule in other.cluster)


def may(rules, verb, resource):
    return any(verb in rule["verbs"] and resource in rule["resources"] for rule in rules)


WRITES = ("create", "update", "patch", "delete")


def test_the_agent_only_lists_pods():
    assert [verb for verb in ("get", "watch", *WRITES) if may(roles.agent().cluster, verb, "pods")] == []
    assert may(roles.agent().cluster, "list", "pods")
    assert not any(may(roles.agent().cluster, verb, "nodes") for verb in WRITES)


def test_the_agent_writes_events_of_its_nodes_only():
    for role in (roles.agent(), roles.agent(emulated_nodes=True)):
        assert may(role.default, "create", "events") and may(role.default, "patch", "events")
        assert not any(may(role.cluster, verb, "events") for verb in WRITES)


def test_only_the_agent_of_nodes_without_a_kubelet_writes_their_capacity():
    assert not may(roles.agent().cluster, "patch", "nodes/status")
    assert may(roles.agent(emulated_nodes=True).cluster, "patch", "nodes/status")


def test_without_flags_the_controller_writes_no_nodes_and_makes_and_deletes_no_pods():
    rules = [*CONTROLLER.cluster, *CONTROLLER.own]
    assert not any(may(rules, verb, "nodes") for verb in WRITES)
    assert not any(may(rules, verb, "pods") for verb in ("create", "update", "delete"))
    assert not any(may(rules, verb, "priorityclasses") for verb in WRITES)
    assert not CONTROLLER.placeholders


def test_the_webhook_reads_quotas_and_writes_none():
    cluster = roles.webhook().cluster
    assert all(may(cluster, "list", kind) for kind in ("resourcequotas", "limitranges"))
    assert not any(may(cluster, verb, kind) for verb in WRITES for kind in ("resourcequotas", "limitranges"))


def test_what_a_flag_needs_comes_with_it():
    taints = roles.controller(taint_nodes=True)
    assert may(taints.cluster, "patch", "nodes") and not may(taints.cluster, "create", "priorityclasses")
    assert roles.controller(static_mig_labels=True) == taints
    quotas = roles.controller(keep_quotas=True)
    assert may(quotas.cluster, "create", "resourcequotas") and not may(quotas.cluster, "patch", "nodes")
    assert not any(may(CONTROLLER.cluster, verb, "resourcequotas") for verb in ("list", "watch", *WRITES))
    hints = roles.controller(autoscaling_hints=True)
    assert may(hints.cluster, "create", "priorityclasses") and not may(hints.cluster, "patch", "nodes")
    assert not may(hints.cluster, "create", "pods") and not may(hints.cluster, "delete", "pods")
    assert may(hints.placeholders, "create", "pods") and may(hints.placeholders, "delete", "pods")


def test_placeholders_have_a_namespace_of_their_own_that_the_webhook_leaves_alone_and_that_admits_no_privileged_pod():
    made = roles.documents("slicer", ALL_FLAGS, WHO, namespace="slices")
    (namespace,) = (each for each in made if each["kind"] == "Namespace")
    labels = {names.OPT_OUT: names.OPTED_OUT, "pod-security.kubernetes.io/enforce": "restricted"}
    assert namespace["metadata"] == {"name": names.PLACEHOLDERS, "labels": labels}
    after = made[made.index(namespace) + 1 :]
    assert [(each["kind"], each["metadata"]["namespace"]) for each in after] == [
        ("Role", names.PLACEHOLDERS),
        ("RoleBinding", names.PLACEHOLDERS),
    ]
    assert not [each for each in roles.documents("slicer", CONTROLLER, WHO) if each["kind"] == "Namespace"]
