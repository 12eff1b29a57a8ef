"""Pods that do not exist yet, as they will be: from the template of their owner, by what the webhook does to new pods.

Pure. For who has to know what pods will ask for before they are created, as Kueue admits a Job before it has pods. What
the webhook makes of a container's resources is in `slice_requests`, for both.
"""

import msgspec

from instaslice.api import names
from instaslice.api.errors import Rejected
from instaslice.api.largest_node import LargestNode
from instaslice.api.pods import held_together
from instaslice.api.slice_requests import renamed_resources, slice_requests_of
from instaslice.kube.core import Container, Pod, Toleration

_TOLERATION = Toleration(key=names.MANAGED, operator="Exists", effect="NoSchedule")


def as_admitted(pod: Pod, largest: LargestNode) -> Pod:
    """The pod with our resource names and, if it asks for slices, our toleration. Safe to repeat.

    Raises Rejected where the webhook would reject it for what it asks for.
    """
    initial, containers = pod.spec.init_containers or [], pod.spec.containers or []
    requests = {}
    for container in (*initial, *containers):
        try:
            requests[container.name] = slice_requests_of(container, largest)
        except Rejected as rejected:
            raise Rejected(f"container {container.name}: {rejected}") from None
    for together in held_together(
        initial, containers, lambda container: {each.profile: each.count for each in requests[container.name]}
    ):
        largest.check_fits(together)

    def renamed(container: Container) -> Container:
        resources = renamed_resources(container, requests[container.name])
        return msgspec.structs.replace(container, resources=resources)

    tolerations = pod.spec.tolerations
    if any(requests.values()) and _TOLERATION not in (tolerations or []):
        tolerations = [*(tolerations or []), _TOLERATION]
    spec = msgspec.structs.replace(
        pod.spec,
        init_containers=[renamed(each) for each in initial],
        containers=[renamed(each) for each in containers],
        tolerations=tolerations,
    )
    return msgspec.structs.replace(pod, spec=spec)
