"""Which GPUs to reserve for a pod that has waited too long: those where the fewest slices have to end first.

Pure: reads the fleet and changes nothing. designs/0006 says why one reservation at a time is enough.
"""

from collections.abc import Callable, Iterator, Sequence

from instaslice.placement.colocation import could_hold
from instaslice.placement.demands import GpuId, NodeName
from instaslice.placement.fleet import Fleet
from instaslice.placement.pools import Pool

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
        cheapest = min(_openings(fleet, profiles[0], eligible), default=None)
        gpus = [] if cheapest is None else [cheapest[2]]
    return tuple(fleet.names[gpu] for gpu in gpus)


def _openings(fleet: Fleet, profile: str, eligible: Eligible) -> Iterator[tuple[int, int, int]]:
    """For each legal placement on an open GPU: the slices in its way, their size, and the number of the GPU."""
    for node in fleet.nodes.values():
        for gpu in fleet.mig_gpus(node) if eligible(node.name) else ():
            pool = fleet.pool_of[gpu]
            assert isinstance(pool, Pool)
            if not pool.model.has(profile):
                continue
            held = fleet.held(fleet.names[gpu])
            for placement in pool.model.profile(profile).placements():
                in_the_way = [each.size for each in held if each.mask & placement.mask]
                yield len(in_the_way), sum(in_the_way), gpu
