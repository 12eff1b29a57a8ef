"""Pods that do not exist yet, as they will be: from the template of their owner, by what the webhook does to new pods.

Pure. For who has to know what pods will ask for before they are created, as Kueue admits a Job before it has pods. What
the webhook makes of a container's resources is in `container_requests`, for both.
"""

import msgspec

from instaslice.api import names
from instaslice.api.container_requests import container_request, renamed_resources
from instaslice.api.errors import Rejected
from instaslice.api.largest_node import LargestNode
from instaslice.api.memory_requests import check_no_terms
from instaslice.api.pods import gated, held_together, was_mutated
from instaslice.kube.core import Container, Pod, Toleration

_TOLERATION = Toleration(key=names.MANAGED, operator="Exists", effect="NoSchedule")


def as_admitted(pod: Pod, largest: LargestNode) -> Pod:
    """The pod with our resource names and, if it asks for slices, our toleration. Safe to repeat.

    Raises Rejected where the webhook would reject it for what it asks for.
    """
    initial, containers = pod.spec.init_containers or [], pod.spec.containers or []
    requests, exists = {}, gated(pod) or was_mutated(pod)
    for container in (*initial, *containers):
        try:
            # A plain pod has been through the webhook, which added it.
            seen = {names.MEMORY: 1} if exists and names.ANY_SLICE in container.resources.limits else {}
            requests[container.name] = container_request(container, largest, seen)
        except Rejected as rejected:
            raise Rejected(f"container {container.name}: {rejected}") from None
    if not any(each.gb for each in requests.values()) and any(each.slices for each in requests.values()):
        check_no_terms(pod.metadata.annotations)
    for together in held_together(
        initial, containers, lambda container: requests[container.name].counts(pod.metadata.annotations)
    ):
        largest.check_fits(together)

    def renamed(container: Container) -> Container:
        resources = renamed_resources(container, requests[container.name])
        return msgspec.structs.replace(container, resources=resources)

    tolerations = pod.spec.tolerations
    if any(each.slices or each.gb for each in requests.values()) and _TOLERATION not in (tolerations or []):
        tolerations = [*(tolerations or []), _TOLERATION]
    spec = msgspec.structs.replace(
        pod.spec,
        init_containers=[renamed(each) for each in initial],
        containers=[renamed(each) for each in containers],
        tolerations=tolerations,
    )
    return msgspec.structs.replace(pod, spec=spec)
