"""Several slices for one pod: all on one node, over as many of its GPUs as it takes, or none.

First as the policy would place them one after another, largest first. Where that gets stuck, every other way is
tried, so that a refusal is right.
"""

from collections.abc import Hashable, Iterator, Sequence

from instaslice.geometry import States
from instaslice.placement.demands import Demand, Grant, Share, Want
from instaslice.placement.fleet import Fleet, Node
from instaslice.placement.grants import share_grant, spot_grant
from instaslice.placement.policy import Policy
from instaslice.placement.pools import SharedPool

_Kind = tuple[States, int] | tuple[int, int]
"""What matters of a GPU: its geometry and state, or its size and free MiB."""


def on_one_node(fleet: Fleet, policy: Policy, demand: Demand) -> tuple[Grant, ...] | None:
    """Grants for all wants, in their order, on the first node, in the policy's order, that can hold them all.

    Nodes whose GPUs are in the same states are tried once: a fleet has far fewer kinds of node than nodes.
    """
    hopeless: set[Hashable] = set()
    order = sorted(range(len(demand.wants)), key=lambda i: _weight(fleet, demand.wants[i]), reverse=True)
    wants = [demand.wants[i] for i in order]
    for node in _nodes(fleet, policy, wants[0], demand):
        kinds = tuple(sorted((kind for _, kind in _kinds(fleet, node)), key=repr))
        if kinds in hopeless:
            continue
        grants = _greedy(fleet.alone(node), policy, wants) or _exhaustive(fleet, node, wants)
        if grants is not None:
            return tuple(grants[order.index(i)] for i in range(len(order)))
        hopeless.add(kinds)
    return None


def _weight(fleet: Fleet, want: Want) -> tuple[bool, float]:
    """Slices come before shares, large before small; the part of the GPU counts, for there are several models."""
    if isinstance(want, Share):
        return False, max((want.of(pool.memory_mib) / pool.memory_mib for pool in fleet.shared), default=0.0)
    parts = (pool.model.profile(want).size / pool.states.slices for pool in fleet.pools if pool.model.has(want))
    return True, max(parts, default=0.0)


def _nodes(fleet: Fleet, policy: Policy, hardest: Want, demand: Demand) -> Iterator[Node]:
    seen: set[str] = set()
    if isinstance(hardest, Share):
        gpus = (gpu for pool in fleet.shared for gpu in pool.fitting(hardest.of(pool.memory_mib)))
    else:
        gpus = (spot.gpu for spot in policy.spots(fleet, hardest, demand.admits))
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


def _exhaustive(fleet: Fleet, node: Node, wants: Sequence[Want]) -> list[Grant] | None:
    """Every way, depth first; what cannot be finished from the same kinds of GPU is not tried twice."""
    gpus = _kinds(fleet, node)
    numbers = [number for number, _ in gpus]
    now = [kind for _, kind in gpus]
    stuck: set[Hashable] = set()
    chosen: list[Grant] = []

    def search(at: int) -> bool:
        if at == len(wants):
            return True
        here = (at, frozenset((kind, now.count(kind)) for kind in now))
        if here in stuck:
            return False
        tried: set[_Kind] = set()
        for i, kind in enumerate(now):
            if kind in tried:
                continue
            tried.add(kind)
            for after, start, size in _ways(kind, wants[at]):
                now[i] = after
                chosen.append(Grant(node.name, fleet.names[numbers[i]], wants[at], start, size))
                if search(at + 1):
                    return True
                chosen.pop()
                now[i] = kind
        stuck.add(here)
        return False

    return chosen if search(0) else None


def _kinds(fleet: Fleet, node: Node) -> list[tuple[int, _Kind]]:
    kinds: list[tuple[int, _Kind]] = []
    for number in node.gpus:
        pool = fleet.pool_of[number]
        if isinstance(pool, SharedPool):
            if fleet.is_open(number):
                kinds.append((number, (pool.memory_mib, pool.free(number))))
        elif fleet.is_open(number):
            kinds.append((number, (pool.states, fleet.state_of[number])))
    return kinds


def _ways(kind: _Kind, want: Want) -> Iterator[tuple[_Kind, int, int]]:
    """The kinds that taking one more slice leads to, each with the slice's start and size."""
    of, state = kind
    if isinstance(of, int):
        if isinstance(want, Share) and want.of(of) <= state:
            yield (of, state - want.of(of)), 0, want.of(of)
    elif isinstance(want, str):
        profile = of.profile(want)
        for k in () if profile is None else of.choices[profile][state]:
            yield (of, of.after[state][k]), of.placements[k].start, of.placements[k].size
