"""Say at start which quotas and limits of the cluster name resources that pods do not have any more.

They were written for `nvidia.com/mig-*`, which the webhook renames. Nothing depends on the notice: where the permission
is missing, or no API server answers, the log says that it was not looked for.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from instaslice.api import names
from instaslice.kube.client import Client
from instaslice.kube.core import NAMESPACES
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import key_of
from instaslice.kube.quotas import LIMIT_RANGES, RESOURCE_QUOTAS, LimitRange, ResourceQuota

log = logging.getLogger(__name__)

MOST_NOTICES: Final = 20
"""Lines of the log; `instaslice doctor` has them all."""


async def report(client: Client) -> None:
    """Never raises a KubeError."""
    try:
        namespaces = await client.list(NAMESPACES)
        quotas, limits = await client.list(RESOURCE_QUOTAS), await client.list(LIMIT_RANGES)
    except KubeError as error:
        log.info("quotas that name %s* were not looked for: %s", names.NVIDIA_RESOURCE, error)
        return
    left_out = {each.metadata.name for each in namespaces if each.metadata.labels.get(names.OPT_OUT) == names.OPTED_OUT}
    found = [
        *of_quotas(each for each in quotas if each.metadata.namespace not in left_out),
        *of_limits(each for each in limits if each.metadata.namespace not in left_out),
    ]
    for notice in found[:MOST_NOTICES]:
        log.warning("%s", notice)
    if len(found) > MOST_NOTICES:
        log.warning("and %d more quotas and limits like these", len(found) - MOST_NOTICES)


def of_quotas(quotas: Iterable[ResourceQuota]) -> Iterator[str]:
    """Quotas whose items count nothing, unless a quota of the namespace has the new name too."""
    there = list(quotas)
    counted = {(each.metadata.namespace, item) for each in there for item in each.spec.hard}
    for quota in there:
        idle = {
            item: new
            for item in sorted(quota.spec.hard)
            if (new := names.renamed_in_quota(item)) and (quota.metadata.namespace, new) not in counted
        }
        if idle:
            yield (
                f"resourcequota {key_of(quota)}: {', '.join(idle)} counts no new pod, as InstaSlice renames the "
                f"resource; write {', '.join(idle.values())}, or let `instaslice controller --keep-quotas` do it"
            )


def of_limits(limits: Iterable[LimitRange]) -> Iterator[str]:
    """LimitRanges that no pod with slices can satisfy."""
    for each in limits:
        items = each.spec.limits or ()
        named = {
            name for item in items for field in (item.max, item.min, item.max_limit_request_ratio) for name in field
        }
        broken = {name: new for name in sorted(named) if (new := names.renamed(name))}
        if broken:
            yield (
                f"limitrange {key_of(each)}: it limits {', '.join(broken)}, which no pod has any more, as InstaSlice "
                f"renames the resource; pods are refused there until it says {', '.join(broken.values())}"
            )
