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
