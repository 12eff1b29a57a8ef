"""What one run comes to, and several runs of one policy: plain numbers, ready for a table, JSON or a page."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean, stdev
from typing import Final

from instaslice.geometry import States
from instaslice.placement.pools import Pool
from instaslice.simulate.samples import Sample
from instaslice.simulate.simulation import Simulation

# Student's t for 95 %, by degrees of freedom: few seeds need wide intervals.
_T95: Final = (
    *(12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13),
    *(2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04),
)

WAITING_PART: Final = 0.95
"""Of the pods: those that a target for waits is about."""


@dataclass(frozen=True, slots=True)
class ProfileOutcome:
    """Slices of one profile: how many were asked for and given, and the mean wait of the pods that have them."""

    asked: int
    given: int
    wait_mean_ms: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. Pods are those after the warm-up; `gpus_active`, `slices_used` and `fragmentation` are averages over
    time.

    `arrived` = `accepted` + `rejected` + `waiting`. `queued` did not start when they arrived; `waiting` never did, nor
    did those that are `impossible`. Waits are of the pods that ran; `wait_p95_of_all_ms` is of these too, and None
    where they are more than 5 %.
    """

    seed: int
    arrived: int
    accepted: int
    rejected: int
    waiting: int
    queued: int
    slices_asked: int
    slices_given: int
    room_in_pieces: int
    impossible: int
    wait_mean_ms: float
    wait_p95_ms: float
    wait_p99_ms: float
    wait_p95_of_all_ms: float | None
    makespan_ms: int
    gpus_active: float
    slices_used: float
    fragmentation: float
    moves: int
    profiles: dict[str, ProfileOutcome]

    @property
    def by_count(self) -> float:
        return self.accepted / self.arrived if self.arrived else 1.0

    @property
    def by_slices(self) -> float:
        return self.slices_given / self.slices_asked if self.slices_asked else 1.0


def outcome(run: Simulation, seed: int) -> Outcome:
    """Read a run that is over."""
    tally = run.tally
    counts = tally.pods.items()
    arrived = sum(pods.arrived for _, pods in counts)
    accepted = sum(pods.accepted for _, pods in counts)
    rejected = sum(pods.rejected for _, pods in counts)
    waiting = arrived - accepted - rejected
    p95_of_all = tally.waits.quantile(WAITING_PART, endless=waiting + tally.impossible)
    asked: Counter[str] = Counter()
    given: Counter[str] = Counter()
    waited: Counter[str] = Counter()
    for wants, pods in counts:
        for want in wants:
            asked[want] += pods.arrived
            given[want] += pods.accepted
            waited[want] += pods.waited
    return Outcome(
        seed=seed,
        arrived=arrived,
        accepted=accepted,
        rejected=rejected,
        waiting=waiting,
        queued=tally.queued,
        slices_asked=sum(tally.size(wants) * pods.arrived for wants, pods in counts),
        slices_given=sum(tally.size(wants) * pods.accepted for wants, pods in counts),
        room_in_pieces=tally.room_in_pieces,
        impossible=tally.impossible,
        wait_mean_ms=tally.waits.mean,
        wait_p95_ms=tally.waits.quantile(0.95),
        wait_p99_ms=tally.waits.quantile(0.99),
        wait_p95_of_all_ms=p95_of_all if isfinite(p95_of_all) else None,
        makespan_ms=run.now,
        gpus_active=run.averages.active,
        slices_used=run.averages.used,
        fragmentation=run.averages.fragmentation,
        moves=tally.moves,
        profiles={
            name: ProfileOutcome(asked[name], given[name], waited[name] / given[name] if given[name] else 0.0)
            for name in tally.sizes
            if asked[name]
        },
    )


@dataclass(frozen=True, slots=True)
class RunHistory:
    """How one run went over time: samples, and for each GPU on the map its name, its model and its geometry."""

    samples: tuple[Sample, ...]
    gpus: tuple[str, ...]
    models: tuple[str, ...]
    geometries: tuple[States, ...]


def run_history(run: Simulation) -> RunHistory:
    """What charts need of a run, without the fleet."""
    fleet = run.fleet
    pools = (fleet.pool_of[number] for number in run.shown)
    geometries = tuple(pool.states for pool in pools if isinstance(pool, Pool))
    # In the order of the groups, as `build` adds them.
    models = [group.model.name for group in run.plan.groups for _ in range(group.number * group.gpus)]
    return RunHistory(
        samples=tuple(run.samples.taken),
        gpus=tuple(fleet.names[number] for number in run.shown),
        models=tuple(models[number] for number in run.shown),
        geometries=geometries,
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % interval; 0 for a single seed."""

    mean: float
    plus_minus: float = 0.0


def estimate(values: Sequence[float]) -> Estimate:
    if len(values) < 2:
        return Estimate(fmean(values))
    t = _T95[len(values) - 2] if len(values) - 2 < len(_T95) else 1.96
    return Estimate(fmean(values), t * stdev(values) / len(values) ** 0.5)


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """One policy's runs, one for each seed, in the order of the seeds. `of_bound` is None where none was asked for."""

    policy: str
    runs: tuple[Outcome, ...]
    of_bound: float | None = None
    summary: dict[str, Estimate] = field(default_factory=dict)
    """Means over the seeds by the name of what is measured."""
    slices_over_first: Estimate | None = None
    """Acceptance by slices minus that of the first policy on the same jobs."""
    wait_of_first: Estimate | None = None
    """Mean wait as a part of that of the first policy on the same jobs; None where that one never waited."""


MEASURES: Final[dict[str, Callable[[Outcome], float]]] = {
    "acceptance_by_count": lambda run: run.by_count,
    "acceptance_by_slices": lambda run: run.by_slices,
    "wait_mean_ms": lambda run: run.wait_mean_ms,
    "wait_p95_ms": lambda run: run.wait_p95_ms,
    "wait_p99_ms": lambda run: run.wait_p99_ms,
    "makespan_ms": lambda run: run.makespan_ms,
    "gpus_active": lambda run: run.gpus_active,
    "slices_used": lambda run: run.slices_used,
    "fragmentation": lambda run: run.fragmentation,
    "room_in_pieces": lambda run: run.room_in_pieces,
    "moves": lambda run: run.moves,
}


def policy_outcome(
    policy: str, runs: Sequence[Outcome], first: Sequence[Outcome], bounds: Sequence[float] = ()
) -> PolicyOutcome:
    """Sum up. `first` are the runs of the policy to compare with; `bounds` the most slices each seed could give."""
    pairs = list(zip(runs, first, strict=True))
    return PolicyOutcome(
        policy=policy,
        runs=tuple(runs),
        of_bound=sum(run.slices_given for run in runs) / sum(bounds) if bounds else None,
        summary={name: estimate([measure(run) for run in runs]) for name, measure in MEASURES.items()},
        slices_over_first=estimate([a.by_slices - b.by_slices for a, b in pairs]),
        wait_of_first=estimate([a.wait_mean_ms / b.wait_mean_ms for a, b in pairs])
        if all(b.wait_mean_ms for _, b in pairs)
        else None,
    )
