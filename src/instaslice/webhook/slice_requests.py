"""What a pod asks for: the slices of each container, read from its limits and requests and checked.

Pure. Raises Refused with what is wrong and what would be right.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from instaslice.api import names
from instaslice.geometry import ProfileName, UnknownProfile
from instaslice.kube.quantities import NANO, nano
from instaslice.webhook.errors import Rejected
from instaslice.webhook.largest_node import LargestNode
from instaslice.webhook.review import AdmissionContainer, AdmissionPodSpec

PREFIXES = (names.NVIDIA_RESOURCE, names.RESOURCE)


@dataclass(frozen=True)
class SliceRequest:
    """Slices of one profile for one container. `written` is the resource name that the user wrote."""

    written: str
    profile: ProfileName
    count: int

    @property
    def resource(self) -> str:
        return ours(self.profile)

    @property
    def gb(self) -> int:
        return self.profile.gb * self.count


def ours(profile: ProfileName) -> str:
    """The resource that our nodes advertise for a profile."""
    return f"{names.GROUP}/{profile.resource}"


def slice_requests_of(container: AdmissionContainer, largest: LargestNode) -> list[SliceRequest]:
    """The slices that one container asks for, by resource name."""
    limits, requests = container.resources.limits, container.resources.requests
    written = sorted(name for name in {*limits, *requests} if name.startswith(PREFIXES))
    asks = [_ask(name, limits, requests, largest) for name in written]
    twice = [profile for profile, count in Counter(ask.profile for ask in asks).items() if count > 1]
    if twice:
        both = " and ".join(ask.written for ask in asks if ask.profile == twice[0])
        raise Rejected(f"{both} are the same slice under two names; keep one")
    return asks


def _ask(
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
    # Of 5Gi somebody means an amount of memory.
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


def held_together(spec: AdmissionPodSpec, asks: Mapping[str, Sequence[SliceRequest]]) -> Iterator[Counter[ProfileName]]:
    """The slices that are held together in each phase of a pod, as Kubernetes counts: every init container with the
    sidecars before it, then all containers with all sidecars."""
    held: Counter[ProfileName] = Counter()
    for container in spec.init_containers:
        wanted = _count(asks[container.name])
        yield held + wanted
        if container.sidecar:
            held += wanted
    yield sum((_count(asks[container.name]) for container in spec.containers), start=held)


def _count(asks: Sequence[SliceRequest]) -> Counter[ProfileName]:
    return Counter({ask.profile: ask.count for ask in asks})
