"""Several value tables, and the choice among them: by rehearsal on the observed demand.

No single table is best for every mix of profiles (designs/0003-placement-policy.md): each loses two points and more
to another somewhere. So each is simulated on random arrivals of the observed mix, and the best is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from random import Random
from statistics import mean, stdev
from typing import Final

from instaslice.geometry import Kinds, Model, States
from instaslice.placement.policy import Regime
from instaslice.placement.ranked import Ranking, by_worth
from instaslice.placement.rehearsal import Arrival, RehearsalPool, fill, loss, poisson_arrivals, queue
from instaslice.placement.value_tables import (
    MakeTable,
    Table,
    by_size,
    fragmentation,
    fullness,
    future,
    mix_of,
    most_packable,
    plus,
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected: arrivals by profile, and how many slices would run at once if all fitted.

    The fewer arrivals, the less is known: other mixes that may have led to the same arrivals are rehearsed too.
    Without `concurrent` it is as many as would fill the memory of the fleet.
    """

    asked: Mapping[str, float]
    regime: Regime = Regime.QUEUE
    concurrent: float | None = None


def _foresight(patience: float, fill_weight: float) -> MakeTable:
    return lambda kinds, mix: plus(future(kinds, mix, patience), fullness(kinds, fill_weight))


def _mean_fragmentation(kinds: Kinds, mix: Sequence[float]) -> Table:
    by_count, by_slices = fragmentation(kinds, mix), fragmentation(kinds, by_size(kinds, mix))
    return [(a + b) / 2 for a, b in zip(by_count, by_slices, strict=True)]


RECIPES: Final[Mapping[str, MakeTable]] = {
    "foresight-0.99": _foresight(0.99, 1.0),
    "foresight-0.95": _foresight(0.95, 1.0),
    "foresight-0.85": _foresight(0.85, 1.0),
    "foresight-0.7": _foresight(0.7, 1.0),
    "foresight-0.5": _foresight(0.5, 1.0),
    "foresight-0.3": _foresight(0.3, 1.0),
    "foresight-0.7-slim": _foresight(0.7, 0.3),
    "foresight-0.7-slices": lambda s, mix: plus(future(s, by_size(s, mix), 0.7), fullness(s, 0.3)),
    "foresight-0.85-packable": lambda s, mix: plus(future(s, mix, 0.85), most_packable(s, 0.3)),
    "fgd": fragmentation,
    "fgd-slices": lambda s, mix: fragmentation(s, by_size(s, mix)),
    "fgd-both": lambda s, mix: plus(_mean_fragmentation(s, mix), fullness(s, 1.0)),
    "fgd-both-packable": lambda s, mix: plus(_mean_fragmentation(s, mix), most_packable(s, 0.3), fullness(s, 1.0)),
    "best-fit": lambda s, _: [float(used * used) for used in s.used],
}
UNINFORMED: Final = "foresight-0.5"
"""Used until demand was observed, with equal shares of all profiles: at most 0.3 points of memory below the best plain
policy on any fleet of two GPUs or more (bench/policies.py, regime young)."""
UNINFORMED_ALONE: Final = "foresight-0.85-packable"
"""The same for a single GPU. No other takes what does not fit, so it preserves more options: few arrival orders of a
layout get stuck (bench/orders.py)."""

REHEARSED_GPUS: Final = 104
"""A larger fleet is rehearsed at this size with its demand scaled down: the time would grow with the fleet."""
_LIVES = 12.0
_WARM_UP = 3.0
_ROUNDS: Final = ((3, 5), (6, 2), (8, 1))
"""(runs, recipes kept) by round: all recipes on three, the best five on six more, the best two on eight."""
_FEW_GPUS: Final = 32
"""Fewer GPUs are rehearsed more often, so that chance has no larger part in it."""
_MOST_REPEATS: Final = 8


def rankings(kinds: Kinds, recipe: str, mix: Sequence[float]) -> list[Ranking]:
    """The rankings of every profile under a recipe."""
    worth = RECIPES[recipe](kinds, mix)
    return [by_worth(kinds, p, worth) for p in range(len(kinds.profiles))]


def best_recipe(model: Model, gpus: int, forecast: Forecast, random: Random, now: str = UNINFORMED) -> str:
    """The recipe that does best in rehearsal; about a second for any fleet. `now`, the one in use, is kept unless
    another is better by more than chance."""
    # Without profiles that nobody asks for there are a third as many states.
    model = model.only([p.name for p in model.profiles if forecast.asked.get(p.name)])
    kinds = States.of(model).kinds
    mix = mix_of(kinds, forecast.asked)
    played = min(gpus, REHEARSED_GPUS)
    mean_size = sum(share * p.size for share, p in zip(mix, kinds.profiles, strict=True))
    if not gpus or not mean_size:
        return now
    full = played * kinds.slices / mean_size
    # More demand than twice the fleet only makes the rehearsal longer.
    concurrent = full if forecast.concurrent is None else min(forecast.concurrent * played / gpus, 2 * full)
    tried = {recipe: rankings(kinds, recipe, mix) for recipe in RECIPES}
    scores: dict[str, list[float]] = {recipe: [] for recipe in tried}
    repeats = min(max(_FEW_GPUS // played, 1), _MOST_REPEATS)
    for runs, kept in _ROUNDS:
        for _ in range(runs * repeats):
            arrivals = _arrivals(_possible_mix(kinds, mix, forecast, random), concurrent, forecast.regime, random)
            for recipe in scores:
                pool = RehearsalPool(model, tried[recipe], played)
                scores[recipe].append(_score(pool, arrivals, [p.size for p in kinds.profiles], forecast.regime))
        best = sorted(scores, key=lambda r: -sum(scores[r]))[:kept]
        scores = {recipe: scores[recipe] for recipe in dict.fromkeys([*best, now])}
    return best[0] if _clearly(scores[best[0]], scores[now]) else now


def _possible_mix(kinds: Kinds, mix: Sequence[float], forecast: Forecast, random: Random) -> Sequence[float]:
    """One that may have led to what was asked for. Of far less than one arrival none can be drawn: then `mix`."""
    drawn = [random.gammavariate(forecast.asked.get(p.name, 0.0), 1.0) for p in kinds.profiles]
    return drawn if sum(drawn) else mix


def _clearly(better: Sequence[float], than: Sequence[float]) -> bool:
    """Whether the mean difference is larger than its standard error."""
    gains = [a - b for a, b in zip(better, than, strict=True)]
    return mean(gains) > stdev(gains) / sqrt(len(gains))


def _arrivals(mix: Sequence[float], concurrent: float, regime: Regime, random: Random) -> list[Arrival]:
    count = concurrent if regime is Regime.FILL else concurrent * _LIVES
    return poisson_arrivals(mix, concurrent, max(1, round(count)), random)


def _score(pool: RehearsalPool, arrivals: list[Arrival], sizes: Sequence[int], regime: Regime) -> float:
    match regime:
        case Regime.LOSS:
            return loss(pool, arrivals, sizes, _WARM_UP)
        case Regime.FILL:
            return fill(pool, arrivals, sizes)
        case Regime.QUEUE:
            return -queue(pool, arrivals, _WARM_UP)
