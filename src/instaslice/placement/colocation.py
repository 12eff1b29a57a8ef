"""Several slices for one pod: all on one node, over as many of its GPUs as it takes, or none.

First in the way the policy would place them one after another, largest first. If that gets stuck, every other way is
tried, so that a refusal is exact.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from instaslice.geometry import Model
from instaslice.placement.demands import Demand, GpuId, Grant, NodeName, Share, Want
from instaslice.placement.fleet import Fleet, FleetNode
from instaslice.placement.grants import grant_at, share_grant
from instaslice.placement.packing import GpuKind, gpu_kinds, pack
from instaslice.placement.policy import Policy

KINDS_OF_NODE: Final = 4096
"""How many a NodeFit remembers."""


def on_one_node(fleet: Fleet, policy: Policy, demand: Demand) -> tuple[Grant, ...] | None:
    """Grants for all wants, in their order, on the first node, in the policy's order, that can hold them all.

    Nodes with equal GPUs are tried once: a fleet has far fewer kinds of node than nodes.
    """
    needed = slices_needed(fleet, demand.wants)
    hopeless: set[Hashable] = set()
    order = sorted(range(len(demand.wants)), key=lambda i: _weight(fleet, demand.wants[i]), reverse=True)
    wants = [demand.wants[i] for i in order]
    for node in _nodes(fleet, policy, wants[0], demand):
        if node.free < needed:
            continue
        kinds = tuple(sorted((kind for _, kind in gpu_kinds(fleet, node)), key=repr))
        if kinds in hopeless:
            continue
        grants = _greedy(fleet.copy_of(node), policy, wants) or pack(fleet, node, wants)
        if grants is not None:
            return tuple(grants[order.index(i)] for i in range(len(order)))
        hopeless.add(kinds)
    return None


def could_hold(gpus: Iterable[Model], wants: Sequence[Want]) -> bool:
    """Whether a node with these GPUs could ever hold all of it at once: when nothing else is on them."""
    return node_could_hold(frozenset(Counter(gpus).items()), wants)


def node_could_hold(gpus: frozenset[tuple[Model, int]], wants: Sequence[Want]) -> bool:
    """The same, for a node that has so many GPUs of each model."""
    return _could_hold(gpus, tuple(sorted(wants, key=str)))


@lru_cache(maxsize=4096)
def _could_hold(gpus: frozenset[tuple[Model, int]], wants: tuple[Want, ...]) -> bool:
    node, empty = NodeName("empty"), Fleet()
    for model, count in gpus:
        for _ in range(count):
            empty.add_gpu(GpuId(str(len(empty))), node, model)
    return NodeFit(empty, wants).on(node)


class NodeFit:
    """Whether a set of profiles fits on the GPUs of a node, for one node after another.

    Nodes with equal GPUs are packed once, and only if each profile alone would fit.
    """

    def __init__(self, fleet: Fleet, wants: Sequence[Want]) -> None:
        self._fleet = fleet
        self._wants = wants
        self._counts = Counter(wants)
        self._packed: dict[Hashable, bool] = {}

    def on(self, name: NodeName) -> bool:
        """Whether it fits now. Looks at GPUs only, not at whether the node admits the pod."""
        node = self._fleet.nodes.get(name)
        if node is None or node.free < slices_needed(self._fleet, self._wants):
            return False
        kinds = [kind for _, kind in gpu_kinds(self._fleet, node)]
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


def _most(kind: GpuKind, profile: str) -> int:
    """How many slices of a profile one GPU of this kind can still take."""
    of, state = kind
    index = None if isinstance(of, int) else of.profile(profile)
    return 0 if index is None or isinstance(of, int) else of.most(index)[state]


def slices_needed(fleet: Fleet, wants: Sequence[Want]) -> int:
    """The fewest memory slices that these take, on any of the models that have their profiles."""
    return sum(
        min((pool.model.profile(want).size for pool in fleet.pools if pool.model.has(want)), default=0)
        for want in wants
        if isinstance(want, str)
    )


def _weight(fleet: Fleet, want: Want) -> tuple[bool, float]:
    """Slices come before shares, large before small; sizes are parts of a GPU, since there are several models."""
    if isinstance(want, Share):
        return False, max((want.of(pool.memory_mib) / pool.memory_mib for pool in fleet.shared), default=0.0)
    parts = (pool.model.profile(want).size / max(pool.kinds.slices, 1) for pool in fleet.pools if pool.model.has(want))
    return True, max(parts, default=0.0)


def _nodes(fleet: Fleet, policy: Policy, hardest: Want, demand: Demand) -> Iterator[FleetNode]:
    seen: set[str] = set()
    if isinstance(hardest, Share):
        gpus = (gpu for pool in fleet.shared for gpu in pool.fitting(hardest.of(pool.memory_mib)))
    else:
        gpus = (candidate.gpu for candidate in policy.candidates(fleet, hardest, demand.admits, demand.prefers))
    for gpu in gpus:
        node = fleet.node_of[gpu]
        if node.name not in seen:
            seen.add(node.name)
            if demand.admits is None or demand.admits(node.name):
                yield node


def _greedy(node: Fleet, policy: Policy, wants: Sequence[Want]) -> list[Grant] | None:
    grants = []
    for want in wants:
        if isinstance(want, Share):
            grant = share_grant(node, want, None)
        else:
            candidate = policy.first(node, want)
            grant = None if candidate is None else grant_at(node, *candidate)
        if grant is None:
            return None
        node.take(grant)
        grants.append(grant)
    return grants
