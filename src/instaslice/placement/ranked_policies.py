"""The ranked policies that differ only in their table: best fit, spread, FGD, the dynamic program."""

from abc import abstractmethod
from collections.abc import Mapping

from instaslice.geometry import Kinds
from instaslice.placement.ranked import RankedPolicy, Ranking, by_worth
from instaslice.placement.value_tables import Table, fragmentation, fullness, future, mix_of, nvidia_order, plus


class Spread(RankedPolicy):
    """The GPU with most free slices, the lowest start: what a balancing scheduler would do."""

    name = "spread"

    def rank(self, kinds: Kinds, profile: int) -> Ranking:
        return Ranking(kinds, profile, lambda s, _: kinds.free[s])


class BestFit(RankedPolicy):
    """The GPU with fewest free slices that fits, the start that NVIDIA's driver would prefer."""

    name = "best-fit"

    def rank(self, kinds: Kinds, profile: int) -> Ranking:
        order = nvidia_order(kinds.profiles[profile])
        return Ranking(kinds, profile, lambda s, _: -kinds.free[s], order)


class ValueTablePolicy(RankedPolicy):
    """Where the worth of the GPU's state falls least, or rises most. `asked` weighs profiles by name."""

    def __init__(self, asked: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self._asked = dict(asked or {})
        self._tables: dict[Kinds, Table] = {}

    @abstractmethod
    def table(self, kinds: Kinds) -> Table:
        """What each kind is worth; called once for each geometry until `invalidate`."""

    def rank(self, kinds: Kinds, profile: int) -> Ranking:
        if kinds not in self._tables:
            self._tables[kinds] = self.table(kinds)
        return by_worth(kinds, profile, self._tables[kinds])

    def invalidate(self) -> None:
        super().invalidate()
        self._tables.clear()


class Fgd(ValueTablePolicy):
    """Fragmentation gradient descent (ATC 2023) adapted to MIG."""

    name = "fgd"

    def table(self, kinds: Kinds) -> Table:
        return fragmentation(kinds, mix_of(kinds, self._asked))


class Foresight(ValueTablePolicy):
    """The dynamic program over what comes next, with a little weight on filling GPUs up."""

    name = "dp"

    def table(self, kinds: Kinds) -> Table:
        return plus(future(kinds, mix_of(kinds, self._asked), patience=0.7), fullness(kinds, 0.3))
