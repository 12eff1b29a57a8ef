"""Why the chart is not uninstalled while pods hold slices: a ValidatingAdmissionPolicy on an object that Helm creates.

The chart has a hook for the uninstall, a ConfigMap without content. The API server refuses to create it while an
Instaslice object has slices that pods hold, and Helm then deletes nothing and prints the reason. No image is pulled and
no pod runs for it, so an installation that never worked can be removed at once.
"""

from typing import Final

from instaslice.api.instaslice import INSTASLICES, AllocationState, SliceState
from instaslice.webhook.manifests import Document
from instaslice.webhook.policy import BINDINGS, POLICIES

NAME: Final = "instaslice-uninstall"
"""Of the policy, its binding, and the ConfigMap."""
_OVER: Final = ", ".join(
    f"'{each}'" for each in (AllocationState.DELETING, AllocationState.DELETED, AllocationState.FAILED)
)
_LEFT: Final = (
    f"params.?status.?slices.orValue([]).filter(each, each.state != '{SliceState.DELETED}').map(each, each.id)"
)
_HELD: Final = (
    f"params.?spec.?allocations.orValue([]).filter(each, !(each.state in [{_OVER}]) || each.id in variables.left)"
)
"""CEL: the allocations of a node whose slices are needed, or are yet to be destroyed; as `instaslice drained`. The ids
of slices are a variable of their own: where each allocation looks at each slice, a node that empties many GPUs costs
more than the API server allows, and that it then ignores the policy."""


def policy(own: str, *, name: str = NAME) -> Document:
    """`own` is the namespace of the release."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
        "resourceNames": [name],
        "operations": ["CREATE"],
    }
    in_ours = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [own]}
    remedy = "delete those pods, or skip this check: helm uninstall … --no-hooks"
    spec = {
        # Where the definition of the Instaslice object is gone, nobody holds anything of ours.
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": INSTASLICES.api_version, "kind": INSTASLICES.kind},
        "matchConstraints": {"namespaceSelector": {"matchExpressions": [in_ours]}, "resourceRules": [rule]},
        "variables": [{"name": "left", "expression": _LEFT}, {"name": "held", "expression": _HELD}],
        "validations": [
            {
                "expression": "variables.held.size() == 0",
                "messageExpression": (
                    "'pod ' + variables.held[0].pod.namespace + '/' + variables.held[0].pod.name + ' on node ' + "
                    "params.metadata.name + ': ' + variables.held[0].profile + (variables.held.size() == 1 ? '' : "
                    "', and ' + string(variables.held.size() - 1) + ' more there') + "
                    f"'. Pods hold slices (`instaslice drained` names them all): {remedy}'"
                ),
                "message": f"pods hold slices (`instaslice drained` names them): {remedy}",
                "reason": "Forbidden",
            }
        ],
    }
    return {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def binding(*, name: str = NAME) -> Document:
    """In force for each Instaslice object; where there is none, nothing is refused."""
    every = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "paramRef": every},
    }
