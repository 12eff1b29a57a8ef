"""Policies that rank kinds of GPU by a table, so that a choice costs the same for ten GPUs or ten thousand.

A table gives each (kind, start) of a profile a score. Kinds with the same score form a tier: a bit mask over kinds.
The best candidate is in the first tier that has a GPU, which is one AND a tier.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge

from instaslice.geometry import Kinds, States
from instaslice.placement.demands import Admits, Prefers
from instaslice.placement.fleet import Fleet
from instaslice.placement.policy import Candidate, Policy
from instaslice.placement.pools import Pool, bits
from instaslice.placement.value_tables import nvidia_order

Score = Callable[[int, int], float]
"""How good it is to go from kind s (first) to kind t (second): higher is better."""


class Ranking:
    """For one profile of one geometry: the tiers, best first, and the placement to use in each kind (-1: none)."""

    __slots__ = ("best", "fits", "tiers")

    def __init__(self, kinds: Kinds, profile: int, score: Score, order: Sequence[int] | None = None) -> None:
        """`order` lists the profile's starts as preferred; it decides between starts of the same score."""
        starts = kinds.profiles[profile].starts if order is None else order
        self.best = [-1] * len(kinds)
        self.fits = 0
        by_score: dict[float, int] = {}
        for s, choices in enumerate(kinds.choices[profile]):
            if not choices:
                continue
            row = kinds.after[s]
            top, _, k = max((round(score(s, row[k]), 9), -starts.index(kinds.placements[k].start), k) for k in choices)
            self.best[s] = k
            self.fits |= 1 << s
            by_score[top] = by_score.get(top, 0) | 1 << s
        self.tiers = [by_score[top] for top in sorted(by_score, reverse=True)]


def by_worth(kinds: Kinds, profile: int, worth: Sequence[float]) -> Ranking:
    """Where worth is gained most or lost least; of equally good starts, the one NVIDIA's driver prefers."""
    return Ranking(kinds, profile, lambda s, t: worth[t] - worth[s], nvidia_order(kinds.profiles[profile]))


class RankedPolicy(Policy):
    """A policy made of one ranking for each profile of each geometry, computed when first needed.

    Where several models have the profile, the one with least memory is used first, unless `pools` says otherwise.
    Between GPUs of the same score the lowest number wins.
    """

    def __init__(self) -> None:
        self._rankings: dict[tuple[Kinds, str], Ranking | None] = {}

    @abstractmethod
    def rank(self, kinds: Kinds, profile: int) -> Ranking:
        """The ranking of one profile; called once for each geometry until `invalidate`."""

    def pools(self, fleet: Fleet, profile: str) -> Sequence[Pool]:
        """The pools of a fleet in the order in which a profile tries them; also those that do not have it."""
        return fleet.pools

    def invalidate(self) -> None:
        """Compute the rankings again when they are next needed: the table has changed."""
        self._rankings.clear()

    def placement(self, states: States, state: int, profile: str) -> int | None:
        ranking = self._ranking(states.kinds, profile)
        k = -1 if ranking is None else ranking.best[states.kinds.of[state]]
        return k if k >= 0 else None

    def first(
        self, fleet: Fleet, profile: str, admits: Admits | None = None, prefers: Prefers | None = None
    ) -> Candidate | None:
        if admits is not None or prefers is not None:
            return next(self.candidates(fleet, profile, admits, prefers), None)
        for pool in self.pools(fleet, profile):
            ranking = self._ranking(pool.kinds, profile)
            if ranking is None:
                continue
            candidate = best_candidate(pool, ranking)
            if candidate is not None:
                return candidate
        return None

    def candidates(
        self, fleet: Fleet, profile: str, admits: Admits | None = None, prefers: Prefers | None = None
    ) -> Iterator[Candidate]:
        for pool in self.pools(fleet, profile):
            ranking = self._ranking(pool.kinds, profile)
            if ranking is None or not pool.present & ranking.fits:
                continue
            for tier in ranking.tiers:
                hit = pool.present & tier
                if not hit:
                    continue
                equal = (
                    (gpu, kind)
                    for gpu, kind in merge(*(_with_kind(pool, of) for of in bits(hit)))
                    if admits is None or admits(fleet.node_of[gpu].name)
                )
                for gpu, kind in equal if prefers is None else _preferred(fleet, equal, prefers):
                    yield Candidate(gpu, ranking.best[kind])

    def _ranking(self, kinds: Kinds, profile: str) -> Ranking | None:
        try:
            return self._rankings[kinds, profile]
        except KeyError:
            index = kinds.profile(profile)
            made = None if index is None else self.rank(kinds, index)
            self._rankings[kinds, profile] = made
            return made


def _preferred(fleet: Fleet, gpus: Iterable[tuple[int, int]], prefers: Prefers) -> list[tuple[int, int]]:
    return sorted(gpus, key=lambda each: -prefers(fleet.node_of[each[0]].name))


def _with_kind(pool: Pool, kind: int) -> Iterator[tuple[int, int]]:
    return ((gpu, kind) for gpu in pool.members(kind))


def best_candidate(pool: Pool, ranking: Ranking) -> Candidate | None:
    """The lowest GPU of the first tier that has one; None where the profile fits none of the pool."""
    present = pool.present & ranking.fits
    if not present:
        return None
    hit = next(filter(None, map(present.__and__, ranking.tiers)))
    low = hit & -hit
    kind = low.bit_length() - 1
    gpu = pool.lowest(kind)
    hit ^= low
    while hit:
        low = hit & -hit
        other = low.bit_length() - 1
        number = pool.lowest(other)
        if number < gpu:
            gpu, kind = number, other
        hit ^= low
    return Candidate(gpu, ranking.best[kind])
