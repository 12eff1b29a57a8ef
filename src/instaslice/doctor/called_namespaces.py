"""The namespaces that the webhook is called for, by its selectors.

Pure.
"""

from collections.abc import Mapping, Sequence

from instaslice.doctor.installation_kinds import RegisteredWebhook
from instaslice.kube.core import LabelSelector, Requirement


def called_for(hooks: Sequence[RegisteredWebhook], labels: Mapping[str, str]) -> bool:
    """Whether any of them is called for the pods of a namespace with these labels."""
    return any(_selects(hook.namespace_selector, labels) for hook in hooks)


def _selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return True
    wanted = (selector.match_labels or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _holds(each, labels) for each in selector.match_expressions or ()
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or []
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
    return value is None
