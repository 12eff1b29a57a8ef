"""The default policy: the table that does best on the demand it has seen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from instaslice.geometry import Kinds, Model
from instaslice.placement.fleet import Fleet
from instaslice.placement.policy import Regime
from instaslice.placement.pools import Pool
from instaslice.placement.portfolio import RECIPES, UNINFORMED, UNINFORMED_ALONE, Forecast, best_recipe
from instaslice.placement.ranked_policies import ValueTablePolicy
from instaslice.placement.scarcity import Scarcity
from instaslice.placement.value_tables import Table, expected, mix_of

_REMEMBERED: Final = 4000
_ENOUGH: Final = 32
"""Slices after which it is no coincidence that all were of one profile."""


class Adaptive(ValueTablePolicy):
    """Starts with a table that assumes equal shares of all profiles; `tune` chooses again by what has arrived.

    As long as only one profile arrives there is nothing to choose: no space is left for others, so GPUs are filled one
    after the other, and with them nodes. The remaining GPUs stay whole, and a burst is written to few nodes.

    Old arrivals weigh less: every 4000 slices the counts are halved. `asked` is what is known beforehand, in slices.
    """

    name = "adaptive"

    def __init__(self, asked: Mapping[str, float], random: Random) -> None:
        super().__init__(asked)
        self._random = random
        self._seen = sum(self._asked.values())
        self._learned = Learned()
        self._single = False
        """Whether only one profile has arrived, and often enough."""
        self._alone = False
        self._scarcity: Scarcity | None = None
        self._scarcity_of: list[tuple[Pool, int]] = []
        """The pools that it was worked out for, with their numbers of GPUs."""

    @property
    def asked(self) -> Mapping[str, float]:
        return self._asked

    def recall(self, asked: Mapping[str, float]) -> None:
        self._asked = dict(asked)
        self._seen = sum(self._asked.values())
        self._forget()

    def arrived(self, profile: str) -> None:
        self._asked[profile] = self._asked.get(profile, 0.0) + 1
        self._seen += 1
        self._forget()

    def _forget(self) -> None:
        while self._seen > _REMEMBERED:
            # A name that came once is forgotten: anyone may ask for profiles that do not exist, each time another.
            self._asked = {name: count / 2 for name, count in self._asked.items() if count > 1}
            self._seen = sum(self._asked.values())
        single = len(self._asked) == 1 and self._seen >= _ENOUGH
        if single != self._single:
            self._single = single
            self.invalidate()

    def pools(self, fleet: Fleet, profile: str) -> Sequence[Pool]:
        if fleet.partial:
            return fleet.pools
        alone = len(fleet) == 1
        if alone is not self._alone:
            self._alone = alone
            self.invalidate()
        if len(fleet.pools) == 1:
            return fleet.pools
        # Also while only one profile arrives: what other profiles alone could use is not to be filled with it.
        return self._scarce(fleet).order(fleet.pools, profile)

    def _scarce(self, fleet: Fleet) -> Scarcity:
        sizes = [(pool, len(pool)) for pool in fleet.pools]
        if self._scarcity is None or sizes != self._scarcity_of:
            belief = expected((pool.kinds for pool in fleet.pools), self._learned.asked)
            self._scarcity, self._scarcity_of = Scarcity(fleet.pools, belief), sizes
        return self._scarcity

    def tuning(self, fleet: Fleet, regime: Regime = Regime.QUEUE, concurrent: float | None = None) -> "Rehearsals":
        asked = dict(self._asked)
        planned = []
        if asked:
            belief = expected((pool.kinds for pool in fleet.pools), asked)
            scarcity = Scarcity(fleet.pools, belief)
            for f, family in enumerate(scarcity.families):
                mix = {profile: parts[f] for profile, parts in scarcity.divided.items() if f in parts}
                share = sum(mix.values()) / sum(belief.values())
                for pool in (fleet.pools[number] for number in family.pools):
                    part = None if concurrent is None else concurrent * share * len(pool) / family.gpus
                    forecast = Forecast(mix, regime, part)
                    planned.append(Rehearsal(pool.model, pool.kinds, len(pool), forecast, self.recipe(pool.kinds)))
        random = Random()
        random.setstate(self._random.getstate())
        return Rehearsals(self, asked, tuple(planned), random)

    def adopt(self, learned: "Learned", random: Random) -> None:
        """Use this from now on."""
        self._learned, self._random = learned, random
        self.invalidate()

    def invalidate(self) -> None:
        super().invalidate()
        self._scarcity = None

    def recipe(self, kinds: Kinds) -> str:
        """The name of the table in use for a geometry."""
        found = self._learned.recipes.get(kinds)
        return found or (UNINFORMED_ALONE if self._alone else UNINFORMED)

    def table(self, kinds: Kinds) -> Table:
        mix = self._asked if self._single else self._learned.mixes.get(kinds, {})
        return RECIPES[self.recipe(kinds)](kinds, mix_of(kinds, mix))


@dataclass(frozen=True, slots=True)
class Learned:
    """What tuning found: the demand that it knew, and for each geometry its part of the demand and the best table."""

    asked: Mapping[str, float] = field(default_factory=dict)
    mixes: Mapping[Kinds, Mapping[str, float]] = field(default_factory=dict)
    recipes: Mapping[Kinds, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A pool to choose a recipe for, and the one that it uses now."""

    model: Model
    kinds: Kinds
    gpus: int
    forecast: Forecast
    now: str


@dataclass(frozen=True, slots=True)
class Rehearsals:
    """The tuning of an adaptive policy: the demand it has seen, and each pool of the fleet."""

    policy: Adaptive
    asked: Mapping[str, float]
    planned: tuple[Rehearsal, ...]
    random: Random

    def run(self) -> Callable[[], None]:
        recipes = {
            each.kinds: best_recipe(each.model, each.gpus, each.forecast, self.random, each.now)
            for each in self.planned
        }
        learned = Learned(self.asked, {each.kinds: each.forecast.asked for each in self.planned}, recipes)
        return lambda: self.policy.adopt(learned, self.random)
