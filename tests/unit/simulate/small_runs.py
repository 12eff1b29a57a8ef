"""Small fleets and runs, as the tests of this folder write them. Times are milliseconds."""

from random import Random

from instaslice.placement import policies
from instaslice.simulate.fleets import FleetPlan, from_flags
from instaslice.simulate.jobs import Job
from instaslice.simulate.outcome import Outcome, outcome
from instaslice.simulate.simulation import Rules, Simulation

ONE_GPU = from_flags(["1x1xA100-40GB"])
TWO_GPUS = from_flags(["1x2xA100-40GB"])


def job(at: int, life: int, *wants: str) -> Job:
    return Job(at, life, wants)


def played(plan: FleetPlan, jobs: list[Job], rules: Rules | None = None, policy: str = "first-fit") -> Simulation:
    """A run that is over."""
    asked = {want: 1.0 for each in jobs for want in each.wants}
    run = Simulation(plan, policies.named(policy, random=Random(1)), rules or Rules(), asked)
    run.run(jobs)
    return run


def came_to(plan: FleetPlan, jobs: list[Job], rules: Rules | None = None, policy: str = "first-fit") -> Outcome:
    return outcome(played(plan, jobs, rules, policy), seed=0)
