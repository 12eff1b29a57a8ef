"""What limits the pods of a namespace: ResourceQuotas and LimitRanges, with the fields someone here uses."""

import msgspec

from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource

Amounts = dict[str, str | int]


class ResourceQuotaSpec(ApiStruct, frozen=True):
    hard: Amounts = msgspec.field(default_factory=dict)
    scopes: list[str] | None = None
    scope_selector: dict[str, object] | None = None


class ResourceQuotaStatus(ApiStruct, frozen=True):
    used: Amounts = msgspec.field(default_factory=dict)


class ResourceQuota(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(ApiStruct, frozen=True):
    """Each field: resource name → amount, or ratio."""

    max: Amounts = msgspec.field(default_factory=dict)
    min: Amounts = msgspec.field(default_factory=dict)
    max_limit_request_ratio: Amounts = msgspec.field(default_factory=dict)


class LimitRangeSpec(ApiStruct, frozen=True):
    limits: list[LimitRangeItem] | None = None


class LimitRange(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


RESOURCE_QUOTAS = Resource(ResourceQuota, "ResourceQuota", "resourcequotas")
LIMIT_RANGES = Resource(LimitRange, "LimitRange", "limitranges")
