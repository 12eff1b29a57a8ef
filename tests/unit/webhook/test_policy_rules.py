"""Whom the policies bind, where, and what they speak of. What they refuse is shown on a real API server."""

import pytest

from instaslice.api import names
from instaslice.webhook import manifests, policy
from instaslice.webhook.mutation import WRITTEN_LATER

TRUSTED = ["instaslice:controller", "instaslice:agent"]
PODS, BINDINGS = policy.policies(TRUSTED, own="slices")


def judged(document):
    """Resource → the operations in which it is judged."""
    rules = document["spec"]["matchConstraints"]["resourceRules"]
    return {resource: rule["operations"] for rule in rules for resource in rule["resources"]}


def test_whatever_can_write_an_annotation_of_a_pod_is_judged():
    assert judged(PODS) == {"pods": ["CREATE", "UPDATE"], "pods/status": ["CREATE", "UPDATE"]}
    assert judged(BINDINGS) == {"pods/binding": ["CREATE"], "bindings": ["CREATE"]}


@pytest.mark.parametrize("annotation", names.RESERVED_ANNOTATIONS)
@pytest.mark.parametrize("document", [PODS, BINDINGS], ids=["pods", "bindings"])
def test_every_annotation_of_ours_is_spoken_of(document, annotation):
    rules = [rule for rule in document["spec"]["validations"] if f"the annotation {annotation} " in rule["message"]]
    assert rules
    assert all(annotation in rule["expression"] for rule in rules)


def expressions(document):
    """Every CEL expression in a document, however deep."""
    if isinstance(document, dict):
        inside = [text for each in document.values() for text in expressions(each)]
        return [document["expression"], *inside] if "expression" in document else inside
    return [text for each in document for text in expressions(each)] if isinstance(document, list) else []


@pytest.mark.parametrize("namespaces", [[], ["team-a"]], ids=["everywhere", "in one namespace"])
def test_no_part_of_a_rule_is_missing(namespaces):
    """Each is put together from others; one that says nothing would stand there as `None`."""
    (hook,) = manifests.configuration(manifests.in_service(), namespaces=namespaces)["webhooks"]
    documents = [*policy.policies(TRUSTED, namespaces=namespaces), hook["matchConditions"]]
    found = [text for document in documents for text in expressions(document)]
    assert len(found) > 10
    assert not [text for text in found if "None" in text]


def rule(text):
    """The expression of the one rule whose message holds this."""
    (found,) = (each for each in PODS["spec"]["validations"] if text in each["message"])
    return found["expression"]


def test_the_gate_is_looked_for_among_all_gates_and_only_there():
    gated = {each["name"]: each["expression"] for each in PODS["spec"]["variables"]}["gated"]
    assert gated == f"object.spec.?schedulingGates.orValue([]).exists(gate, gate.name == '{names.GATE}')"
    assert gated.replace("object", "oldObject") in rule("only InstaSlice removes it")


@pytest.mark.parametrize(
    "namespaces, more",
    [([], ""), (["a", "b"], " && namespaceObject.metadata.name in ['a', 'b']")],
    ids=["all", "some"],
)
def test_where_the_webhook_is_asked_about_pods(namespaces, more):
    pods, _ = policy.policies(TRUSTED, namespaces=namespaces)
    served = {each["name"]: each["expression"] for each in pods["spec"]["variables"]}["served"]
    opted_out = f"namespaceObject.metadata.?labels[?'{names.OPT_OUT}'].orValue('')"
    assert served == f"{opted_out} != '{names.OPTED_OUT}'{more}"


def test_policies_may_be_put_in_force_in_some_namespaces():
    for each in policy.bindings(namespaces=["team-a"]):
        (expression,) = each["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert (expression["operator"], expression["values"]) == ("In", ["team-a"])


def test_only_the_record_may_come_with_a_new_pod():
    assert {*WRITTEN_LATER, names.REQUESTED} == set(names.RESERVED_ANNOTATIONS)
    assert names.MIG_UUIDS in WRITTEN_LATER
    assert names.REQUESTED not in WRITTEN_LATER


@pytest.mark.parametrize("document", [PODS, BINDINGS], ids=["pods", "bindings"])
def test_who_is_not_bound_and_where(document):
    (condition,) = document["spec"]["matchConditions"]
    assert condition["expression"] == "!(request.userInfo.username in ['instaslice:controller', 'instaslice:agent'])"
    (namespaces,) = document["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert namespaces["operator"] == "NotIn"
    assert namespaces["values"] == ["kube-system", "slices"]
    # An error in a rule, or in reading an object, keeps the request out.
    assert document["spec"]["failurePolicy"] == "Fail"


def test_both_policies_are_put_in_force_to_deny_everywhere():
    assert [each["spec"] for each in policy.bindings()] == [
        {"policyName": document["metadata"]["name"], "validationActions": ["Deny"]} for document in (PODS, BINDINGS)
    ]
