"""Names in quotas that count nothing once the webhook has renamed the resources of pods, and those that do.

Pure.
"""

from typing import Final

from instaslice.api import names
from instaslice.geometry import ProfileName, UnknownProfile

REQUESTS: Final = "requests."
"""How a ResourceQuota names what pods request. Of resources like ours it knows no other form."""


def renamed(resource: str) -> str | None:
    """What the webhook makes of a resource name; None where it leaves it as it is, or refuses it."""
    if not resource.startswith(names.NVIDIA_RESOURCE):
        return None
    try:
        return names.resource_name(ProfileName.parse(resource))
    except UnknownProfile:
        return None


def renamed_in_quota(item: str) -> str | None:
    """The same of an item of a quota: `requests.nvidia.com/mig-1g.5gb`."""
    if not item.startswith(REQUESTS):
        return None
    found = renamed(item.removeprefix(REQUESTS))
    return found and REQUESTS + found
