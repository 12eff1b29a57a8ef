"""Policies that walk GPUs in a fixed order: what others do today, kept to compare with.

They cost time in proportion to the nodes they pass over, as the originals do.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from random import Random

from instaslice.placement.demands import Admits
from instaslice.placement.fleet import Fleet, Node
from instaslice.placement.policy import Policy, Spot
from instaslice.placement.pools import Pool, bits


class FirstFit(Policy):
    """InstaSlice until 2025: nodes by name, GPUs in order, the lowest legal start."""

    name = "first-fit"

    def first(self, fleet: Fleet, profile: str, admits: Admits | None = None) -> Spot | None:
        if admits is not None:
            return next(self.spots(fleet, profile, admits), None)
        found: Spot | None = None
        for pool in fleet.pools:
            p = pool.states.profile(profile)
            if p is None:
                continue
            choices = pool.states.choices[p]
            for state in bits(pool.present):
                if choices[state]:
                    gpu = pool.lowest(state)
                    if found is None or gpu < found.gpu:
                        found = Spot(gpu, choices[state][0])
        return found

    def spots(self, fleet: Fleet, profile: str, admits: Admits | None = None) -> Iterator[Spot]:
        for node in fleet.nodes.values():
            if admits is None or admits(node.name):
                yield from _in_order(fleet, node, profile)


class _NodeFirst(Policy):
    """Choose a node, then the first GPU and the lowest legal start on it."""

    @abstractmethod
    def nodes(self, fleet: Fleet) -> Iterable[Node]:
        """All nodes, the one to try first in front."""

    def spots(self, fleet: Fleet, profile: str, admits: Admits | None = None) -> Iterator[Spot]:
        for node in self.nodes(fleet):
            if admits is None or admits(node.name):
                yield from _in_order(fleet, node, profile)


class MostFreeNode(_NodeFirst):
    """InstaSlice DAS (2026): the node with most free slices, then its first GPU and lowest start."""

    name = "das"

    def nodes(self, fleet: Fleet) -> Iterable[Node]:
        return sorted(fleet.nodes.values(), key=lambda node: -node.free)


class DraFirstFit(_NodeFirst):
    """NVIDIA's DRA driver under kube-scheduler: devices in name order, so the first GPU and the lowest start.

    The node is whatever the scheduler's other scores say, which know nothing of slices: any, by `random`.
    """

    name = "dra"

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random(0)

    def nodes(self, fleet: Fleet) -> Iterator[Node]:
        # A node at a time: most decisions are made by the first one or two.
        left = list(fleet.nodes.values())
        while left:
            at = self._random.randrange(len(left))
            left[at], left[-1] = left[-1], left[at]
            yield left.pop()


def _in_order(fleet: Fleet, node: Node, profile: str) -> Iterator[Spot]:
    for gpu in fleet.mig_gpus(node):
        pool = fleet.pool_of[gpu]
        assert isinstance(pool, Pool)
        p = pool.states.profile(profile)
        choices = () if p is None else pool.states.choices[p][fleet.state_of[gpu]]
        if choices:
            yield Spot(gpu, choices[0])
