"""Several slices for one pod: all on one node, over as many of its GPUs as it takes, or none.

First as the policy would place them one after another, largest first. Where that gets stuck, every other way is
tried, so that a refusal is right.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from instaslice.geometry import Kinds, Model
from instaslice.placement.demands import Demand, GpuId, Grant, NodeName, Share, Want
from instaslice.placement.fleet import Fleet, Node
from instaslice.placement.grants import share_grant, spot_grant
from instaslice.placement.packing import Kind, kinds_on, pack
from instaslice.placement.policy import Policy

KINDS_OF_NODE: Final = 4096
"""Of which is remembered whether a set of profiles finds room there."""


def on_one_node(fleet: Fleet, policy: Policy, demand: Demand) -> tuple[Grant, ...] | None:
    """Grants for all wants, in their order, on the first node, in the policy's order, that can hold them all.

    Nodes whose GPUs are alike are tried once: a fleet has far fewer kinds of node than nodes.
    """
    needed = slices_needed(fleet, demand.wants)
    hopeless: set[Hashable] = set()
    order = sorted(range(len(demand.wants)), key=lambda i: _weight(fleet, demand.wants[i]), reverse=True)
    wants = [demand.wants[i] for i in order]
    for node in _nodes(fleet, policy, wants[0], demand):
        if node.free < needed:
            continue
        kinds = tuple(sorted((kind for _, kind in kinds_on(fleet, node)), key=repr))
        if kinds in hopeless:
            continue
        grants = _greedy(fleet.alone(node), policy, wants) or pack(fleet, node, wants)
        if grants is not None:
            return tuple(grants[order.index(i)] for i in range(len(order)))
        hopeless.add(kinds)
    return None


def could_hold(gpus: Iterable[Model], wants: Sequence[Want]) -> bool:
    """Whether a node with these GPUs could ever hold all of it at once: when nothing else is on them."""
    return _could_hold(frozenset(Counter(gpus).items()), tuple(sorted(wants, key=str)))


@lru_cache(maxsize=4096)
def _could_hold(gpus: frozenset[tuple[Model, int]], wants: tuple[Want, ...]) -> bool:
    node, empty = NodeName("empty"), Fleet()
    for model, count in gpus:
        for _ in range(count):
            empty.add_gpu(GpuId(str(len(empty))), node, model)
    return RoomFor(empty, wants).on(node)


class RoomFor:
    """Whether the GPUs of a node have room for a set of profiles, asked for node after node.

    Nodes whose GPUs are alike are packed once, and only where each profile alone would find room.
    """

    def __init__(self, fleet: Fleet, wants: Sequence[Want]) -> None:
        self._fleet = fleet
        self._wants = wants
        self._counts = Counter(wants)
        self._packed: dict[Hashable, bool] = {}

    def on(self, name: NodeName) -> bool:
        """Now, whatever else the node would say."""
        node = self._fleet.nodes.get(name)
        if node is None or node.free < slices_needed(self._fleet, self._wants):
            return False
        kinds = [kind for _, kind in kinds_on(self._fleet, node)]
        for want, count in self._counts.items():
            if isinstance(want, str) and sum(_most(kind, want) for kind in kinds) < count:
                return False
        if len(self._counts) == 1 and isinstance(self._wants[0], str):
            return True
        alike = frozenset(Counter(kinds).items())
        if alike not in self._packed:
            if len(self._packed) >= KINDS_OF_NODE:
                self._packed.clear()
            self._packed[alike] = pack(self._fleet, node, self._wants) is not None
        return self._packed[alike]


def _most(kind: Kind, profile: str) -> int:
    """How many slices of a profile one GPU of this kind could still take, if nothing else came."""
    of, state = kind
    index = None if isinstance(of, int) else of.profile(profile)
    return 0 if index is None or isinstance(of, int) else _most_more(of, index)[state]


@lru_cache(maxsize=1024)
def _most_more(kinds: Kinds, profile: int) -> list[int]:
    most = [0] * len(kinds)
    for kind in kinds.fullest_first:
        row = kinds.after[kind]
        most[kind] = max((1 + most[row[k]] for k in kinds.choices[profile][kind]), default=0)
    return most


def slices_needed(fleet: Fleet, wants: Sequence[Want]) -> int:
    """The least memory slices that these take, on whichever models have their profiles."""
    return sum(
        min((pool.model.profile(want).size for pool in fleet.pools if pool.model.has(want)), default=0)
        for want in wants
        if isinstance(want, str)
    )


def _weight(fleet: Fleet, want: Want) -> tuple[bool, float]:
    """Slices come before shares, large before small; the part of the GPU counts, for there are several models."""
    if isinstance(want, Share):
        return False, max((want.of(pool.memory_mib) / pool.memory_mib for pool in fleet.shared), default=0.0)
    parts = (pool.model.profile(want).size / max(pool.kinds.slices, 1) for pool in fleet.pools if pool.model.has(want))
    return True, max(parts, default=0.0)


def _nodes(fleet: Fleet, policy: Policy, hardest: Want, demand: Demand) -> Iterator[Node]:
    seen: set[str] = set()
    if isinstance(hardest, Share):
        gpus = (gpu for pool in fleet.shared for gpu in pool.fitting(hardest.of(pool.memory_mib)))
    else:
        gpus = (spot.gpu for spot in policy.spots(fleet, hardest, demand.admits, demand.prefers))
    for gpu in gpus:
        node = fleet.node_of[gpu]
        if node.name not in seen:
            seen.add(node.name)
            if demand.admits is None or demand.admits(node.name):
                yield node


def _greedy(alone: Fleet, policy: Policy, wants: Sequence[Want]) -> list[Grant] | None:
    grants = []
    for want in wants:
        if isinstance(want, Share):
            grant = share_grant(alone, want, None)
        else:
            spot = policy.first(alone, want)
            grant = None if spot is None else spot_grant(alone, spot)
        if grant is None:
            return None
        alone.take(grant)
        grants.append(grant)
    return grants
