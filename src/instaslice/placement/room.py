"""What room a fleet has left, by GPU model: for dashboards and alerts.

Costs as much as there are kinds of state in use and closed GPUs, whatever the size of the fleet. Pure.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from instaslice.placement.fleet import Fleet
from instaslice.placement.pools import Pool, bits


class MemoryState(StrEnum):
    """What a memory slice is good for."""

    ALLOCATED = "allocated"
    FREE = "free"
    """On an open GPU, where further slices can reach it."""
    UNUSABLE = "unusable"
    """Free on an open GPU, and out of reach of any further slices."""
    CLOSED = "closed"
    """Free on a closed GPU."""


@dataclass(frozen=True, slots=True)
class ModelRoom:
    """The GPUs of one geometry, in MIG mode."""

    model: str
    slice_gb: float
    """Of a memory slice, as the model is labelled."""
    gpus: Counter[str]
    """By why nothing is placed on them, the first reason; empty for open ones."""
    memory: dict[MemoryState, int]
    """In memory slices."""
    with_room: dict[str, int]
    """Profile → open GPUs on which one more fits."""
    held: dict[str, int]
    """Profile → slots that are taken."""
    largest: int
    """Memory slices of the largest profile that fits anywhere."""


def rooms(fleet: Fleet) -> list[ModelRoom]:
    """One for each geometry of the fleet."""
    closed: dict[Pool, list[tuple[str, int]]] = {}
    for pool, why, state in _closed(fleet):
        closed.setdefault(pool, []).append((why, pool.states.free[state]))
    return [_room(pool, closed.get(pool, [])) for pool in fleet.pools]


def _room(pool: Pool, closed: list[tuple[str, int]]) -> ModelRoom:
    kinds, fillable = pool.kinds, pool.kinds.fillable
    present = [(kind, pool.count(kind)) for kind in bits(pool.present)]
    free = sum(kinds.free[kind] * count for kind, count in present)
    usable = sum(fillable[kind] * count for kind, count in present)
    with_room = {
        profile.name: sum(count for kind, count in present if kinds.choices[p][kind])
        for p, profile in enumerate(kinds.profiles)
    }
    idle = sum(each for _, each in closed)
    total = kinds.slices * (len(pool) + len(closed))
    return ModelRoom(
        model=pool.model.name,
        slice_gb=pool.model.memory_gb / (kinds.slices or 1),
        gpus=Counter({"": len(pool)}) + Counter(why for why, _ in closed),
        memory={
            MemoryState.ALLOCATED: total - free - idle,
            MemoryState.FREE: usable,
            MemoryState.UNUSABLE: free - usable,
            MemoryState.CLOSED: idle,
        },
        with_room=with_room,
        held={name: count for name, count in pool.held.items() if count},
        largest=max((each.size for each in kinds.profiles if with_room[each.name]), default=0),
    )


def _closed(fleet: Fleet) -> Iterator[tuple[Pool, str, int]]:
    for number, state in fleet.closed():
        pool = fleet.pool_of[number]
        if isinstance(pool, Pool):
            yield pool, min(fleet.why_closed(fleet.names[number]), default=""), state
