"""Policies that walk GPUs in a fixed order: what others do today, for comparison.

Like the originals, they take time in proportion to the nodes that they skip.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from random import Random

from instaslice.geometry import States
from instaslice.placement.demands import Admits, Prefers
from instaslice.placement.fleet import Fleet, FleetNode
from instaslice.placement.policy import Candidate, Policy
from instaslice.placement.pools import Pool, bits


class LowestStart(Policy):
    """On a GPU, the lowest legal start."""

    def placement(self, states: States, state: int, profile: str) -> int | None:
        p = states.profile(profile)
        choices = () if p is None else states.choices[p][state]
        return choices[0] if choices else None

    def on(self, fleet: Fleet, gpus: Iterable[int], profile: str) -> Iterator[Candidate]:
        """The candidates on these GPUs, in their order."""
        for gpu in gpus:
            state, pool = fleet.state_of[gpu], fleet.pool_of[gpu]
            if state >= 0 and isinstance(pool, Pool):
                k = self.placement(pool.states, state, profile)
                if k is not None:
                    yield Candidate(gpu, k)


class FirstFit(LowestStart):
    """InstaSlice until 2025: nodes by name, GPUs in order, the lowest legal start."""

    name = "first-fit"

    def first(
        self, fleet: Fleet, profile: str, admits: Admits | None = None, prefers: Prefers | None = None
    ) -> Candidate | None:
        if admits is not None:
            return next(self.candidates(fleet, profile, admits), None)
        found: Candidate | None = None
        for pool in fleet.pools:
            p = pool.kinds.profile(profile)
            if p is None:
                continue
            choices = pool.kinds.choices[p]
            for kind in bits(pool.present):
                if choices[kind]:
                    gpu = pool.lowest(kind)
                    if found is None or gpu < found.gpu:
                        found = Candidate(gpu, choices[kind][0])
        return found

    def candidates(
        self, fleet: Fleet, profile: str, admits: Admits | None = None, prefers: Prefers | None = None
    ) -> Iterator[Candidate]:
        for candidate in self.on(fleet, range(len(fleet.state_of)), profile):
            if admits is None or admits(fleet.node_of[candidate.gpu].name):
                yield candidate


class NodeFirst(LowestStart):
    """Choose a node, then the first GPU and the lowest legal start on it."""

    @abstractmethod
    def nodes(self, fleet: Fleet) -> Iterable[FleetNode]:
        """All nodes, in the order in which to try them."""

    def candidates(
        self, fleet: Fleet, profile: str, admits: Admits | None = None, prefers: Prefers | None = None
    ) -> Iterator[Candidate]:
        for node in self.nodes(fleet):
            if admits is None or admits(node.name):
                yield from self.on(fleet, node.gpus, profile)


class MostFreeNode(NodeFirst):
    """InstaSlice DAS (2026): the node with most free slices, then its first GPU and lowest start."""

    name = "das"

    def nodes(self, fleet: Fleet) -> Iterable[FleetNode]:
        return sorted(fleet.nodes.values(), key=lambda node: -node.free)


class DraFirstFit(NodeFirst):
    """NVIDIA's DRA driver under kube-scheduler: devices in name order, so the first GPU and the lowest start.

    The scheduler's other scores choose the node and know nothing of slices: a random one.
    """

    name = "dra"

    def __init__(self, random: Random) -> None:
        self._random = random

    def nodes(self, fleet: Fleet) -> Iterator[FleetNode]:
        # Lazily: mostly the first or second node decides.
        left = list(fleet.nodes.values())
        while left:
            at = self._random.randrange(len(left))
            left[at], left[-1] = left[-1], left[at]
            yield left.pop()
