"""What one container asks for, slices or GPU memory alone, and how its resources are written then.

Pure. The webhook does it to new pods; `future_pods` says what it will do.
"""

from collections.abc import Mapping
from typing import NamedTuple

from instaslice.api import names
from instaslice.api.largest_node import LargestNode
from instaslice.api.memory_requests import ask_of, gb_asked_alone
from instaslice.api.slice_requests import SliceRequest, slice_names, slice_requests_of
from instaslice.geometry import MemoryAsk, ProfileName
from instaslice.kube.core import Container, ResourceRequirements


class ContainerRequest(NamedTuple):
    """What one container asks for: slices by profile, or so many GB of GPU memory in one slice of any."""

    slices: list[SliceRequest]
    gb: int = 0

    def counts(self, annotations: Mapping[str, str]) -> dict[ProfileName | MemoryAsk, int]:
        if self.gb:
            return {ask_of(self.gb, annotations): 1}
        return {each.profile: each.count for each in self.slices}


def container_request(container: Container, largest: LargestNode, recorded: Mapping[str, int]) -> ContainerRequest:
    """`recorded`: what it asked for when it was seen before. Raises Rejected."""
    slices = slice_requests_of(container, largest, recorded)
    return ContainerRequest(slices, gb_asked_alone(container, slices, recorded))


def renamed_resources(container: Container, request: ContainerRequest) -> ResourceRequirements:
    """Limits and requests of one container by our names. Both are written: an extended resource may not be in requests
    alone. Zero slices are left out."""
    wanted: dict[str, str | int] = {each.resource: str(each.count) for each in request.slices}
    if request.gb:
        wanted[names.ANY_SLICE] = "1"
    # GPU memory follows from the slices where there are any: quotas count by it.
    gb = request.gb or sum(each.gb for each in request.slices)
    if gb:
        wanted[names.MEMORY] = str(gb)
    replaced = slice_names(container)

    def renamed(present: Mapping[str, str | int]) -> dict[str, str | int]:
        return {name: quantity for name, quantity in present.items() if name not in replaced} | wanted

    return ResourceRequirements(
        limits=renamed(container.resources.limits), requests=renamed(container.resources.requests)
    )
