"""The webhook's registration at the API server: which pods it sends, where to, and whom it trusts there.

Plain documents, made by functions, so that `instaslice up`, manual installations and tests use the same.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final

from instaslice.api import names
from instaslice.api.slice_requests import PREFIXES
from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource
from instaslice.webhook.server import PATH

HOOK: Final = f"slices.{names.GROUP}"
"""The name that users read: `admission webhook "slices.gpu.das.com" denied the request: …`."""

Document = dict[str, Any]


class ClientConfig(ApiStruct, frozen=True):
    ca_bundle: str = ""


class Hook(ApiStruct, frozen=True):
    name: str
    client_config: ClientConfig


class Configuration(ApiStruct, frozen=True):
    """A MutatingWebhookConfiguration, as far as we maintain it."""

    metadata: ObjectMeta
    webhooks: list[Hook] | None = None


GROUP: Final = "admissionregistration.k8s.io"
CONFIGURATIONS: Final = Resource(
    Configuration, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", group=GROUP, namespaced=False
)


def in_service(namespace: str = names.NAMESPACE, service: str = names.WEBHOOK, *, port: int = 443) -> Document:
    """The clientConfig of a webhook behind a Service. The caBundle is filled in by the webhook itself."""
    return {"service": {"namespace": namespace, "name": service, "port": port, "path": PATH}}


def at_address(host: str, port: int, trusted: str = "") -> Document:
    """The clientConfig of a webhook that is a process beside the API server. Without `trusted` it leaves the caBundle
    to the webhook, which fills it in: applied again, it takes nothing away."""
    return {"url": f"https://{host}:{port}{PATH}", **({"caBundle": bundle(trusted)} if trusted else {})}


def bundle(trusted: str) -> str:
    return base64.b64encode(trusted.encode()).decode()


def names_any(prefixes: Sequence[str], of: str = "object", *, any_case: bool = False) -> str:
    """CEL: whether any container of the pod names a resource with one of these prefixes."""
    return f"{containers(of)}.exists(c, {container_names_any(prefixes, any_case=any_case)})"


def containers(of: str = "object") -> str:
    """CEL: all containers of a pod that can ask for anything."""
    return f"({of}.spec.containers + {of}.spec.?initContainers.orValue([]))"


def concerns_us() -> str:
    """CEL: a new pod with slices or GPU memory, or an update that writes the names again that we replaced. Updates of
    pods that had them before InstaSlice was installed do not concern us. `nvidia.com/MIG-1g.5gb` does, although no node
    has it: its pod would wait indefinitely without being told why."""
    again = f"{names_any([names.NVIDIA_RESOURCE])} && !({names_any([names.NVIDIA_RESOURCE], 'oldObject')})"
    return f"request.operation == 'CREATE' ? {names_any((*PREFIXES, names.MEMORY), any_case=True)} : {again}"


def container_names_any(prefixes: Sequence[str], *, any_case: bool = False) -> str:
    """CEL: whether the container `c` names a resource with one of these prefixes."""
    resource = "r.lowerAscii()" if any_case else "r"
    named = " || ".join(f"{resource}.startsWith('{prefix}')" for prefix in prefixes)
    return " || ".join(f"c.?resources.?{field}.orValue({{}}).exists(r, {named})" for field in ("limits", "requests"))


def not_in_system_namespaces(own: str) -> list[Document]:
    """Namespace expressions: not ours and not kube-system, whose pods must start when nothing else does."""
    return [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", own]}]


def only_in(namespaces: Sequence[str]) -> list[Document]:
    """Namespace expressions: these and no others, where any are given."""
    if not namespaces:
        return []
    return [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}]


def configuration(
    client_config: Document, *, name: str = names.WEBHOOK, own: str = names.NAMESPACE, namespaces: Sequence[str] = ()
) -> Document:
    """The MutatingWebhookConfiguration. `own` is the namespace we run in; `namespaces` narrows it to those."""
    opted_in = {"key": names.OPT_OUT, "operator": "NotIn", "values": [names.OPTED_OUT]}
    hook = {
        "name": HOOK,
        "clientConfig": client_config,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        # A slice pod that got past us would take whatever NVIDIA's plugin has; other pods are never sent to us.
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "timeoutSeconds": 10,
        "namespaceSelector": {"matchExpressions": [*not_in_system_namespaces(own), opted_in, *only_in(namespaces)]},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"],
             "scope": "Namespaced"},
        ],
        "matchConditions": [{"name": "asks-for-slices", "expression": concerns_us()}],
    }  # fmt: skip
    return {
        "apiVersion": CONFIGURATIONS.api_version,
        "kind": CONFIGURATIONS.kind,
        "metadata": {"name": name},
        "webhooks": [hook],
    }
