"""How much of a mix fits into a fleet with ideal packing: the definition of load 1.0.

Fluid: layouts are used in any proportion, so no count is rounded. The answer comes with prices: what a slice of each
profile is worth at the optimum. Prices make a bound that no packing at all can exceed, which `bound` uses.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from instaslice.geometry import Model, States
from instaslice.simulate.errors import BadWorkload

_TINY: Final = 1e-9

Counts = tuple[int, ...]
"""How many slices of each profile one GPU holds, in the order of the demand."""


class Capacity(NamedTuple):
    """The largest multiple of a demand that fits, and why not more.

    For whatever is held at once, the sum of `prices[p]` over its slices is at most `limit`; for the demand itself it
    is exactly 1 a multiple, so that `most` equals `limit`.
    """

    most: float
    prices: dict[str, float]
    limit: float


class Fluid:
    """The layouts of a fleet, reused for many demands for the same profiles."""

    def __init__(self, fleet: Mapping[Model, int], profiles: Sequence[str]) -> None:
        """`fleet` has the GPUs of each model. Raises BadWorkload where a profile is on none of them."""
        self.profiles: Final = tuple(profiles)
        for name in self.profiles:
            if not any(model.has(name) for model in fleet):
                raise BadWorkload(f"profile {name} does not exist in this fleet")
        self._gpus = list(fleet.values())
        self._layouts = [(of, row) for of, model in enumerate(fleet) for row in _layouts(model, self.profiles)]

    def capacity(self, demand: Mapping[str, float]) -> Capacity:
        """How many times `demand` (slices by profile) fits. Raises BadWorkload where it asks for nothing."""
        asked = [demand.get(name, 0.0) for name in self.profiles]
        if min(asked, default=0.0) < 0 or not any(asked):
            raise BadWorkload("a mix needs at least one profile, and no share below 0")
        # Columns: the multiple t, then the GPUs cut by each layout. Rows: for each profile, t times what is asked
        # is at most what the layouts hold; for each model, its layouts use at most its GPUs.
        rows = [[share, *(-float(row[p]) for _, row in self._layouts)] for p, share in enumerate(asked)]
        rows += [[0.0, *(float(of == m) for of, _ in self._layouts)] for m in range(len(self._gpus))]
        limits = [0.0] * len(asked) + [float(count) for count in self._gpus]
        most, duals = maximise_first(rows, limits)
        prices = dict(zip(self.profiles, duals, strict=False))
        limit = sum(gpus * price for gpus, price in zip(self._gpus, duals[len(asked) :], strict=True))
        return Capacity(most, prices, limit)


def _layouts(model: Model, profiles: Sequence[str]) -> list[Counts]:
    """What one GPU can hold of these profiles, without what is less than another in every profile."""
    mine = [name for name in profiles if model.has(name)]
    if not mine:
        return []
    states = States.of(model.only(mine))
    found: set[Counts] = set()
    for state in states.maximal():
        held = Counter(placement.profile for placement in states.held(state))
        found.add(tuple(held[name] for name in profiles))
    return sorted(a for a in found if not any(a != b and all(x <= y for x, y in zip(a, b, strict=True)) for b in found))


def maximise_first(rows: list[list[float]], limits: list[float]) -> tuple[float, list[float]]:
    """The largest first variable with rows · x <= limits and x >= 0, limits >= 0; and the price of each row.

    The simplex method on a full tableau: a handful of rows, at most some hundred columns. Bland's rule, because most
    limits are 0 and other rules can cycle there.
    """
    count, width = len(rows), len(rows[0])
    table = [
        [*row, *(float(i == j) for j in range(count)), limit]
        for i, (row, limit) in enumerate(zip(rows, limits, strict=True))
    ]
    goal = [-1.0] + [0.0] * (width + count)
    basis = list(range(width, width + count))
    while True:
        enter = next((j for j, cost in enumerate(goal[:-1]) if cost < -_TINY), None)
        if enter is None:
            return goal[-1], goal[width:-1]
        ratios = [(row[-1] / row[enter], basis[i], i) for i, row in enumerate(table) if row[enter] > _TINY]
        if not ratios:
            raise BadWorkload("the mix can be held without limit; it requests nothing that takes memory")
        _, _, leave = min(ratios)
        basis[leave] = enter
        pivot = table[leave][enter]
        chosen = table[leave] = [value / pivot for value in table[leave]]
        for row in (*table, goal):
            factor = row[enter]
            if row is not chosen and factor:
                row[:] = [a - factor * b for a, b in zip(row, chosen, strict=True)]
