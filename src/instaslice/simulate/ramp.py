"""How much of the load a run meets: it begins with an empty fleet, which fills up over the lives of its pods.

`t` after the first arrival, of the pods that a load means only those run that live no longer than that, and the younger
part of the others. What is missing from `t` on, in all, has a closed form for every kind of lives.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from math import exp, log
from statistics import NormalDist
from typing import Final

Shortfall = Callable[[float], float]
"""What a run lacks from a time on, until it has met its load: time during which none of it would run. For lives L, the
mean of (L - t)² where L is above t, divided by twice the mean of L."""

LOGNORMAL_SIGMA: Final = 1.5
"""The spread of `lognormal` lives: the longest twentieth takes more than half of the time."""


def of_exponential(t: float) -> float:
    """Lives of mean 1, as in the next two."""
    return exp(-t)


def of_fixed(t: float) -> float:
    return max(1 - t, 0.0) ** 2 / 2


def of_lognormal(t: float) -> float:
    if t <= 0:
        return exp(LOGNORMAL_SIGMA**2) / 2
    above = NormalDist().cdf
    d = -LOGNORMAL_SIGMA / 2 - log(t) / LOGNORMAL_SIGMA
    squares = exp(LOGNORMAL_SIGMA**2) * above(d + 2 * LOGNORMAL_SIGMA)
    return max(squares - 2 * t * above(d + LOGNORMAL_SIGMA) + t * t * above(d), 0.0) / 2


def of_lives(lives: Iterable[int]) -> Shortfall:
    """Lives drawn from these, each as often as another."""
    longest_first = sorted(lives, reverse=True)
    ascending = longest_first[::-1]
    sums = [0, *accumulate(longest_first)]
    squares = [0, *accumulate(life * life for life in longest_first)]

    def shortfall(t: float) -> float:
        longer = len(ascending) - bisect_right(ascending, t)
        return (squares[longer] - 2 * t * sums[longer] + t * t * longer) / (2 * sums[-1])

    return shortfall


def load_met(shortfall: Shortfall, begin: float, end: float) -> float:
    """The part of the load that runs on average between two times, were nothing refused."""
    return 1 - (shortfall(begin) - shortfall(end)) / (end - begin)
