"""Objects in groups, in maps without empty groups."""

from collections.abc import Hashable, MutableMapping
from typing import TypeVar

G = TypeVar("G", bound=Hashable)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def discard(groups: MutableMapping[G, dict[K, V]], group: G, key: K) -> None:
    """Remove an object from its group, if it is there, and the group if that leaves it empty."""
    found = groups.get(group)
    if found is not None:
        found.pop(key, None)
        if not found:
            del groups[group]
