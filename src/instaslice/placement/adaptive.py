"""The default policy: the table that does best on the demand it has seen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from instaslice.geometry import Kinds, Model
from instaslice.placement.fleet import Fleet
from instaslice.placement.policy import Regime
from instaslice.placement.portfolio import RECIPES, UNINFORMED, Forecast, best_recipe
from instaslice.placement.ranked_policies import ValueTablePolicy
from instaslice.placement.value_tables import Table, mix_of

_REMEMBERED: Final = 4000
_ENOUGH: Final = 32
"""Slices after which it is no coincidence that all were of one profile."""


class Adaptive(ValueTablePolicy):
    """Starts with a table that assumes nothing; `tune` chooses again by what has arrived.

    As long as only one profile arrives there is nothing to choose: no space is left for others, so GPUs are filled one
    after the other, and with them nodes. The remaining GPUs stay whole, and a burst is written to few nodes.

    Old arrivals weigh less: every 4000 slices the counts are halved. `asked` is what is known beforehand, in slices.
    """

    name = "adaptive"

    def __init__(self, asked: Mapping[str, float], random: Random) -> None:
        super().__init__(asked)
        self._random = random
        self._seen = sum(self._asked.values())
        self._mix = dict(self._asked)
        self._recipes: dict[Kinds, str] = {}
        self._single = False

    def arrived(self, profile: str) -> None:
        self._asked[profile] = self._asked.get(profile, 0.0) + 1
        self._seen += 1
        if self._seen > _REMEMBERED:
            self._seen /= 2
            self._asked = {name: count / 2 for name, count in self._asked.items()}
        single = len(self._asked) == 1 and self._seen >= _ENOUGH
        if single != self._single:
            self._single = single
            self.invalidate()

    def tuning(self, fleet: Fleet, regime: Regime = Regime.QUEUE, concurrent: float | None = None) -> "Rehearsals":
        mix = dict(self._asked)
        memory = sum(len(pool) * pool.kinds.slices for pool in fleet.pools)
        planned = []
        for pool in fleet.pools if mix else ():
            # Demand is expected on each kind of GPU in proportion to its memory.
            part = None if concurrent is None else concurrent * len(pool) * pool.kinds.slices / max(memory, 1)
            planned.append(Rehearsal(pool.model, pool.kinds, len(pool), Forecast(mix, regime, part)))
        random = Random()
        random.setstate(self._random.getstate())
        return Rehearsals(self, mix, tuple(planned), random)

    def adopt(self, mix: Mapping[str, float], recipes: Mapping[Kinds, str], random: Random) -> None:
        """Use this from now on."""
        self._mix, self._recipes, self._random = dict(mix), dict(recipes), random
        self.invalidate()

    def recipe(self, kinds: Kinds) -> str:
        """The name of the table in use for a geometry."""
        return self._recipes.get(kinds, UNINFORMED)

    def table(self, kinds: Kinds) -> Table:
        return RECIPES[self.recipe(kinds)](kinds, mix_of(kinds, self._asked if self._single else self._mix))


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A pool to choose a recipe for."""

    model: Model
    kinds: Kinds
    gpus: int
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class Rehearsals:
    """The tuning of an adaptive policy: the mix it has seen, and each pool of the fleet."""

    policy: Adaptive
    mix: Mapping[str, float]
    planned: tuple[Rehearsal, ...]
    random: Random

    def run(self) -> Callable[[], None]:
        recipes = {each.kinds: best_recipe(each.model, each.gpus, each.forecast, self.random) for each in self.planned}
        return lambda: self.policy.adopt(self.mix, recipes, self.random)
