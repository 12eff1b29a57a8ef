"""What each of our processes may do in a cluster, and no more: RBAC as data, for the chart and for `instaslice up`.

The subject is left open: a ServiceAccount in a real cluster, a user by certificate in a local one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from instaslice.api import names

Rule = dict[str, list[str]]
Document = dict[str, Any]

RBAC: Final = "rbac.authorization.k8s.io"


def rule(group: str, resources: str, verbs: str, *, named: Sequence[str] = ()) -> Rule:
    """One rule of a role; resources and verbs are words with spaces between them."""
    only = {"resourceNames": list(named)} if named else {}
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **only}


@dataclass(frozen=True)
class Role:
    """The rules of one process: in the whole cluster, and in the namespace that we run in."""

    cluster: Sequence[Rule]
    own: Sequence[Rule] = ()


EVENTS: Final = (rule("", "events", "create patch"), rule("events.k8s.io", "events", "create patch"))

CONTROLLER: Final = Role(
    cluster=(
        rule("", "pods", "get list watch patch"),
        rule("", "pods/status", "patch"),
        # The taint `gpu.das.com/managed`, where the administrator wants it.
        rule("", "nodes", "get list watch patch"),
        rule(names.GROUP, "instaslices", "get list watch patch"),
        # What the scheduler looks at before it binds a pod: it is asked for before slices are made.
        rule("", "namespaces persistentvolumeclaims persistentvolumes", "get list watch"),
        rule(
            "storage.k8s.io",
            "storageclasses csinodes csidrivers csistoragecapacities volumeattachments",
            "get list watch",
        ),
        # What placeholders for node autoscalers are made with.
        rule("scheduling.k8s.io", "priorityclasses", "patch", named=[names.PLACEHOLDER_PRIORITY]),
        # A create cannot be bound to a name.
        rule("scheduling.k8s.io", "priorityclasses", "create"),
        *EVENTS,
    ),
    own=(
        rule("coordination.k8s.io", "leases", "get create update patch"),
        # Placeholders.
        rule("", "pods", "create delete"),
    ),
)

AGENT: Final = Role(
    cluster=(
        rule("", "pods", "get list watch"),
        rule("", "nodes", "get list watch"),
        # What the node advertises, where no device plugin does it.
        rule("", "nodes/status", "patch"),
        rule(names.GROUP, "instaslices", "get list watch create patch delete"),
        rule(names.GROUP, "instaslices/status", "patch"),
        *EVENTS,
    )
)


def webhook(*, configuration: str = names.WEBHOOK, secret: str = names.WEBHOOK) -> Role:
    """Keep its certificates in one Secret, and its own caBundle true."""
    hooks = rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get patch", named=[configuration])
    kept = rule("", "secrets", "get patch", named=[secret])
    return Role(cluster=(hooks,), own=(kept, rule("", "secrets", "create")))


def documents(name: str, role: Role, subject: Document, *, namespace: str = names.NAMESPACE) -> list[Document]:
    """The roles and their bindings, all of one name, as documents to apply in this order."""
    anywhere, inside = {"name": name}, {"namespace": namespace, "name": name}
    made = [*_bound("ClusterRole", anywhere, role.cluster, subject)]
    if role.own:
        made += _bound("Role", inside, role.own, subject)
    return made


def _bound(kind: str, metadata: Document, rules: Sequence[Rule], subject: Document) -> list[Document]:
    head = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    named = {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]}
    return [
        {**head, "kind": kind, "rules": list(rules)},
        {**head, "kind": f"{kind}Binding", "subjects": [subject], "roleRef": named},
    ]
