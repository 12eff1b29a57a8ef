"""The kinds that an installation stands on, each with the fields that the doctor looks at."""

from typing import Any, Final

import msgspec

from instaslice.api import names
from instaslice.kube.core import Condition, LabelSelector, Toleration
from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource

ADMISSION: Final = "admissionregistration.k8s.io"

HOOK: Final = f"slices.{names.GROUP}"
"""The name of our hook, whatever its configuration is called."""
POLICY: Final = "instaslice-pods"
"""The name of our policy about pods."""
POLICY_OF_BINDINGS: Final = "instaslice-pods-bindings"
OF_AGENTS: Final = "app.kubernetes.io/component=agent"
"""The label of the agents' DaemonSet and of its pods."""


class ServiceReference(ApiStruct, frozen=True):
    namespace: str
    name: str


class WebhookAddress(ApiStruct, frozen=True):
    url: str = ""
    service: ServiceReference | None = None
    ca_bundle: str = ""


class WebhookRule(ApiStruct, frozen=True):
    """Requests that the API server sends: those that match every list."""

    api_groups: list[str] | None = None
    api_versions: list[str] | None = None
    resources: list[str] | None = None
    operations: list[str] | None = None
    scope: str = "*"


class RegisteredWebhook(ApiStruct, frozen=True):
    name: str
    client_config: WebhookAddress = WebhookAddress()
    failure_policy: str = "Fail"
    rules: list[WebhookRule] | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None


class WebhookConfiguration(ApiStruct, frozen=True):
    metadata: ObjectMeta
    webhooks: list[RegisteredWebhook] | None = None


class Validation(ApiStruct, frozen=True):
    expression: str = ""


class PolicySpec(ApiStruct, frozen=True):
    failure_policy: str = "Fail"
    validations: list[Validation] | None = None


class AdmissionPolicy(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: PolicySpec = PolicySpec()


class BindingSpec(ApiStruct, frozen=True):
    policy_name: str = ""
    validation_actions: list[str] | None = None


class PolicyBinding(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: BindingSpec = BindingSpec()


class ServedVersion(ApiStruct, frozen=True):
    name: str
    served: bool = False
    storage: bool = False
    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    subresources: dict[str, Any] = msgspec.field(default_factory=dict)


class DefinitionSpec(ApiStruct, frozen=True):
    versions: list[ServedVersion] | None = None


class DefinitionStatus(ApiStruct, frozen=True):
    conditions: list[Condition] | None = None
    stored_versions: list[str] | None = None


class Definition(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: DefinitionSpec = DefinitionSpec()
    status: DefinitionStatus = DefinitionStatus()


class QuotaSpec(ApiStruct, frozen=True):
    hard: dict[str, str] = msgspec.field(default_factory=dict)


class Quota(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: QuotaSpec = QuotaSpec()


class AgentPodSpec(ApiStruct, frozen=True):
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: dict[str, Any] | None = None
    tolerations: list[Toleration] | None = None


class AgentTemplate(ApiStruct, frozen=True):
    spec: AgentPodSpec = AgentPodSpec()


class AgentDaemonSetSpec(ApiStruct, frozen=True):
    template: AgentTemplate = AgentTemplate()

    @property
    def node_selector(self) -> dict[str, str]:
        return self.template.spec.node_selector

    @property
    def everywhere(self) -> bool:
        """Whether its pods run on every node that has the labels: neither affinity nor taints keep them off."""
        pod = self.template.spec
        tolerates = any(
            each.operator == "Exists" and not each.key and not each.effect for each in pod.tolerations or ()
        )
        return tolerates and not pod.affinity


class AgentDaemonSet(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: AgentDaemonSetSpec = AgentDaemonSetSpec()


WEBHOOKS = Resource(
    WebhookConfiguration,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    group=ADMISSION,
    namespaced=False,
)
POLICIES = Resource(
    AdmissionPolicy, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", group=ADMISSION, namespaced=False
)
BINDINGS = Resource(
    PolicyBinding,
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    group=ADMISSION,
    namespaced=False,
)
DEFINITIONS = Resource(
    Definition, "CustomResourceDefinition", "customresourcedefinitions", group="apiextensions.k8s.io", namespaced=False
)
QUOTAS = Resource(Quota, "ResourceQuota", "resourcequotas")
AGENT_DAEMON_SETS = Resource(AgentDaemonSet, "DaemonSet", "daemonsets", group="apps")
