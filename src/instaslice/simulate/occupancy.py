"""How many GPUs were in which state for how long: exact, and as small as the number of states.

Everything about occupancy (GPUs active, slices used, slices that nobody could use) follows from it afterwards.
"""

from collections.abc import Mapping
from typing import NamedTuple

from instaslice.geometry import States
from instaslice.placement import Fleet


class Levels(NamedTuple):
    """At one moment, or on average over a time: GPUs that hold anything, memory slices used, and what part of the
    free ones the average demand could not use (0 where nothing is free)."""

    active: float
    used: float
    fragmentation: float


class Occupancy:
    """Follows the state of every GPU of a fleet; told of each change, never looks."""

    def __init__(self, fleet: Fleet) -> None:
        self._tables = {pool.states: _Table(pool.states, len(pool)) for pool in fleet.pools}
        self._since = 0
        self.used = 0
        """Memory slices in use now."""

    def shift(self, states: States, before: int, after: int, now: int) -> None:
        """One GPU went from a state to another at this time."""
        self.used += states.used[after] - states.used[before]
        table = self._tables[states]
        counts, area, since = table.counts, table.area, table.since
        for state in (before, after):
            area[state] += counts[state] * (now - since[state])
            since[state] = now
        counts[before] -= 1
        counts[after] += 1

    def restart(self, now: int) -> None:
        """Forget the time before: the warm-up is over."""
        self._since = now
        for table in self._tables.values():
            table.area = [0] * len(table.area)
            table.since = [now] * len(table.since)

    def average(self, now: int, asked: Mapping[str, float]) -> Levels:
        """Over the time since the restart; `asked` weighs the profiles. The present where no time has passed."""
        span = now - self._since
        if span <= 0:
            return self.present(asked)
        areas = {
            states: [
                (area + count * (now - since)) / span
                for area, count, since in zip(table.area, table.counts, table.since, strict=True)
            ]
            for states, table in self._tables.items()
        }
        return _levels(areas, asked)

    def present(self, asked: Mapping[str, float]) -> Levels:
        return _levels({states: [float(c) for c in table.counts] for states, table in self._tables.items()}, asked)


class _Table:
    """For each state of one geometry: GPUs in it now, GPU-milliseconds so far, and until when those are counted."""

    __slots__ = ("area", "counts", "since")

    def __init__(self, states: States, gpus: int) -> None:
        self.counts = [0] * len(states)
        self.counts[0] = gpus
        self.area = [0] * len(states)
        self.since = [0] * len(states)


def _levels(gpus_in: Mapping[States, list[float]], asked: Mapping[str, float]) -> Levels:
    active = used = free = stranded = 0.0
    total = sum(asked.values()) or 1.0
    for states, gpus in gpus_in.items():
        weights = [asked.get(profile.name, 0.0) / total for profile in states.profiles]
        # What this geometry does not have at all can be used elsewhere; it says nothing about these GPUs.
        mine = sum(weights) or 1.0
        for state, count in enumerate(gpus):
            if not count:
                continue
            active += count if state else 0.0
            used += count * states.used[state]
            room = count * states.free[state]
            free += room
            if room:
                unfit = sum(w for p, w in enumerate(weights) if w and not states.choices[p][state])
                stranded += room * unfit / mine
    return Levels(active, used, stranded / free if free else 0.0)
