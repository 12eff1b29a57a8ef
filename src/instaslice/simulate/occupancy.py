"""How many GPUs were in which state for how long: exact, and as small as the number of states.

Everything about occupancy (GPUs active, slices used, slices that no demand fits) follows from it afterwards.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from instaslice.geometry import States
from instaslice.placement import Fleet
from instaslice.placement.pools import Pool


class Levels(NamedTuple):
    """At one moment, or on average over a time: GPUs that hold anything, memory slices used, and what part of the
    free ones the average demand could not use (0 where nothing is free)."""

    active: float
    used: float
    fragmentation: float


class Occupancy:
    """Follows the state of every GPU of a fleet; the caller reports which may have changed.

    `asked` weighs the profiles in what counts as fragmentation.
    """

    def __init__(self, fleet: Fleet, asked: Mapping[str, float]) -> None:
        tables = {pool.states: _Table(pool.states, len(pool), asked) for pool in fleet.pools}
        self._tables = tuple(tables.values())
        self._table_of = [tables[pool.states] for pool in fleet.pool_of if isinstance(pool, Pool)]
        self._state = fleet.state  # also of a reserved GPU, which is closed
        self._seen = list(fleet.state_of)
        self._since = 0
        self.used = 0
        """Memory slices in use now."""

    def update(self, gpu: int, now: int) -> None:
        """A GPU, by number, may have changed at this time."""
        before, after = self._seen[gpu], self._state(gpu)
        if before == after:
            return
        self._seen[gpu] = after
        table = self._table_of[gpu]
        counts, area, since, used = table.counts, table.area, table.since, table.states.used
        area[before] += counts[before] * (now - since[before])
        area[after] += counts[after] * (now - since[after])
        since[before] = since[after] = now
        counts[before] -= 1
        counts[after] += 1
        table.present.add(after)
        if not counts[before]:
            table.present.discard(before)
        self.used += used[after] - used[before]

    def free(self, gpu: int) -> int:
        """Free memory slices of a GPU, by number."""
        return self._table_of[gpu].states.free[self._seen[gpu]]

    def restart(self, now: int) -> None:
        """Forget the time before: the warm-up is over."""
        self._since = now
        for table in self._tables:
            table.area = [0] * len(table.area)
            table.since = [now] * len(table.since)

    def average(self, now: int) -> Levels:
        """Over the time since the restart; the present where no time has passed."""
        span = now - self._since
        if span <= 0:
            return self.present()
        return _levels(
            (table, state, (area + count * (now - since)) / span)
            for table in self._tables
            for state, (area, count, since) in enumerate(zip(table.area, table.counts, table.since, strict=True))
            if area or count
        )

    def present(self) -> Levels:
        return _levels((table, s, table.counts[s]) for table in self._tables for s in sorted(table.present))


class _Table:
    """For each state of one geometry: GPUs in it now, GPU-milliseconds so far, until when those are counted, and what
    part of the demand could not use such a GPU. `present` are the states with a GPU: a few of hundreds."""

    __slots__ = ("area", "counts", "present", "since", "states", "unfit")

    def __init__(self, states: States, gpus: int, asked: Mapping[str, float]) -> None:
        self.states = states
        self.counts = [0] * len(states)
        self.counts[0] = gpus
        self.present = {0} if gpus else set()
        self.area = [0] * len(states)
        self.since = [0] * len(states)
        # Profiles that this geometry lacks are placed elsewhere; they say nothing about these GPUs.
        shares = [(p, asked[profile.name]) for p, profile in enumerate(states.profiles) if asked.get(profile.name)]
        total = sum(share for _, share in shares) or 1.0
        self.unfit = [
            sum(share for p, share in shares if not states.choices[p][state]) / total for state in range(len(states))
        ]


def _levels(gpus_in: Iterable[tuple[_Table, int, float]]) -> Levels:
    active = used = free = stranded = 0.0
    for table, state, gpus in gpus_in:
        active += gpus if state else 0.0
        used += gpus * table.states.used[state]
        unused = gpus * table.states.free[state]
        free += unused
        stranded += unused * table.unfit[state]
    return Levels(active, used, stranded / free if free else 0.0)
