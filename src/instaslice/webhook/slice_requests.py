"""The slices that each container requests, read from its limits and requests and checked.

Pure. Raises Rejected with what is wrong and what would be right.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from instaslice.api import names
from instaslice.geometry import ProfileName, UnknownProfile
from instaslice.kube.quantities import NANO, nano
from instaslice.webhook.errors import Rejected
from instaslice.webhook.largest_node import LargestNode
from instaslice.webhook.review import AdmissionContainer

PREFIXES = (names.NVIDIA_RESOURCE, names.RESOURCE)


@dataclass(frozen=True)
class SliceRequest:
    """Slices of one profile for one container. `written` is the resource name as the user wrote it."""

    written: str
    profile: ProfileName
    count: int

    @property
    def resource(self) -> str:
        return names.resource_name(self.profile)

    @property
    def gb(self) -> int:
        return self.profile.gb * self.count


def slice_requests_of(container: AdmissionContainer, largest: LargestNode) -> list[SliceRequest]:
    """The slices that one container requests, by resource name."""
    limits, requests = container.resources.limits, container.resources.requests
    written = sorted(name for name in {*limits, *requests} if name.startswith(PREFIXES))
    found = [_slice_request(name, limits, requests, largest) for name in written]
    twice = [profile for profile, count in Counter(each.profile for each in found).items() if count > 1]
    if twice:
        both = " and ".join(each.written for each in found if each.profile == twice[0])
        raise Rejected(f"{both} are the same slice under two names; keep one")
    return found


def _slice_request(
    name: str, limits: Mapping[str, str | int], requests: Mapping[str, str | int], largest: LargestNode
) -> SliceRequest:
    profile = _profile(name, largest)
    quantities = [str(where[name]) for where in (limits, requests) if name in where]
    # A number can be written in many ways, `1k`, `+1`, `2e0`, and the API server leaves some of them as they are.
    counts = [nano(quantity) for quantity in quantities]
    if len(set(counts)) > 1:
        raise Rejected(
            f"{name} is {quantities[0]} in limits and {quantities[1]} in requests; slices cannot be overcommitted, "
            "so give the same number in both, or limits alone"
        )
    count, rest = divmod(counts[0], NANO)
    # 5Gi is meant as an amount of memory.
    if rest or count < 1 or quantities[0].endswith("i"):
        raise Rejected(f"{name}: {quantities[0]} is not a number of slices; give a whole number from 1 on")
    return SliceRequest(name, profile, count)


def _profile(resource: str, largest: LargestNode) -> ProfileName:
    text = resource.partition("/mig-")[2]
    try:
        profile = ProfileName.parse(text)
    except UnknownProfile:
        profile = None
    if profile is None or not largest.has(profile):
        meant = ", ".join(ProfileName.parse(each).resource.removeprefix("mig-") for each in largest.nearest(text))
        raise Rejected(f"{resource}: no known GPU has a profile {text}; did you mean {meant}?")
    return profile
