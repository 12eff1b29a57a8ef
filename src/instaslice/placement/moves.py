"""Which running slices to move so that a refused demand fits.

A move deletes a slice and creates it again elsewhere, so it costs a pod a restart: as few as possible, and only slices
that their owner marked as movable. This module only finds the moves; the caller decides whether to make them.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import combinations, islice
from typing import Final, NamedTuple

from instaslice.geometry import States
from instaslice.placement.colocation import on_one_node, slices_needed
from instaslice.placement.demands import Demand, Grant, Plan, Share
from instaslice.placement.fleet import Fleet, FleetNode
from instaslice.placement.grants import grant_at
from instaslice.placement.policy import Policy
from instaslice.placement.pools import Pool

SETS_TRIED: Final = 500
"""Each takes some tenths of a millisecond, and a large fleet has too many sets of two slices to try them all."""

Movable = Callable[[Grant], bool]
Ways = Callable[[], Iterator[tuple[Grant, ...]]]
"""How a demand can be held, best first."""


class Move(NamedTuple):
    """A slice and where it goes."""

    old: Grant
    new: Grant


class Rearrangement(NamedTuple):
    """Moves and the plan that they make room for. All old slots are freed before any new one is taken: a new slot
    may overlap an old one."""

    moves: tuple[Move, ...]
    plan: Plan


class _Opening(NamedTuple):
    """Placements whose removal from a state leaves a legal start for a profile; fewest first, then least memory."""

    slices: int
    size: int
    placements: tuple[int, ...]


def find(fleet: Fleet, policy: Policy, demand: Demand, movable: Movable, most: int = 2) -> Rearrangement | None:
    """The fewest slices, at most `most`, whose moving makes room for a refused demand; None where that is not enough.

    Of as few, those that hold least memory. A moved slice may go anywhere. Shares are neither moved nor made room for.
    The fleet is unchanged when this returns. Exact for one slice and one move; beyond that the moved slices are placed
    one after another, and for a demand of several slices at most SETS_TRIED sets are tried.
    """
    if any(isinstance(want, Share) for want in demand.wants):
        return None
    attempts = _for_one if len(demand.wants) == 1 else _for_several
    for old, ways in attempts(fleet, policy, demand, movable, most):
        found = _try(fleet, policy, old, ways)
        if found is not None:
            return found
    return None


def _for_one(
    fleet: Fleet, policy: Policy, demand: Demand, movable: Movable, most: int
) -> Iterator[tuple[list[Grant], Ways]]:
    profile = str(demand.wants[0])

    def ways(gpu: int) -> Iterator[tuple[Grant, ...]]:
        pool = fleet.pool_of[gpu]
        assert isinstance(pool, Pool)
        p, state = pool.states.profile(profile), fleet.state_of[gpu]
        assert p is not None, "an opening is on a GPU that has the profile"
        best = policy.placement(pool.states, state, profile)
        for k in sorted(pool.states.choices[p][state], key=lambda k: k != best):
            yield (grant_at(fleet, gpu, k),)

    for gpus, opening in _openings(fleet, profile, most):
        for gpu in gpus:
            old = [grant_at(fleet, gpu, k) for k in opening.placements]
            if _admitted(demand, fleet.node_of[gpu]) and all(map(movable, old)):
                yield old, partial(ways, gpu)
                break  # GPUs in the same state are equal: what fails on this one fails on the next


def _for_several(
    fleet: Fleet, policy: Policy, demand: Demand, movable: Movable, most: int
) -> Iterator[tuple[list[Grant], Ways]]:
    def ways(node: FleetNode) -> Iterator[tuple[Grant, ...]]:
        grants = on_one_node(fleet.copy_of(node), policy, Demand(demand.wants))
        if grants is not None:
            yield grants

    for node, old in islice(_sets(fleet, demand, movable, most), SETS_TRIED):
        yield old, partial(ways, node)


def _sets(fleet: Fleet, demand: Demand, movable: Movable, most: int) -> Iterator[tuple[FleetNode, list[Grant]]]:
    """Movable slices of one node, fewest first, that hold enough memory for what the node lacks."""
    needed = slices_needed(fleet, demand.wants)
    for count in range(1, most + 1):
        for node in fleet.nodes.values():
            if not _admitted(demand, node):
                continue
            running = [grant for gpu in fleet.mig_gpus(node) for grant in _running(fleet, gpu) if movable(grant)]
            if node.free + sum(sorted((grant.size for grant in running), reverse=True)[:count]) < needed:
                continue
            for old in sorted(combinations(running, count), key=lambda each: sum(grant.size for grant in each)):
                if node.free + sum(grant.size for grant in old) >= needed:
                    yield node, list(old)


def _running(fleet: Fleet, gpu: int) -> list[Grant]:
    pool = fleet.pool_of[gpu]
    assert isinstance(pool, Pool)
    return [grant_at(fleet, gpu, k) for k in pool.states.layouts[fleet.state_of[gpu]]]


def _admitted(demand: Demand, node: FleetNode) -> bool:
    return demand.admits is None or demand.admits(node.name)


def _openings(fleet: Fleet, profile: str, most: int) -> list[tuple[list[int], _Opening]]:
    """What could be moved off which GPUs, cheapest first."""
    found = []
    for pool in fleet.pools:
        p = pool.states.profile(profile)
        if p is None:
            continue
        for state, gpus in pool.by_state().items():
            found += [(gpus, opening) for opening in _state_openings(pool.states, p, state, most)]
    found.sort(key=lambda each: each[1][:2])
    return found


@lru_cache(maxsize=1 << 16)
def _state_openings(states: States, p: int, state: int, most: int) -> tuple[_Opening, ...]:
    layout = states.layouts[state]
    found: list[_Opening] = []
    for count in range(1, min(most, len(layout)) + 1):
        for out in combinations(layout, count):
            without = states.state(k for k in layout if k not in out)
            if not states.choices[p][without] or any(set(smaller.placements) <= set(out) for smaller in found):
                continue
            found.append(_Opening(count, sum(states.placements[k].size for k in out), out))
    return tuple(found)


def _try(fleet: Fleet, policy: Policy, old: list[Grant], ways: Ways) -> Rearrangement | None:
    """Free the old slots and take the demand in one of its `ways`, so that the old slices fit elsewhere; then restore
    everything."""
    for grant in old:
        fleet.release(grant)
    try:
        for grants in list(ways()):
            moves = _relocate(fleet, policy, old, grants)
            if moves is not None:
                return Rearrangement(moves, Plan(grants))
        return None
    finally:
        for grant in old:
            fleet.take(grant)


def _relocate(fleet: Fleet, policy: Policy, old: list[Grant], grants: tuple[Grant, ...]) -> tuple[Move, ...] | None:
    """Where the old slices go, the largest first, once the grants are taken; None if one fits nowhere."""
    taken: list[Grant] = []
    moves: list[Move] = []
    try:
        for grant in grants:
            fleet.take(grant)
            taken.append(grant)
        for grant in sorted(old, key=lambda each: -each.size):
            to = policy.first(fleet, str(grant.want))
            if to is None:
                return None
            new = grant_at(fleet, *to)
            fleet.take(new)
            taken.append(new)
            moves.append(Move(grant, new))
        return tuple(moves)
    finally:
        for grant in taken:
            fleet.release(grant)
