"""What no policy can exceed: the most memory slices that could be given to jobs known in advance, moving freely.

A linear program over which jobs to accept, in parts if need be. What runs at once must fit: that is stated by prices
(see `fluid`), and only those that an optimum so far violates are added. Every round gives a bound; the last is the
tightest. Needs scipy, which the extra `bound` installs.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from instaslice.simulate.errors import BadWorkload, MissingExtra
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.fluid import Capacity, Fluid
from instaslice.simulate.jobs import NEVER, Job
from instaslice.simulate.simulation import QueueDiscipline, Rules

if TYPE_CHECKING:
    import numpy as np

MOST_JOBS: Final = 50_000
"""Beyond this the program takes minutes and gigabytes."""

_ROUNDS: Final = 20
_CHECKED: Final = 200
"""The fullest moments that are checked in each round."""


def most_slices(plan: FleetPlan, jobs: Sequence[Job], rules: Rules) -> float:
    """At most so many slices can be given to the jobs after the warm-up, whatever the policy.

    Raises MissingExtra without scipy, and BadWorkload where pods wait (then all are given in the end) or where there
    are more than MOST_JOBS.
    """
    check(len(jobs), rules)
    names = tuple(dict.fromkeys(want for job in jobs for want in job.wants))
    fluid = Fluid(plan.models, names)
    program = _Program(plan, jobs, rules, names)
    cuts = [fluid.capacity(dict.fromkeys(names, 1.0))]
    cuts += [fluid.capacity({name: 1.0}) for name in names]
    best = program.solve(cuts)
    for _ in range(_ROUNDS):
        fresh = _violated(fluid, program.fullest(), cuts)
        if not fresh:
            break
        cuts += fresh
        best = program.solve(cuts)
    return best


def check(jobs: int, rules: Rules) -> None:
    """Whether a bound can be had, before minutes are spent on the runs. Raises as `most_slices` does."""
    try:
        import scipy  # noqa: F401
    except ImportError:
        raise MissingExtra("the bound needs scipy: pip install 'instaslice[bound]'") from None
    if rules.queue is not QueueDiscipline.NONE:
        raise BadWorkload("a bound is on what is accepted; where pods wait, all are. Use --queue none with --bound")
    if jobs > MOST_JOBS:
        raise BadWorkload(f"a bound on {jobs} pods; at most {MOST_JOBS} are possible. Use fewer with --pods")


def _violated(fluid: Fluid, moments: list[dict[str, float]], cuts: list[Capacity]) -> list[Capacity]:
    """New prices by which more is held at some of these moments than fits."""
    fresh: list[Capacity] = []
    for held in moments:
        if any(_worth(cut, held) > cut.limit * (1 + 1e-6) for cut in (*cuts, *fresh)):
            continue
        cut = fluid.capacity(held)
        if cut.most < 1 - 1e-6:
            fresh.append(cut)
    return fresh


def _worth(cut: Capacity, held: dict[str, float]) -> float:
    return sum(cut.prices[name] * amount for name, amount in held.items())


class _Program:
    """Unknowns: the accepted part of each job, and after each event of a profile how many of its slices are held.

    Stating the held amounts by what changed since the event before keeps the matrix small: a few entries an event.
    """

    def __init__(self, plan: FleetPlan, jobs: Sequence[Job], rules: Rules, names: Sequence[str]) -> None:
        self._names = names
        self._jobs = len(jobs)
        self._worths = [
            float(sum(plan.sizes[want] for want in job.wants)) if number >= rules.warm_up else 0.0
            for number, job in enumerate(jobs)
        ]
        self._changes: list[tuple[int, int, int, int]] = []  # unknown, the one before or -1, job, slices more
        self._moments: list[dict[str, int]] = []  # at each arrival: the unknown that each profile's amount is
        self._trace(jobs, rules)
        self._solution: np.ndarray[Any, Any] | None = None

    def solve(self, cuts: Sequence[Capacity]) -> float:
        """The optimum when at every arrival what is held costs at most its limit, by the prices of every cut."""
        import numpy as np
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        width = self._jobs + len(self._changes)
        same = _Entries()
        for row, (unknown, before, job, more) in enumerate(self._changes):
            same.add(row, unknown, 1.0)
            same.add(row, job, -float(more))
            if before >= 0:
                same.add(row, before, -1.0)
        most = _Entries()
        limits: list[float] = []
        for cut in cuts:
            for moment in self._moments:
                for name, unknown in moment.items():
                    if cut.prices[name]:
                        most.add(len(limits), unknown, cut.prices[name])
                limits.append(cut.limit)
        gain = np.zeros(width)
        gain[: self._jobs] = self._worths
        found = linprog(
            -gain,
            A_ub=csr_array(most.triple, shape=(len(limits), width)),
            b_ub=limits,
            A_eq=csr_array(same.triple, shape=(len(self._changes), width)),
            b_eq=np.zeros(len(self._changes)),
            bounds=np.array([(0.0, 1.0)] * self._jobs + [(0.0, np.inf)] * len(self._changes)),
            method="highs",
        )
        assert found.status == 0, found.message
        self._solution = found.x
        return float(-found.fun)

    def fullest(self) -> list[dict[str, float]]:
        """What the last solution holds at the arrivals where it holds most, without repetition."""
        assert self._solution is not None
        amounts = self._solution
        rows = {
            tuple(round(float(amounts[moment[name]]), 6) if name in moment else 0.0 for name in self._names)
            for moment in self._moments
        }
        chosen = sorted(rows, key=sum, reverse=True)[:_CHECKED]
        return [dict(zip(self._names, row, strict=True)) for row in chosen if any(row)]

    def _trace(self, jobs: Sequence[Job], rules: Rules) -> None:
        events = []
        for number, job in enumerate(jobs):
            events.append((job.at, 1, number))
            if job.life != NEVER:
                # An end at the instant of an arrival comes first, as in the simulation; a job of no length does not
                # end before it came.
                end = max(job.at + rules.create_ms + job.life + rules.destroy_ms, job.at + 1)
                events.append((end, 0, number))
        latest: dict[str, int] = {}
        for _, begins, number in sorted(events):
            counts: defaultdict[str, int] = defaultdict(int)
            for want in jobs[number].wants:
                counts[want] += 1 if begins else -1
            for want, more in counts.items():
                unknown = self._jobs + len(self._changes)
                self._changes.append((unknown, latest.get(want, -1), number, more))
                latest[want] = unknown
            if begins:
                self._moments.append(dict(latest))


class _Entries:
    """A sparse matrix while it is written."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []

    def add(self, row: int, column: int, value: float) -> None:
        self._rows.append(row)
        self._columns.append(column)
        self._values.append(value)

    @property
    def triple(self) -> tuple[list[float], tuple[list[int], list[int]]]:
        return self._values, (self._rows, self._columns)
