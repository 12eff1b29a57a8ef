"""What a kind of state is worth: the tables behind the ranked policies.

A table V gives each kind a number; placing a slice moves a GPU from s to t and scores V[t] - V[s]. `mix` gives each
profile of the geometry its share of what is asked for, by index; it sums to 1 where any of them is asked for.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from instaslice.geometry import Kinds, Profile

Table = list[float]
MakeTable = Callable[[Kinds, Sequence[float]], Table]
"""From the kinds of a geometry and the mix of demand to the worth of each kind."""


_IMAGINED: Final = 6.0
"""Arrivals that are imagined before the first, shared equally by the profiles: the first ten tell little."""


def expected(geometries: Iterable[Kinds], asked: Mapping[str, float]) -> dict[str, float]:
    """What to expect after these arrivals, in arrivals: what was asked for, and a little of every other profile of the
    fleet. Profiles with an extra such as `+me` are expected only once they were asked for."""
    plain = {
        profile.name
        for kinds in geometries
        for profile in kinds.profiles
        if profile.starts and profile.name.endswith("gb")
    }
    belief = Counter({name: _IMAGINED / len(plain) for name in sorted(plain)})
    belief.update(asked)
    return dict(belief)


def mix_of(kinds: Kinds, asked: Mapping[str, float]) -> tuple[float, ...]:
    """The shares of this geometry's profiles in what was asked for; equal shares where none was."""
    counts = [asked.get(profile.name, 0.0) for profile in kinds.profiles]
    total = sum(counts)
    if total <= 0:
        return (1 / max(len(counts), 1),) * len(counts)
    return tuple(count / total for count in counts)


def by_size(kinds: Kinds, mix: Sequence[float]) -> tuple[float, ...]:
    """The mix by memory slices asked for instead of by number of slices."""
    weighted = [share * profile.size for share, profile in zip(mix, kinds.profiles, strict=True)]
    total = sum(weighted) or 1.0
    return tuple(weight / total for weight in weighted)


def fragmentation(kinds: Kinds, mix: Sequence[float]) -> Table:
    """FGD for MIG: minus the free slices, weighted by the share of demand that cannot use them.

    Weng et al., "Beware of Fragmentation", USENIX ATC 2023, with legal starts in place of fractions of a GPU.
    """
    table = []
    for s in range(len(kinds)):
        unusable = sum(share for p, share in enumerate(mix) if not kinds.choices[p][s])
        table.append(-kinds.free[s] * unusable)
    return table


def future(kinds: Kinds, mix: Sequence[float], patience: float) -> Table:
    """Slices that will still be placed on this GPU when demand arrives by `mix` and each goes to its best start.

    A dynamic program from full to empty. `patience` is the chance that the GPU survives a demand that does not fit:
    0 stops at the first (FGD's Bellman form), close to 1 it waits for one that fits.
    """
    table = [0.0] * len(kinds)
    for s in kinds.fullest_first:
        gain = fitting = 0.0
        for p, share in enumerate(mix):
            choices = kinds.choices[p][s]
            if choices and share:
                fitting += share
                row = kinds.after[s]
                gain += share * (kinds.profiles[p].size + max(table[row[k]] for k in choices))
        if fitting:
            table[s] = gain / (1 - patience * (1 - fitting))
    return table


def fullness(kinds: Kinds, weight: float) -> Table:
    """The square of the used part: a small weight fills GPUs that are nearly full before it opens empty ones."""
    slices = kinds.slices or 1
    return [weight * (used / slices) ** 2 for used in kinds.used]


def most_packable(kinds: Kinds, weight: float) -> Table:
    """The most memory slices that could still be placed, whatever the demand."""
    table = [0.0] * len(kinds)
    for s in kinds.fullest_first:
        ways = ((kinds.placements[k].size + table[to]) for k, to in enumerate(kinds.after[s]) if to >= 0)
        table[s] = max(ways, default=0.0)
    return [weight * value for value in table]


def plus(*tables: Iterable[float]) -> Table:
    return [sum(row) for row in zip(*tables, strict=True)]


# The driver's own choice, from the examples in NVIDIA's MIG User Guide, for the geometry that all seven-slice GPUs
# share. The order for double-memory 1g slices is not in the guide; it follows from the others.
_NVIDIA_ORDER: Mapping[tuple[int, tuple[int, ...]], tuple[int, ...]] = {
    (1, (0, 1, 2, 3, 4, 5, 6)): (6, 4, 5, 0, 1, 2, 3),
    (2, (0, 2, 4, 6)): (6, 4, 0, 2),
    (2, (0, 2, 4)): (4, 0, 2),
    (4, (0, 4)): (4, 0),
}


def nvidia_order(profile: Profile) -> tuple[int, ...]:
    """The profile's starts as NVIDIA's driver prefers them; highest first where the guide shows no example."""
    return _NVIDIA_ORDER.get((profile.size, profile.starts), tuple(reversed(profile.starts)))
