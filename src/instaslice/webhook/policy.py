"""What users may not do to the pods that we changed: a ValidatingAdmissionPolicy, judged inside the API server.

It sees every pod after all webhooks. Annotations can also be written through pods/status, so it looks there too.
Those who may are named one by one: nobody is let by for being an administrator.
"""

from collections.abc import Sequence
from typing import Any, Final

from instaslice.api import names
from instaslice.kube.core import Bare
from instaslice.kube.resource import Resource
from instaslice.webhook.manifests import GROUP, Document, asks_for, containers, elsewhere, names_one, only

NAME: Final = "instaslice-pods"
ACCOUNTS: Final = ("instaslice-controller", "instaslice-agent")
"""Our service accounts that write to pods."""


POLICIES: Final = Resource(
    Bare, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", group=GROUP, namespaced=False
)
BINDINGS: Final = Resource(
    Bare, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", group=GROUP, namespaced=False
)


def service_accounts(namespace: str = names.NAMESPACE, accounts: Sequence[str] = ACCOUNTS) -> list[str]:
    """The user names of service accounts."""
    return [f"system:serviceaccount:{namespace}:{account}" for account in accounts]


def policy(trusted: Sequence[str], *, name: str = NAME, own: str = names.NAMESPACE) -> Document:
    """The policy. `trusted` are the user names that it does not bind."""
    listed = ", ".join(f"'{user}'" for user in trusted)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/status"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchExpressions": elsewhere(own)},
            "resourceRules": [{**rule, "operations": ["CREATE", "UPDATE"]}],
        },
        "matchConditions": [{"name": "not-ours", "expression": f"!(request.userInfo.username in [{listed}])"}],
        "variables": [
            {"name": "gated", "expression": _gated("object")},
            {"name": "asks", "expression": asks_for([names.RESOURCE])},
        ],
        "validations": [
            *(_unchanged(annotation) for annotation in names.RESERVED_ANNOTATIONS),
            _validation(
                f"request.operation != 'UPDATE' || !({_gated('oldObject')}) || variables.gated",
                f"the gate {names.GATE} goes when the slices of the pod are there; only InstaSlice removes it",
            ),
            *(_absent_at_first(annotation) for annotation in (names.MIG_UUIDS, names.NODE)),
            _validation(
                "request.operation != 'CREATE' || variables.asks == "
                f"({_annotation('object', names.REQUESTED)}.hasValue())",
                f"the annotation {names.REQUESTED} and slices go together, and InstaSlice's webhook writes it; leave "
                f"it out, and ask for {names.RESOURCE}* only in namespaces that are not opted out of it",
            ),
            _validation(
                "request.operation != 'CREATE' || !variables.asks || variables.gated",
                f"a pod that asks for slices starts with the gate {names.GATE}",
            ),
            _validation(
                # Nobody would ever take it away.
                "request.operation != 'CREATE' || !variables.gated || variables.asks",
                f"the gate {names.GATE} is for pods that ask for slices; leave it out",
            ),
            _validation(
                # The scheduler would count it against the slices of others.
                f"request.operation != 'CREATE' || {containers()}.all(c, !({names_one([names.MEMORY])}) || "
                f"{names_one([names.RESOURCE])})",
                f"{names.MEMORY} comes with slices, and InstaSlice's webhook writes it; leave it out, and ask for "
                f"{names.NVIDIA_RESOURCE}<profile>",
            ),
        ],
    }
    return {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def binding(*, name: str = NAME, namespaces: Sequence[str] = ()) -> Document:
    """What puts the policy of that name in force, everywhere or only in `namespaces`."""
    spec: dict[str, Any] = {"policyName": name, "validationActions": ["Deny"]}
    if namespaces:
        spec["matchResources"] = {"namespaceSelector": {"matchExpressions": only(namespaces)}}
    return {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _unchanged(annotation: str) -> Document:
    return _validation(
        f"request.operation != 'UPDATE' || {_annotation('object', annotation)} == "
        f"{_annotation('oldObject', annotation)}",
        f"the annotation {annotation} is written by InstaSlice; leave it as it is",
    )


def _absent_at_first(annotation: str) -> Document:
    return _validation(
        f"request.operation != 'CREATE' || !({_annotation('object', annotation)}.hasValue())",
        f"the annotation {annotation} is written by InstaSlice; leave it out",
    )


def _validation(expression: str, message: str) -> Document:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _annotation(of: str, annotation: str) -> str:
    return f"{of}.metadata.?annotations[?'{annotation}']"


def _gated(of: str) -> str:
    return f"{of}.spec.?schedulingGates.orValue([]).exists(gate, gate.name == '{names.GATE}')"
