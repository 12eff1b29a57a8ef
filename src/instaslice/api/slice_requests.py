"""The slices that each container requests, read from its limits and requests and checked.

Pure. The webhook asks for new pods, the controller for pods that do not exist yet, from their template. Raises Rejected
with what is wrong and what would be right. Zero slices are none, whatever the profile: forms such as JupyterHub's write
`nvidia.com/mig-1g.5gb: 0` for a notebook without a GPU.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from instaslice.api import names
from instaslice.api.errors import Rejected
from instaslice.api.largest_node import LargestNode
from instaslice.geometry import ProfileName, UnknownProfile
from instaslice.geometry.names import RESOURCE_PREFIX
from instaslice.kube.core import Container
from instaslice.kube.quantities import NANO, nano

PREFIXES = (names.NVIDIA_RESOURCE, names.RESOURCE)
SHARED = ".shared"
"""What NVIDIA's device plugin appends to the name of a resource whose devices it shares in time."""


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


def slice_requests_of(container: Container, largest: LargestNode, recorded: Iterable[str] = ()) -> list[SliceRequest]:
    """The slices that one container requests, by resource name. `recorded` are the names that it had when it was seen
    before: one that is there again, beside ours for it, is the default of a LimitRange, which the API server fills in
    once more after the rename."""
    limits, requests = container.resources.limits, container.resources.requests
    passed = {*zeros_of(container), *(name for name in recorded if name.startswith(names.NVIDIA_RESOURCE))}
    found = [_slice_request(name, limits, requests, largest) for name in slice_names(container) if name not in passed]
    twice = [profile for profile, count in Counter(each.profile for each in found).items() if count > 1]
    if twice:
        both = " and ".join(each.written for each in found if each.profile == twice[0])
        raise Rejected(f"{both} are the same slice under two names; keep one")
    return found


def zeros_of(container: Container) -> list[str]:
    """The resource names of slices that one container requests none of."""
    fields = (container.resources.limits, container.resources.requests)
    return [name for name in slice_names(container) if all(nano(field.get(name, 0)) == 0 for field in fields)]


def slice_names(container: Container) -> list[str]:
    """The resource names that are, or are meant to be, those of slices."""
    written = {*container.resources.limits, *container.resources.requests}
    return sorted(name for name in written if name.lower().startswith(PREFIXES) and name != names.ANY_SLICE)


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
    prefix = next(each for each in PREFIXES if resource.lower().startswith(each))
    text = resource[len(prefix) :]
    if not resource.startswith(prefix):
        raise Rejected(f"{resource}: names of resources are case-sensitive; write {prefix}{text.lower()}")
    if not text:
        raise Rejected(f"{resource} names no profile; write one after it, as in {prefix}1g.5gb")
    # Not `parse(text)`, which would take mig-mig-1g.5gb for a profile.
    profile = _parsed(resource)
    if profile is not None and largest.has(profile):
        return profile
    whole = _parsed(resource.removesuffix(SHARED))
    if resource.endswith(SHARED) and whole is not None and largest.has(whole):
        raise Rejected(
            f"{resource} is a slice that several pods share in time, which InstaSlice does not offer; write "
            f"{prefix}{_bare(whole)} for a slice of its own, or a smaller profile"
        )
    meant = ", ".join(map(_bare, map(ProfileName.parse, largest.nearest(text.removeprefix(RESOURCE_PREFIX)))))
    raise Rejected(f"{resource}: no known GPU has a profile {text}; did you mean {meant}?")


def _parsed(resource: str) -> ProfileName | None:
    try:
        return ProfileName.parse(resource)
    except UnknownProfile:
        return None


def _bare(profile: ProfileName) -> str:
    """The profile as it is written in a resource name."""
    return profile.resource.removeprefix(RESOURCE_PREFIX)
