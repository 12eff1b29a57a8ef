"""Which GPUs to reserve for a pod that has waited too long: those where the fewest slices have to end first.

Pure: reads the fleet and changes nothing. designs/0006 says why one reservation at a time is enough.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from instaslice.geometry import States
from instaslice.placement.colocation import could_hold
from instaslice.placement.demands import GpuId, NodeName
from instaslice.placement.fleet import Fleet
from instaslice.placement.pools import Pool, SharedPool

Eligible = Callable[[NodeName], bool]
"""Whether a node would admit the pod if nothing ran there."""


def gpus_to_reserve(fleet: Fleet, profiles: Sequence[str], eligible: Eligible, whole_node: bool) -> tuple[GpuId, ...]:
    """One GPU for one slice; all GPUs of a node for several slices, or for a `whole_node` where CPU or memory is short.

    Empty if no eligible node could ever hold the slices.
    """
    if whole_node or len(profiles) > 1:
        nodes = [node for node in fleet.nodes.values() if eligible(node.name)]
        fitting = [node.gpus for node in nodes if could_hold(fleet.open_models(node.name), profiles)]
        gpus = min(fitting, key=lambda each: sum(len(fleet.held(fleet.names[gpu])) for gpu in each), default=[])
    else:
        gpus = list(islice(_openings(fleet, profiles[0], eligible), 1))
    return tuple(fleet.names[gpu] for gpu in gpus)


def _openings(fleet: Fleet, profile: str, eligible: Eligible) -> Iterator[int]:
    """Open GPUs by how few slices are in the way of the profile, then by how small those are, then by number.

    GPUs in the same state are equal: costs are worked out for states, and ten thousand GPUs take a millisecond.
    """
    cost_of: dict[tuple[Pool | SharedPool, int], tuple[int, int]] = {}
    for pool, state in set(zip(fleet.pool_of, fleet.state_of, strict=True)):
        if state >= 0 and isinstance(pool, Pool) and pool.model.has(profile):
            cost = _in_the_way(pool.states, state, profile)
            if cost is not None:
                cost_of[pool, state] = cost
    asked: dict[NodeName, bool] = {}
    for cost in sorted(set(cost_of.values())):
        for gpu, kind in enumerate(zip(fleet.pool_of, fleet.state_of, strict=True)):
            if cost_of.get(kind) != cost:
                continue
            node = fleet.node_of[gpu].name
            if node not in asked:
                asked[node] = eligible(node)
            if asked[node]:
                yield gpu


@lru_cache(maxsize=1 << 16)
def _in_the_way(states: States, state: int, profile: str) -> tuple[int, int] | None:
    """Slices that have to end, and their size, where that is least; None where the profile has no legal start."""
    held = states.held(state)
    p = states.profile(profile)
    placements = () if p is None else states.profiles[p].placements()
    ways = ([each.size for each in held if each.mask & placement.mask] for placement in placements)
    return min(((len(sizes), sum(sizes)) for sizes in ways), default=None)
