"""Which namespaces the API server asks us about."""

import pytest

from instaslice.api import names
from instaslice.webhook import manifests


def asked_about(document, namespace, labels):
    """Whether the namespace selector of a configuration takes a namespace, as Kubernetes reads it."""
    has = {"kubernetes.io/metadata.name": namespace, **labels}
    wanted = {"In": lambda key, values: has.get(key) in values, "NotIn": lambda key, values: has.get(key) not in values}
    expressions = document["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    return all(wanted[each["operator"]](each["key"], each["values"]) for each in expressions)


@pytest.mark.parametrize(
    "namespace, labels, expected",
    [
        pytest.param("team-a", {}, True, id="an ordinary one"),
        pytest.param("team-a", {names.OPT_OUT: "disabled"}, False, id="one that is opted out"),
        pytest.param("team-a", {names.OPT_OUT: "enabled"}, True, id="one that is opted in by name"),
        pytest.param("kube-system", {}, False, id="kube-system"),
        pytest.param("kube-system", {names.OPT_OUT: "enabled"}, False, id="kube-system whatever its label says"),
        pytest.param("slices", {}, False, id="our own, whatever its name"),
    ],
)
def test_which_namespaces_are_asked_about(namespace, labels, expected):
    document = manifests.configuration(manifests.in_service("slices"), own="slices")
    assert asked_about(document, namespace, labels) is expected


def test_a_configuration_can_be_narrowed_to_some_namespaces():
    document = manifests.configuration(manifests.in_service(), namespaces=["team-a"])
    assert asked_about(document, "team-a", {})
    assert not asked_about(document, "team-b", {})


def test_what_keeps_a_slice_pod_from_slipping_by():
    (hook,) = manifests.configuration(manifests.in_service())["webhooks"]
    assert hook["failurePolicy"] == "Fail"
    # A container that another webhook adds after us is seen too.
    assert hook["reinvocationPolicy"] == "IfNeeded"
    # Also asked for by another version of the API.
    assert hook["matchPolicy"] == "Equivalent"
    # Without it a dry run would be refused.
    assert hook["sideEffects"] == "None"
    (rule,) = hook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "UPDATE"])


def test_the_address_of_a_webhook_in_a_service():
    assert manifests.in_service("slices", "hook", port=8443) == {
        "service": {"namespace": "slices", "name": "hook", "port": 8443, "path": "/mutate-pods"}
    }


def test_a_bundle_that_the_webhook_fills_in_is_left_out():
    assert "caBundle" not in manifests.at_address("127.0.0.1", 1)
    assert manifests.at_address("127.0.0.1", 1, "pem")["caBundle"] == "cGVt"
