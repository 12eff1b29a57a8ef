"""How long a string and how large a number in our objects may be: types whose limits the API server enforces.

Every string and list has a bound, so that one object stays far below etcd's 1.5 MB whoever writes it.
"""

from typing import Annotated, Any

from msgspec import Meta

MAX_MESSAGE = 1024

Id = Annotated[str, Meta(min_length=1, max_length=128)]
Label = Annotated[str, Meta(min_length=1, max_length=63)]
"""A namespace or a container: a DNS label."""
Name = Annotated[str, Meta(min_length=1, max_length=253)]
"""Any other name in Kubernetes, and the name of a GPU model."""
Uuid = Annotated[str, Meta(min_length=1, max_length=64)]
"""Of a pod, a GPU (`GPU-…`), a slice (`MIG-…`) or a boot."""
# Also names of later drivers: whether a model has the profile is for geometry to decide.
ProfileText = Annotated[str, Meta(max_length=32, pattern=r"^[1-9][0-9]*g\.[0-9]+gb([+-][a-z.]+)?$")]
Message = Annotated[str, Meta(max_length=MAX_MESSAGE)]
"""For people; `truncated` cuts a text to it."""

Start = Annotated[int, Meta(ge=0, le=127)]
"""A memory slice of a GPU, counted from 0."""
Size = Annotated[int, Meta(ge=1, le=128)]
"""A number of memory slices."""
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Amount = Annotated[int, Meta(ge=0, extra_json_schema={"format": "int64"})]


def bounded_list(most: int, *keys: str) -> Meta:
    """A list of at most `most`. With keys it is a map by them: an apply owns entries, and no two are alike."""
    extra: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
    if keys:
        extra = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return Meta(max_length=most, extra_json_schema=extra)


def truncated(text: str) -> str:
    """The text, cut to the length of a Message: a driver's message can be longer than the server accepts."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
