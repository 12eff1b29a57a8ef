"""The kinds that an installation stands on, each with the fields that the doctor looks at."""

from typing import Any, Final

import msgspec

from instaslice.kube.core import Condition, LabelSelector
from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource

ADMISSION: Final = "admissionregistration.k8s.io"


class ServiceReference(ApiStruct, frozen=True):
    namespace: str
    name: str
    port: int = 443


class WebhookAddress(ApiStruct, frozen=True):
    url: str = ""
    service: ServiceReference | None = None
    ca_bundle: str = ""


class RegisteredWebhook(ApiStruct, frozen=True):
    name: str
    client_config: WebhookAddress = WebhookAddress()
    failure_policy: str = "Fail"
    namespace_selector: LabelSelector | None = None


class WebhookConfiguration(ApiStruct, frozen=True):
    metadata: ObjectMeta
    webhooks: list[RegisteredWebhook] | None = None


class PolicySpec(ApiStruct, frozen=True):
    failure_policy: str = "Fail"


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
