"""What users may not do to the pods that we changed: ValidatingAdmissionPolicies, judged inside the API server.

They see every pod after all webhooks. Annotations of a pod can also be written through pods/status, and by a Binding,
whose annotations the API server merges into the pod: so they look there too. The other subresources of a pod take no
annotation and no gate. Those who may are named one by one: nobody is let by for being an administrator.

They are in force in every namespace but ours and kube-system, also where the webhook is limited to some: the controller
believes what these annotations say, wherever the pod is.
"""

from collections.abc import Sequence
from typing import Any, Final

from instaslice.api import names
from instaslice.kube.core import PartialObjectMetadata
from instaslice.kube.resource import Resource
from instaslice.webhook.manifests import (
    GROUP,
    Document,
    container_names_any,
    containers,
    names_any,
    not_in_system_namespaces,
    only_in,
)
from instaslice.webhook.mutation import WRITTEN_LATER

NAME: Final = "instaslice-pods"
OF_BINDINGS: Final = "-bindings"
"""What follows that name for the policy that judges Bindings."""

POLICIES: Final = Resource(
    PartialObjectMetadata, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", group=GROUP, namespaced=False
)
BINDINGS: Final = Resource(
    PartialObjectMetadata,
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    group=GROUP,
    namespaced=False,
)


def policies(
    trusted: Sequence[str], *, name: str = NAME, own: str = names.NAMESPACE, namespaces: Sequence[str] = ()
) -> list[Document]:
    """The policies. `trusted` are the user names that they do not bind, `namespaces` those that the webhook is limited
    to, where it is: elsewhere `nvidia.com/mig-*` is not for us, and ours is for nobody."""
    return [
        _policy(name, trusted, own, ["pods", "pods/status"], ["CREATE", "UPDATE"], _of_pods(namespaces)),
        _policy(name + OF_BINDINGS, trusted, own, ["pods/binding", "bindings"], ["CREATE"], _of_bindings()),
    ]


def bindings(*, name: str = NAME, namespaces: Sequence[str] = ()) -> list[Document]:
    """What puts the policies of that name in force: everywhere, or for a test only in `namespaces`."""
    return [_in_force(each, namespaces) for each in (name, name + OF_BINDINGS)]


def _policy(
    name: str, trusted: Sequence[str], own: str, resources: list[str], operations: list[str], rules: Document
) -> Document:
    listed = ", ".join(f"'{user}'" for user in trusted)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": resources, "operations": operations}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchExpressions": not_in_system_namespaces(own)},
            "resourceRules": [rule],
        },
        "matchConditions": [{"name": "not-ours", "expression": f"!(request.userInfo.username in [{listed}])"}],
        **rules,
    }
    return {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _of_pods(namespaces: Sequence[str]) -> Document:
    record = _annotation("object", names.REQUESTED)
    return {
        "variables": [
            {"name": "gated", "expression": _gated("object")},
            {"name": "asks", "expression": names_any([names.RESOURCE])},
            {"name": "served", "expression": _served(namespaces)},
        ],
        "validations": [
            *(_unchanged(annotation) for annotation in names.RESERVED_ANNOTATIONS),
            _validation(
                f"request.operation != 'UPDATE' || !({_gated('oldObject')}) || variables.gated",
                f"the gate {names.GATE} goes when the slices of the pod are there; only InstaSlice removes it",
            ),
            *(
                _validation(
                    f"request.operation != 'CREATE' || !({_annotation('object', annotation)}.hasValue())",
                    f"the annotation {annotation} is written by InstaSlice; leave it out",
                )
                for annotation in WRITTEN_LATER
            ),
            _validation(
                "request.operation != 'CREATE' || !variables.asks || variables.served",
                f"{names.RESOURCE}* can be asked for only where InstaSlice's webhook looks at pods, and this namespace "
                "is opted out of it",
            ),
            _validation(
                # Our webhook renames every such resource that it sees. It is not called for the first time when a later
                # one has changed a pod, only again: a pod that had none is never sent to it.
                f"request.operation != 'CREATE' || !variables.served || !({names_any([names.NVIDIA_RESOURCE])})",
                _unseen(names.NVIDIA_RESOURCE),
            ),
            _validation(
                # By the record that it writes of what the pod asked for.
                f"request.operation != 'CREATE' || !variables.asks || !({record}.orValue('') in ['', '{{}}'])",
                _unseen(names.RESOURCE),
            ),
            _validation(
                f"request.operation != 'CREATE' || variables.asks || !({record}.hasValue())",
                f"the annotation {names.REQUESTED} is for pods that ask for slices, and InstaSlice's webhook writes "
                "it; leave it out",
            ),
            _validation(
                "request.operation != 'CREATE' || !variables.asks || variables.gated",
                f"a pod that asks for slices starts with the gate {names.GATE}",
            ),
            _validation(
                # Nobody would remove it.
                "request.operation != 'CREATE' || !variables.gated || variables.asks",
                f"the gate {names.GATE} is for pods that ask for slices; leave it out",
            ),
            _validation(
                # The scheduler would count it against the slices of others.
                f"request.operation != 'CREATE' || {containers()}.all(c, !({container_names_any([names.MEMORY])}) || "
                f"{container_names_any([names.RESOURCE])})",
                f"InstaSlice's webhook, which adds the slice for it, has not seen the {names.MEMORY} of this pod: its "
                "namespace is opted out, the webhook is not registered (`instaslice doctor` says more), or a webhook "
                "that is called after it added the memory",
            ),
        ],
    }


def _unseen(resource: str) -> str:
    return (
        f"InstaSlice's webhook has not seen the {resource}* of this pod: it is not registered (`instaslice doctor` "
        "says more), or a webhook that is called after it added them; give the MutatingWebhookConfiguration of that "
        f"one a name that sorts before {names.WEBHOOK}"
    )


def _of_bindings() -> Document:
    return {
        "validations": [
            _validation(
                f"!({_annotation('object', annotation)}.hasValue())",
                f"the annotation {annotation} of a pod is written by InstaSlice; leave it out of the Binding",
            )
            for annotation in names.RESERVED_ANNOTATIONS
        ]
    }


def _in_force(name: str, namespaces: Sequence[str]) -> Document:
    spec: dict[str, Any] = {"policyName": name, "validationActions": ["Deny"]}
    if namespaces:
        spec["matchResources"] = {"namespaceSelector": {"matchExpressions": only_in(namespaces)}}
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


def _validation(expression: str, message: str) -> Document:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _annotation(of: str, annotation: str) -> str:
    return f"{of}.metadata.?annotations[?'{annotation}']"


def _gated(of: str) -> str:
    return f"{of}.spec.?schedulingGates.orValue([]).exists(gate, gate.name == '{names.GATE}')"


def _served(namespaces: Sequence[str]) -> str:
    """CEL: whether the webhook is asked about the pods of the namespace."""
    opted_in = f"namespaceObject.metadata.?labels[?'{names.OPT_OUT}'].orValue('') != '{names.OPTED_OUT}'"
    if not namespaces:
        return opted_in
    listed = ", ".join(f"'{each}'" for each in namespaces)
    return f"{opted_in} && namespaceObject.metadata.name in [{listed}]"
