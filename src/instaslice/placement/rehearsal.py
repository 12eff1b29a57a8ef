"""A small model of a fleet to try a table on before it is used: one geometry, plain integers, no names.

The three regimes are what clusters do with slices that do not fit. *Loss*: they go elsewhere. *Queue*: they wait, first
come first served, and smaller ones may pass. *Fill*: nothing ever ends. Arrivals are drawn beforehand, so that tables
are compared on the same ones.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Final, NamedTuple

from instaslice.geometry import Model
from instaslice.placement.policy import Candidate
from instaslice.placement.pools import Pool
from instaslice.placement.ranked import Ranking, best_candidate

NEVER: Final = float("inf")


class Arrival(NamedTuple):
    """One slice: when it arrives, how long it lives, and the index of its profile."""

    at: float
    life: float
    profile: int


def poisson_arrivals(mix: Sequence[float], rate: float, count: int, random: Random) -> list[Arrival]:
    """Poisson arrivals, exponential lives of mean 1."""
    picked = random.choices(range(len(mix)), mix, k=count)
    now = 0.0
    made = []
    for profile in picked:
        now += random.expovariate(rate)
        made.append(Arrival(now, random.expovariate(1.0), profile))
    return made


class RehearsalPool:
    """GPUs of one model under one set of rankings, indexed by profile; all empty at first."""

    def __init__(self, model: Model, rankings: Sequence[Ranking], gpus: int) -> None:
        self._rankings = rankings
        self._pool = Pool(model, [-1] * gpus)
        self._after, self._before = self._pool.states.after, self._pool.states.before
        for gpu in range(gpus):
            self._pool.enter(gpu, 0)

    def place(self, profile: int) -> Candidate | None:
        """Place one slice and return where, or None if no legal placement is free."""
        candidate = best_candidate(self._pool, self._rankings[profile])
        if candidate is not None:
            self._pool.enter(candidate.gpu, self._after[self._pool.leave(candidate.gpu)][candidate.placement])
        return candidate

    def remove(self, gpu: int, placement: int) -> None:
        self._pool.enter(gpu, self._before[self._pool.leave(gpu)][placement])


def loss(pool: RehearsalPool, arrivals: Iterable[Arrival], sizes: Sequence[int], warm_up: float = 0.0) -> float:
    """The share of memory slices asked for after `warm_up` that fitted at once."""
    ends: list[tuple[float, int, int]] = []
    asked = given = 0
    for at, life, profile in arrivals:
        while ends and ends[0][0] <= at:
            _, gpu, k = heappop(ends)
            pool.remove(gpu, k)
        candidate = pool.place(profile)
        if at >= warm_up:
            asked += sizes[profile]
            if candidate is not None:
                given += sizes[profile]
        if candidate is not None:
            heappush(ends, (at + life, *candidate))
    return given / asked if asked else 1.0


def fill(pool: RehearsalPool, arrivals: Iterable[Arrival], sizes: Sequence[int]) -> float:
    """The share of memory slices asked for that fitted when nothing ever ends."""
    return loss(pool, [Arrival(job.at, NEVER, job.profile) for job in arrivals], sizes)


def queue(pool: RehearsalPool, arrivals: Iterable[Arrival], warm_up: float = 0.0) -> float:
    """The mean wait, in mean lives, of arrivals after `warm_up`; those still waiting count up to the end."""
    ends: list[tuple[float, int, int]] = []
    waiting: dict[int, deque[Arrival]] = {}
    total, count, now = 0.0, 0, 0.0

    def drain(until: float) -> None:
        nonlocal total
        while ends and ends[0][0] <= until:
            now, gpu, k = heappop(ends)
            pool.remove(gpu, k)
            for profile in sorted(waiting, key=lambda p: waiting[p][0].at):
                queued = waiting[profile]
                while queued and (candidate := pool.place(profile)) is not None:
                    job = queued.popleft()
                    heappush(ends, (now + job.life, *candidate))
                    if job.at >= warm_up:
                        total += now - job.at
                if not queued:
                    del waiting[profile]

    for job in arrivals:
        now = job.at
        drain(now)
        count += now >= warm_up
        candidate = pool.place(job.profile) if job.profile not in waiting else None
        if candidate is None:
            waiting.setdefault(job.profile, deque()).append(job)
        else:
            heappush(ends, (now + job.life, *candidate))
    total += sum(now - job.at for queued in waiting.values() for job in queued if job.at >= warm_up)
    return total / count if count else 0.0
