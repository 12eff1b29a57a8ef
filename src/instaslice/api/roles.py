"""What each of our processes may do in a cluster: RBAC as data, for the chart and for `instaslice up`.

Exactly the verbs that are used, and those that only a flag needs are granted with the flag. The subject is a parameter:
a ServiceAccount in a real cluster, a user with a token in a local one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instaslice.api import names

Rule = dict[str, list[str]]
Document = dict[str, Any]

RBAC: Final = "rbac.authorization.k8s.io"
KUEUE: Final = "kueue.x-k8s.io"


def rule(group: str, resources: str, verbs: str, *, named: Sequence[str] = ()) -> Rule:
    """One rule of a role; resources and verbs are words with spaces between them."""
    only = {"resourceNames": list(named)} if named else {}
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **only}


@dataclass(frozen=True)
class Role:
    """The rules of one process: for the whole cluster, for the namespace that it runs in, for placeholders', and for
    `default`, where the Events of cluster-scoped objects are."""

    cluster: Sequence[Rule]
    own: Sequence[Rule] = ()
    placeholders: Sequence[Rule] = ()
    default: Sequence[Rule] = ()


EVENTS: Final = rule("events.k8s.io", "events", "create patch")


CONTROLLER: Final = Role(
    cluster=(
        rule("", "pods", "get list watch patch"),
        rule("", "pods/status", "patch"),
        rule(names.GROUP, "instaslices", "get list watch patch"),
        # What kube-scheduler reads before it binds a pod: the controller applies the same rules before slices are made.
        rule("", "nodes namespaces persistentvolumeclaims persistentvolumes", "list watch"),
        rule(
            "storage.k8s.io", "storageclasses csinodes csidrivers csistoragecapacities volumeattachments", "list watch"
        ),
        EVENTS,
    ),
    own=(
        rule("coordination.k8s.io", "leases", "get create update"),
        # Whether the agent of emulated nodes runs.
        rule("coordination.k8s.io", "leases", "list watch", named=[names.EMULATION]),
        rule("", "configmaps", "get patch", named=[names.DEMAND]),
        # RBAC cannot restrict `create` to a name.
        rule("", "configmaps", "create"),
    ),
)
_PATCHES_NODES: Final = Role(cluster=(rule("", "nodes", "patch"),))
CONTROLLER_FLAGS: Final[Mapping[str, Role]] = {
    "taint_nodes": _PATCHES_NODES,
    "static_mig_labels": _PATCHES_NODES,
    "keep_quotas": Role(cluster=(rule("", "resourcequotas", "list watch create patch delete"),)),
    "autoscaling_hints": Role(
        cluster=(
            rule("scheduling.k8s.io", "priorityclasses", "patch", named=[names.PLACEHOLDER_PRIORITY]),
            # RBAC cannot restrict `create` to a name.
            rule("scheduling.k8s.io", "priorityclasses", "create"),
        ),
        # Placeholders that earlier versions left in our own namespace.
        own=(rule("", "pods", "delete"),),
        placeholders=(rule("", "pods", "create delete"),),
    ),
    "admission_check": Role(
        cluster=(
            rule(KUEUE, "workloads admissionchecks resourceflavors", "list watch"),
            rule(KUEUE, "workloads/status admissionchecks/status", "patch"),
        )
    ),
}
"""What each flag of `instaslice controller` needs besides; the chart grants it with the flag."""


def controller(**flags: bool) -> Role:
    """The arguments are keys of CONTROLLER_FLAGS."""
    assert flags.keys() <= CONTROLLER_FLAGS.keys(), flags
    return _merged(CONTROLLER, *(role for flag, role in CONTROLLER_FLAGS.items() if flags.get(flag)))


AGENT: Final = Role(
    cluster=(
        # A slice that no allocation names is destroyed only if no pod uses it. The kubelet alone cannot tell: it leaves
        # out init containers, may know no pod just after its start, and emulated nodes have none. RBAC cannot restrict
        # `list` to the pods of one node.
        rule("", "pods", "list"),
        rule("", "nodes", "list watch"),
        rule(names.GROUP, "instaslices", "list watch create patch delete"),
        rule(names.GROUP, "instaslices/status", "patch"),
    ),
    # Of Instaslice objects only.
    default=(EVENTS,),
)
"""Of a node with a kubelet. RBAC grants the objects of all nodes; a policy restricts the agent to that of its own."""
EMULATED_NODES: Final = Role(
    cluster=(rule("", "nodes/status", "patch"),),
    own=(
        rule("coordination.k8s.io", "leases", "patch", named=[names.EMULATION]),
        # RBAC cannot restrict `create` to a name.
        rule("coordination.k8s.io", "leases", "create"),
    ),
)
"""What the agent of nodes without a kubelet needs besides: it writes their capacity, and shows by a Lease that it runs.
No chart grants it: only local clusters have such an agent."""


def agent(*, emulated_nodes: bool = False) -> Role:
    return _merged(AGENT, EMULATED_NODES) if emulated_nodes else AGENT


WEBHOOK: Final = Role(cluster=(rule("", "resourcequotas limitranges namespaces", "list"),))
"""With certificates that somebody else issues: at start it says which quotas count nothing any more."""


def certificates(*, configuration: str = names.WEBHOOK, secret: str = names.WEBHOOK) -> Role:
    """What the webhook needs besides to issue its own: it keeps them in one Secret, and the caBundle of its
    configuration up to date."""
    hooks = rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get patch", named=[configuration])
    kept = rule("", "secrets", "get patch", named=[secret])
    # RBAC cannot restrict `create` to a name.
    return Role(cluster=(hooks,), own=(kept, rule("", "secrets", "create")))


def webhook(*, configuration: str = names.WEBHOOK, secret: str = names.WEBHOOK) -> Role:
    return _merged(WEBHOOK, certificates(configuration=configuration, secret=secret))


def _merged(*roles: Role) -> Role:
    def rules(part: str) -> tuple[Rule, ...]:
        found = [each for role in roles for each in getattr(role, part)]
        return tuple(each for at, each in enumerate(found) if each not in found[:at])

    return Role(rules("cluster"), rules("own"), rules("placeholders"), rules("default"))


_LISTED: Final = (
    "a watch sends what there is, except by an API server that cannot (before 1.34): then it is listed first"
)
_APPLIED: Final = "the API server requires it beside `patch` of an apply that creates the object, and sees one request"
_REPEATED: Final = "an Event that is repeated within minutes is counted in the first"
SELDOM_USED: Final[Mapping[str, Mapping[str, str]]] = {
    names.CONTROLLER: {
        "get pods": "what became of a pod whose gate the API server refused to remove",
        f"get instaslices.{names.GROUP}": "what became of a write whose answer was lost",
        "patch events.events.k8s.io": _REPEATED,
        f"delete pods in {names.NAMESPACE}": "placeholders that earlier versions left there",
        f"create configmaps in {names.NAMESPACE}": _APPLIED,
        "create resourcequotas": _APPLIED,
        "create priorityclasses.scheduling.k8s.io": _APPLIED,
        **dict.fromkeys(
            (
                "list namespaces",
                "list nodes",
                "list persistentvolumeclaims",
                "list persistentvolumes",
                f"list instaslices.{names.GROUP}",
                "list resourcequotas",
                "list csidrivers.storage.k8s.io",
                "list csinodes.storage.k8s.io",
                "list csistoragecapacities.storage.k8s.io",
                "list storageclasses.storage.k8s.io",
                "list volumeattachments.storage.k8s.io",
                f"list admissionchecks.{KUEUE}",
                f"list resourceflavors.{KUEUE}",
                f"list leases.coordination.k8s.io in {names.NAMESPACE}",
            ),
            _LISTED,
        ),
    },
    "instaslice-agent": {
        "list nodes": _LISTED,
        f"list instaslices.{names.GROUP}": _LISTED,
        "list pods": "before it destroys a slice that no allocation names, a minute after it has lost its allocation",
        f"delete instaslices.{names.GROUP}": "one of an earlier node of that name, before Kubernetes has collected it",
        "patch events.events.k8s.io in default": _REPEATED,
        f"create leases.coordination.k8s.io in {names.NAMESPACE}": _APPLIED,
    },
    names.WEBHOOK: {
        f"patch secrets in {names.NAMESPACE}": "a certificate that is renewed, weeks after it was issued",
    },
}
"""Account → what it is granted and does not use in an ordinary run, and why it is granted. A test compares this with
the requests that the API server records."""

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


_PLACEHOLDERS_LABELS: Final = {
    # Keeps the webhook from gating placeholders.
    names.OPT_OUT: names.OPTED_OUT,
    # Placeholders satisfy it. Otherwise the controller's token could create privileged pods, and be root on nodes.
    "pod-security.kubernetes.io/enforce": "restricted",
}


def documents(name: str, role: Role, subject: Document, *, namespace: str = names.NAMESPACE) -> list[Document]:
    """Roles and bindings, all with the same name, and the namespace of placeholders if it is used; in the order in
    which to apply them."""
    made = _bound("ClusterRole", {"name": name}, role.cluster, subject) if role.cluster else []
    if role.own:
        made += _bound("Role", {"namespace": namespace, "name": name}, role.own, subject)
    if role.placeholders:
        metadata = {"name": names.PLACEHOLDERS, "labels": dict(_PLACEHOLDERS_LABELS)}
        made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        made += _bound("Role", {"namespace": names.PLACEHOLDERS, "name": name}, role.placeholders, subject)
    if role.default:
        made += _bound("Role", {"namespace": "default", "name": name}, role.default, subject)
    return made


def _bound(kind: str, metadata: Document, rules: Sequence[Rule], subject: Document) -> list[Document]:
    head = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    named = {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]}
    return [
        {**head, "kind": kind, "rules": list(rules)},
        {**head, "kind": f"{kind}Binding", "subjects": [subject], "roleRef": named},
    ]
