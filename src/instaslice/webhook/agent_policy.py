"""What the agent of one node may not do to the objects of others: a ValidatingAdmissionPolicy.

RBAC cannot say "the object that is named after my node". The token of a pod's ServiceAccount can: the API server puts
the name of the node that the pod is bound to into it. So the token of one node, in wrong hands, reaches no other node.
"""

from typing import Final

from instaslice.api.instaslice import INSTASLICES
from instaslice.webhook.manifests import Document
from instaslice.webhook.policy import BINDINGS, POLICIES

NAME: Final = "instaslice-agents"
BOUND_TO: Final = "authentication.kubernetes.io/node-name"
"""In the extra information of a user: the node of the pod that the token was issued for."""


def policy(agent: str, *, name: str = NAME) -> Document:
    """`agent` is the user name of the account that the agents of all nodes share."""
    rule = {
        "apiGroups": [INSTASLICES.group],
        "apiVersions": ["*"],
        "resources": [INSTASLICES.plural, f"{INSTASLICES.plural}/status"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "an-agent", "expression": f"request.userInfo.username == '{agent}'"}],
        "variables": [
            {"name": "node", "expression": f"request.userInfo.?extra[?'{BOUND_TO}'][?0].orValue('')"},
            {"name": "name", "expression": "(request.operation == 'DELETE' ? oldObject : object).metadata.name"},
        ],
        "validations": [
            {
                "expression": "variables.node != '' && variables.node == variables.name",
                "messageExpression": (
                    "'an agent writes only the Instaslice object of its own node, and this token is of ' + "
                    "(variables.node == '' ? 'no node' : 'node ' + variables.node)"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": (
                    "request.operation == 'DELETE' || (request.operation == 'UPDATE' ? object.?spec == "
                    "oldObject.?spec : object.?spec.?allocations.orValue([]).size() == 0)"
                ),
                "message": "the spec of an Instaslice object is written by the controller; an agent writes its status",
                "reason": "Forbidden",
            },
        ],
    }
    return {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def binding(*, name: str = NAME) -> Document:
    return {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
