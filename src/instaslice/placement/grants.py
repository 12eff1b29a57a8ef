"""From what a pool offers, in numbers, to a grant with names."""

from instaslice.placement.demands import Admits, Grant, Share
from instaslice.placement.fleet import Fleet
from instaslice.placement.pools import Pool


def grant_at(fleet: Fleet, gpu: int, placement: int) -> Grant:
    """The grant of a placement, by index, on a GPU, by number."""
    pool = fleet.pool_of[gpu]
    assert isinstance(pool, Pool)
    profile, start, size = pool.states.placements[placement]
    return Grant(fleet.node_of[gpu].name, fleet.names[gpu], profile, start, size)


def share_grant(fleet: Fleet, want: Share, admits: Admits | None) -> Grant | None:
    """Best fit over MiB: of the smallest GPUs that have room, the one with least to spare."""
    for pool in fleet.shared:
        mib = want.of(pool.memory_mib)
        for gpu in pool.fitting(mib):
            node = fleet.node_of[gpu].name
            if admits is None or admits(node):
                return Grant(node, fleet.names[gpu], want, 0, mib)
    return None
