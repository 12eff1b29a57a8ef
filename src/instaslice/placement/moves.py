"""Which running slices to move so that a refused one finds room.

A move ends a slice and makes it anew elsewhere, so it costs somebody a restart: as few as possible, and only slices
that their owner marked as movable. This room only finds the moves; whether to make them is for the controller.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from instaslice.geometry import States
from instaslice.placement.demands import Admits, Demand, Grant, Plan
from instaslice.placement.fleet import Fleet
from instaslice.placement.grants import grant_at, spot_grant
from instaslice.placement.policy import Policy
from instaslice.placement.pools import Pool

Movable = Callable[[Grant], bool]
Lands = Callable[[Grant], Admits]
"""Where a movable slice may go: what its own pod's constraints admit."""


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
    """Placements that, once out of a state, leave a legal start for a profile; fewest first, then least memory."""

    slices: int
    size: int
    placements: tuple[int, ...]


def find(
    fleet: Fleet, policy: Policy, demand: Demand, movable: Movable, lands: Lands | None = None, most: int = 2
) -> Rearrangement | None:
    """The fewest slices, at most `most`, whose moving makes room for a refused demand; None where that is not enough.

    Of as few, those that hold least memory. Without `lands` a slice may go anywhere. For demands of one slice; a
    demand of several, or of a share, gets None. The fleet is as before when this returns.
    """
    if len(demand.wants) != 1 or not isinstance(demand.wants[0], str):
        return None
    profile = demand.wants[0]
    for gpus, opening in _openings(fleet, profile, most):
        for gpu in gpus:
            node = fleet.node_of[gpu].name
            old = [grant_at(fleet, gpu, k) for k in opening.placements]
            if (demand.admits is not None and not demand.admits(node)) or not all(map(movable, old)):
                continue
            found = _try(fleet, policy, profile, gpu, old, lands)
            if found is not None:
                return found
            if lands is None:
                break  # GPUs of the same state are alike: what did not work for this one will not for the next
    return None


def _openings(fleet: Fleet, profile: str, most: int) -> list[tuple[list[int], _Opening]]:
    """What could be moved off which GPUs, least first."""
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


def _try(
    fleet: Fleet, policy: Policy, profile: str, gpu: int, old: list[Grant], lands: Lands | None
) -> Rearrangement | None:
    """Free the old slots, take the wanted one, and let the policy place the old slices again; then put all back."""
    taken: list[Grant] = []
    for grant in old:
        fleet.give_back(grant)
    try:
        pool = fleet.pool_of[gpu]
        assert isinstance(pool, Pool)
        k = policy.placement(pool.states, fleet.state_of[gpu], profile)
        assert k is not None, "an opening leaves a legal start"
        wanted = grant_at(fleet, gpu, k)
        fleet.take(wanted)
        taken.append(wanted)
        moves = []
        for grant in sorted(old, key=lambda g: -g.size):
            assert isinstance(grant.want, str)
            to = policy.first(fleet, grant.want, lands(grant) if lands is not None else None)
            if to is None:
                return None
            new = spot_grant(fleet, to)
            fleet.take(new)
            taken.append(new)
            moves.append(Move(grant, new))
        return Rearrangement(tuple(moves), Plan((wanted,)))
    finally:
        for grant in taken:
            fleet.give_back(grant)
        for grant in old:
            fleet.take(grant)
