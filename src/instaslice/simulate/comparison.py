"""Several policies on the same fleet and the same jobs, seed by seed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from instaslice.placement import policies
from instaslice.placement.policy import FIRST_TUNING, Regime
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.jobs import Job
from instaslice.simulate.outcome import Outcome, PolicyOutcome, RunHistory, outcome, policy_outcome, run_history
from instaslice.simulate.simulation import QueueDiscipline, Rules, Simulation
from instaslice.simulate.workloads import FillUp, Workload

Progress = Callable[[str, int], None]
"""Called now and then with the policy that runs and how many more of its pods have arrived."""

Bound = Callable[[Sequence[Job]], float]
"""The most slices that any policy can give these jobs."""

_REPORT_EVERY: Final = 2000
_KNOWN: Final = 2000
"""Arrivals that an informed policy has seen before the run."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a comparison needs to be repeated."""

    plan: FleetPlan
    workload: Workload
    rules: Rules
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    informed: bool = True
    """Whether policies know the mix and the load beforehand, as after weeks of running; otherwise they learn them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Each policy's results, and the history of its first run. `bounds` has one number for each seed."""

    policies: tuple[PolicyOutcome, ...]
    histories: tuple[RunHistory, ...]
    bounds: tuple[float, ...]


def compare(scenario: Scenario, progress: Progress | None = None, bound: Bound | None = None) -> Comparison:
    """Run every policy on every seed. The jobs of a seed are the same for every policy, and so is the answer when
    it is run again."""
    runs: list[tuple[str, list[Outcome]]] = []
    histories: list[RunHistory] = []
    for name in scenario.policies:
        outcomes = []
        for seed in scenario.seeds:
            run = _run(scenario, name, seed, progress)
            outcomes.append(outcome(run, seed))
            if seed == scenario.seeds[0]:
                histories.append(run_history(run))
        runs.append((name, outcomes))
    bounds = tuple(bound(list(_jobs(scenario, seed))) for seed in scenario.seeds) if bound else ()
    rows = tuple(policy_outcome(name, outcomes, runs[0][1], bounds) for name, outcomes in runs)
    return Comparison(rows, tuple(histories), bounds)


def _run(scenario: Scenario, name: str, seed: int, progress: Progress | None) -> Simulation:
    # Its own generator: a policy that draws more or less must not change what arrives.
    random = Random(f"{seed} policy")
    workload = scenario.workload
    if scenario.informed:
        policy = policies.named(name, {want: _KNOWN * share for want, share in workload.asked.items()}, random)
        run = Simulation(scenario.plan, policy, scenario.rules, workload.asked)
        concurrent = None if workload.concurrent is None else workload.concurrent * sum(workload.asked.values())
        policy.tune(run.fleet, _regime(scenario), concurrent)
    else:
        policy = policies.named(name, random=random)
        run = Simulation(scenario.plan, policy, scenario.rules, workload.asked, FIRST_TUNING)
    jobs = _jobs(scenario, seed)
    run.run(_reporting(jobs, name, progress) if progress else jobs)
    return run


def _regime(scenario: Scenario) -> Regime:
    if isinstance(scenario.workload, FillUp):
        return Regime.FILL
    return Regime.LOSS if scenario.rules.queue is QueueDiscipline.NONE else Regime.QUEUE


def _jobs(scenario: Scenario, seed: int) -> Iterator[Job]:
    return scenario.workload.jobs(Random(f"{seed} jobs"))


def _reporting(jobs: Iterator[Job], name: str, progress: Progress) -> Iterator[Job]:
    count = 0
    for count, job in enumerate(jobs, 1):
        if count % _REPORT_EVERY == 0:
            progress(name, _REPORT_EVERY)
        yield job
    progress(name, count % _REPORT_EVERY)
