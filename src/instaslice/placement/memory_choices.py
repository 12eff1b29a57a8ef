"""Which profiles the slices of a pod may have where it asks for some of them by memory, the least wasteful first.

Pure: looks at what nodes could hold if they were empty, so the answer changes only with the nodes.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from instaslice.geometry import MemoryAsk, Profile
from instaslice.placement.colocation import node_could_hold
from instaslice.placement.usable_models import NodeModels

MOST_CHOICES: Final = 64
"""Of one pod. One slice has fewer; of several slices there are as many as combinations."""
MOST_TRIED: Final = 512
"""Slices in the combinations that are looked at for one pod on nodes of one kind: all combinations of one slice or two,
some of ten. A pod may ask for a hundred slices, and nothing else happens meanwhile."""

Asked = str | MemoryAsk
"""A slice: the profile that a container names, or what it must have."""
Choice = tuple[str, ...]
"""A profile for each slice of a pod."""
_Cost = tuple[int, int]
"""GB above what was asked for, and compute slices, of all slices together."""


@lru_cache(maxsize=4096)
def choices(asked: tuple[Asked, ...], nodes: frozenset[NodeModels], tight: bool) -> tuple[Choice, ...]:
    """Every choice that one of these kinds of nodes could hold, the least waste of memory first, then the fewest
    compute slices. `tight`: only the first. None where no node could hold the slices."""
    found: dict[Choice, _Cost] = {}
    for models in nodes:
        holding = (
            (choice, cost)
            for cost, choice in islice(_by_cost(asked, models), max(1, MOST_TRIED // len(asked)))
            if node_could_hold(models, choice)
        )
        found.update(islice(holding, 1) if tight else holding)
    best = sorted(found, key=lambda choice: (found[choice], choice))
    return tuple(best[: 1 if tight else MOST_CHOICES])


def _by_cost(asked: Sequence[Asked], models: NodeModels) -> Iterator[tuple[_Cost, Choice]]:
    """All combinations of the profiles of these models that meet what is asked, cheapest first. Equal asks are
    interchangeable: of combinations that differ only in their order one is listed."""
    profiles = {profile.name: profile for model, _ in models for profile in model.profiles}
    options = [_options(each, profiles) for each in asked]
    if not all(options):
        return
    before = {i: max((j for j in range(i) if asked[j] == each), default=None) for i, each in enumerate(asked)}
    first = (0,) * len(asked)
    heap = [(_cost(asked, options, first), first)]
    seen = {first}
    while heap:
        cost, at = heappop(heap)
        yield cost, tuple(options[i][number].name for i, number in enumerate(at))
        for i, number in enumerate(at):
            more = (*at[:i], number + 1, *at[i + 1 :])
            # Among equal asks the later one has the same profile as the earlier one, or a more wasteful one.
            ordered = all(other is None or more[other] <= more[j] for j, other in before.items())
            if number + 1 < len(options[i]) and ordered and more not in seen:
                seen.add(more)
                heappush(heap, (_cost(asked, options, more), more))


def _options(asked: Asked, profiles: dict[str, Profile]) -> list[Profile]:
    if isinstance(asked, str):
        return [profiles[asked]] if asked in profiles else []
    return sorted(
        (each for each in profiles.values() if asked.met_by(each.name)), key=lambda each: (each.gb, each.compute)
    )


def _cost(asked: Sequence[Asked], options: Sequence[Sequence[Profile]], at: Sequence[int]) -> _Cost:
    chosen = [
        (options[i][number], each.gb)
        for i, (number, each) in enumerate(zip(at, asked, strict=True))
        if isinstance(each, MemoryAsk)
    ]
    return sum(profile.gb - gb for profile, gb in chosen), sum(profile.compute for profile, _ in chosen)
