"""The ranked policies by what their table says: best fit, spread, FGD, the dynamic program."""

from collections.abc import Callable, Mapping, Sequence

from instaslice.geometry import Kinds
from instaslice.placement.ranked import RankedPolicy, Ranking
from instaslice.placement.values import Table, fragmentation, fullness, future, mix_of, nvidia_order, plus

MakeTable = Callable[[Kinds, Sequence[float]], Table]
"""From the kinds of state and the mix of demand to the worth of each."""


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


class Valued(RankedPolicy):
    """Where the worth of the GPU's state falls least, or rises most. `asked` weighs profiles by name."""

    def __init__(self, make: MakeTable, asked: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self._make = make
        self._asked = dict(asked or {})
        self._tables: dict[Kinds, Table] = {}

    def rank(self, kinds: Kinds, profile: int) -> Ranking:
        worth = self._tables.get(kinds)
        if worth is None:
            worth = self._tables[kinds] = self._make(kinds, mix_of(kinds, self._asked))
        order = nvidia_order(kinds.profiles[profile])
        return Ranking(kinds, profile, lambda s, t: worth[t] - worth[s], order)

    def forget(self) -> None:
        super().forget()
        self._tables.clear()


class Fgd(Valued):
    """Fragmentation gradient descent (ATC 2023) adapted to MIG."""

    name = "fgd"

    def __init__(self, asked: Mapping[str, float] | None = None) -> None:
        super().__init__(fragmentation, asked)


class Foresight(Valued):
    """The dynamic program over what comes next, with a little weight on filling GPUs up."""

    name = "dp"

    def __init__(self, asked: Mapping[str, float] | None = None, patience: float = 0.7, fill: float = 0.3) -> None:
        super().__init__(lambda s, mix: plus(future(s, mix, patience), fullness(s, fill)), asked)
