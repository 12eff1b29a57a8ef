"""What each of our processes may do in a cluster: RBAC as data, for the chart and for `instaslice up`.

Exactly the verbs that are used, and those that only a flag needs are granted with the flag. The subject is a parameter:
a ServiceAccount in a real cluster, a user with a token in a local one.
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
    """The rules of one process: for the whole cluster, for the namespace that it runs in, and for placeholders'."""

    cluster: Sequence[Rule]
    own: Sequence[Rule] = ()
    placeholders: Sequence[Rule] = ()


EVENTS: Final = rule("events.k8s.io", "events", "create patch")


def controller(
    *,
    taint_nodes: bool = False,
    static_mig_labels: bool = False,
    keep_quotas: bool = False,
    autoscaling_hints: bool = False,
) -> Role:
    """The arguments are the flags of `instaslice controller`."""
    cluster = [
        rule("", "pods", "get list watch patch"),
        rule("", "pods/status", "patch"),
        rule(names.GROUP, "instaslices", "get list watch patch"),
        # What kube-scheduler reads before it binds a pod: the controller applies the same rules before slices are made.
        rule("", "nodes namespaces persistentvolumeclaims persistentvolumes", "list watch"),
        rule(
            "storage.k8s.io", "storageclasses csinodes csidrivers csistoragecapacities volumeattachments", "list watch"
        ),
        EVENTS,
    ]
    own = [
        rule("coordination.k8s.io", "leases", "get create update"),
        rule("", "configmaps", "get patch", named=[names.DEMAND]),
        # RBAC cannot restrict `create` to a name.
        rule("", "configmaps", "create"),
    ]
    placeholders = []
    if taint_nodes or static_mig_labels:
        cluster.append(rule("", "nodes", "patch"))
    if keep_quotas:
        cluster.append(rule("", "resourcequotas", "list watch create patch delete"))
    if autoscaling_hints:
        named = [names.PLACEHOLDER_PRIORITY]
        cluster.append(rule("scheduling.k8s.io", "priorityclasses", "patch", named=named))
        # RBAC cannot restrict `create` to a name.
        cluster.append(rule("scheduling.k8s.io", "priorityclasses", "create"))
        placeholders.append(rule("", "pods", "create delete"))
        # Placeholders that earlier versions left in our own namespace.
        own.append(rule("", "pods", "delete"))
    return Role(cluster, own, placeholders)


AGENT: Final = Role(
    cluster=(
        # A slice that no allocation names is destroyed only if no pod uses it. The kubelet alone cannot tell: it leaves
        # out init containers, may know no pod just after its start, and emulated nodes have none. RBAC cannot restrict
        # `list` to the pods of one node.
        rule("", "pods", "list"),
        rule("", "nodes", "list watch"),
        # The capacity of nodes without a device plugin.
        rule("", "nodes/status", "patch"),
        rule(names.GROUP, "instaslices", "list watch create patch delete"),
        rule(names.GROUP, "instaslices/status", "patch"),
        EVENTS,
    )
)


def webhook(*, configuration: str = names.WEBHOOK, secret: str = names.WEBHOOK) -> Role:
    """Keeps its certificates in one Secret, and the caBundle of its configuration up to date; at start it says which
    quotas count nothing any more."""
    hooks = rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get patch", named=[configuration])
    kept = rule("", "secrets", "get patch", named=[secret])
    looked_at = rule("", "resourcequotas limitranges namespaces", "list")
    return Role(cluster=(hooks, looked_at), own=(kept, rule("", "secrets", "create")))


METRICS_AUTH: Final = Role(
    cluster=(
        rule("authentication.k8s.io", "tokenreviews", "create"),
        rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    )
)
"""What each process needs besides with `--metrics-auth`: a role of its own, bound only then."""
METRICS_READER: Final[Document] = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "instaslice-metrics-reader"},
    "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
}
"""What the ServiceAccount of Prometheus is to be bound to then."""


def documents(name: str, role: Role, subject: Document, *, namespace: str = names.NAMESPACE) -> list[Document]:
    """Roles and bindings, all with the same name, and the namespace of placeholders if it is used; in the order in
    which to apply them."""
    made = _bound("ClusterRole", {"name": name}, role.cluster, subject)
    if role.own:
        made += _bound("Role", {"namespace": namespace, "name": name}, role.own, subject)
    if role.placeholders:
        # The label keeps the webhook from gating placeholders.
        metadata = {"name": names.PLACEHOLDERS, "labels": {names.OPT_OUT: names.OPTED_OUT}}
        made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        made += _bound("Role", {"namespace": names.PLACEHOLDERS, "name": name}, role.placeholders, subject)
    return made


def _bound(kind: str, metadata: Document, rules: Sequence[Rule], subject: Document) -> list[Document]:
    head = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    named = {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]}
    return [
        {**head, "kind": kind, "rules": list(rules)},
        {**head, "kind": f"{kind}Binding", "subjects": [subject], "roleRef": named},
    ]
