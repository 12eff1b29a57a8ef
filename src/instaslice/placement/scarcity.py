"""Which model to use for a profile that several models offer: the one that other profiles will need least.

Pure: from the mix of demand and the GPUs of each model to an order of models, exact for the moment. Models that offer
the same of the profiles in demand are one *family*: which of them is used makes no difference to the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from instaslice.geometry import Kinds
from instaslice.placement.pools import Pool

_PORTIONS: Final = 100
"""In how many parts demand that may go to several families is divided among them."""


@dataclass(frozen=True, slots=True)
class Family:
    """Models that offer the same of the profiles in demand: their pools by number, and their GPUs."""

    pools: tuple[int, ...]
    gpus: int
    kinds: Kinds
    """Of the first pool: what a profile needs hardly differs within a family."""

    def offers(self, profile: str) -> bool:
        return self.kinds.profile(profile) is not None

    def need(self, profile: str) -> float:
        """The part of a GPU that one slice takes, by how many a GPU holds."""
        index = self.kinds.profile(profile)
        return 0.0 if index is None else 1 / max(self.kinds.most(index)[0], 1)


@dataclass(frozen=True, slots=True)
class _Others:
    """What profiles with other options take of a family when the fleet is full, in GPUs, and what one slice needs."""

    family: Family
    expected: float
    needs: tuple[tuple[str, float], ...]

    def occupied(self, pools: Sequence[Pool]) -> float:
        """The part of the family that is taken, or that the others are still expected to take."""
        used, missing = 0.0, self.expected
        for number in self.family.pools:
            pool = pools[number]
            used += pool.used / pool.kinds.slices
            held = pool.held
            for profile, need in self.needs:
                missing -= held[profile] * need
        return (used + max(missing, 0.0)) / self.family.gpus


class Scarcity:
    """What is expected on each family once the fleet is full, if demand is divided so that all fill up evenly.

    A profile that one family alone offers goes there; the others then go wherever least is expected. A slice of such a
    profile is placed on the family that has most GPUs left after what the *other* profiles are still expected to take:
    one that could have gone elsewhere never takes the last GPUs of a profile that could not.
    """

    def __init__(self, pools: Sequence[Pool], mix: Mapping[str, float]) -> None:
        self.mix: Final = dict(mix)
        self.families: Final = _families(pools, self.mix)
        self._options = {profile: self._offering(profile) for profile in self.mix}
        self.divided: Final = self._divide()
        """Of each profile, how much of its share of the mix each family is to take."""
        load = [sum(self._load(profile, f) for profile in self.mix) for f in range(len(self.families))]
        fullest = max((part / family.gpus for part, family in zip(load, self.families, strict=True)), default=0.0)
        full = 1 / fullest if fullest else 0.0
        self._others = {profile: self._without(profile, full) for profile in self.mix}

    def order(self, pools: Sequence[Pool], profile: str) -> Sequence[Pool]:
        """The pools in the order in which to try them: by family, within one as they come."""
        others = self._others.get(profile, ())
        if len(others) < 2:
            return pools
        ranked = sorted(others, key=lambda each: each.occupied(pools))
        return [pools[number] for each in ranked for number in each.family.pools]

    def _without(self, profile: str, full: float) -> list["_Others"]:
        options = self._options[profile]
        made = []
        for f in options:
            family = self.families[f]
            others = [other for other, theirs in self._options.items() if theirs != options and f in theirs]
            expected = full * sum(self._load(other, f) for other in others)
            made.append(_Others(family, expected, tuple((other, family.need(other)) for other in others)))
        return made

    def _load(self, profile: str, f: int) -> float:
        return self.divided[profile].get(f, 0.0) * self.families[f].need(profile)

    def _offering(self, profile: str) -> list[int]:
        return [f for f, family in enumerate(self.families) if family.offers(profile)]

    def _divide(self) -> dict[str, dict[int, float]]:
        divided: dict[str, dict[int, float]] = {profile: {} for profile in self.mix}
        load = [0.0] * len(self.families)

        def give(profile: str, f: int, share: float) -> None:
            divided[profile][f] = divided[profile].get(f, 0.0) + share
            load[f] += share * self.families[f].need(profile) / self.families[f].gpus

        flexible = {}
        for profile, options in self._options.items():
            if len(options) == 1:
                give(profile, options[0], self.mix[profile])
            elif options:
                flexible[profile] = options
        for _ in range(_PORTIONS):
            for profile, options in flexible.items():
                give(profile, min(options, key=load.__getitem__), self.mix[profile] / _PORTIONS)
        return divided


def _families(pools: Sequence[Pool], mix: Mapping[str, float]) -> list[Family]:
    """Of pools that have open GPUs and offer anything in demand."""
    alike: dict[frozenset[str], list[int]] = {}
    for number, pool in enumerate(pools):
        offered = frozenset(profile for profile in mix if pool.kinds.profile(profile) is not None)
        if offered and len(pool):
            alike.setdefault(offered, []).append(number)
    return [
        Family(tuple(numbers), sum(len(pools[number]) for number in numbers), pools[numbers[0]].kinds)
        for numbers in alike.values()
    ]
