"""Which nodes have the same GPUs to use: what an ask by memory could get is decided once for all of them.

A GPU that is closed does not count, unless it is only reserved for another pod. Updated only for nodes that changed.
"""

from collections import Counter

from instaslice.geometry import Model
from instaslice.placement.fleet import Fleet
from instaslice.placement.longest_waiting import RESERVED
from instaslice.placement.pools import Pool, bits

NodeModels = frozenset[tuple[Model, int]]
"""The models of a node's GPUs, and how many it has of each."""
_Pools = frozenset[tuple[Pool, int]]


class UsableModels:
    """The nodes of a fleet by the models of their usable GPUs."""

    def __init__(self, fleet: Fleet, with_closed: bool = False) -> None:
        """`with_closed`: closed GPUs count too, for a caller who explains why none of them is used."""
        self._fleet = fleet
        self._with_closed = with_closed
        self._changes = fleet.changes
        self._read = -1
        self._known = 0
        self._of: dict[int, _Pools] = {}
        self._masks: dict[_Pools, int] = {}
        self._models: dict[_Pools, NodeModels] = {}

    def nodes(self) -> list[tuple[NodeModels, int]]:
        """Models, and the nodes that have them as bits; without nodes that have none."""
        self._catch_up()
        return [(self._models[pools], mask) for pools, mask in self._masks.items()]

    def _catch_up(self) -> None:
        end, everywhere = self._changes.end, self._fleet.index.all
        if self._read == end:
            return
        changed = self._changes.since(self._read)
        self._read = end
        still_known = 0 if changed is None else self._known & ~changed & everywhere
        for bit in bits(self._known & ~still_known):
            self._forget(bit)
        for bit in bits(everywhere & ~still_known):
            self._add(bit)
        self._known = everywhere

    def _forget(self, bit: int) -> None:
        pools = self._of.pop(bit, None)
        if pools is None:
            return  # it had no GPU to use
        self._masks[pools] &= ~(1 << bit)
        if not self._masks[pools]:
            del self._masks[pools], self._models[pools]

    def _add(self, bit: int) -> None:
        found: Counter[Pool] = Counter()
        for gpu in self._fleet.nodes[self._fleet.index.name(bit)].gpus:
            pool = self._fleet.pool_of[gpu]
            if isinstance(pool, Pool) and (self._with_closed or self._open(gpu)):
                found[pool] += 1
        if found:
            pools = self._of[bit] = frozenset(found.items())
            self._masks[pools] = self._masks.get(pools, 0) | 1 << bit
            if pools not in self._models:
                self._models[pools] = frozenset((pool.model, count) for pool, count in found.items())

    def _open(self, gpu: int) -> bool:
        return self._fleet.why_closed(self._fleet.names[gpu]).keys() <= {RESERVED}
