"""Fleets other than the one of `policies.py`: of several models, and young ones where nothing is known yet.

Scores are shares of what was asked for that found room: of GPU memory in GB over several models, whose memory slices
differ, otherwise of memory slices.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from instaslice.geometry import Model, ProfileName, models
from instaslice.placement import Policy, Regime, policies
from instaslice.placement.policy import FIRST_TUNING
from instaslice.simulate import mixes, workloads
from instaslice.simulate.fleets import FleetPlan, NodeGroup, from_flags
from instaslice.simulate.mixes import Mix
from instaslice.simulate.simulation import Rules, Simulation

PLAIN = ("first-fit", "best-fit", "das", "dra", "fgd")
"""What others use: the best of them is what ours is compared with, fleet by fleet."""
KNOWN = 2000
"""Arrivals before the run that policies know of in the regime mixed."""

Scores = dict[str, list[float]]


class MixedFleet(NamedTuple):
    """A fleet of several models, and a mix of profiles that only one of them offers with some that several do."""

    plan: FleetPlan
    mix: Mix

    def __str__(self) -> str:
        return str(self.plan)


def mixed_fleet(seed: int, number: int) -> MixedFleet:
    """Two to four models, each of which shares some of its profiles, not all, with another; 2 to 32 GPUs of each."""
    random = Random(f"{seed} mixed {number}")
    known = [models.named(name) for name in models.names()]
    known = [model for model in known if model.memory_slices and model.name != "Thor-iGPU"]
    chosen: list[Model] = []
    while len(chosen) < 2:
        chosen = [random.choice(known)]
        for _ in range(random.choice((1, 1, 2, 3))):
            related = [one for one in known if one not in chosen and any(_overlap(one, each) for each in chosen)]
            if related:
                chosen.append(random.choice(related))
    groups = [
        NodeGroup(random.choice((1, 1, 2, 3, 4)), random.choice((2, 4, 8)), model, f"node-{at}")
        for at, model in enumerate(chosen)
    ]
    random.shuffle(groups)
    names = sorted({name for model in chosen for name in _plain(model)})
    # What several models offer comes twice as often: it is what the regime is about.
    shares = [random.expovariate(1.0) * (2 if sum(model.has(name) for model in chosen) > 1 else 1) for name in names]
    return MixedFleet(FleetPlan(groups), Mix(tuple((name,) for name in names), tuple(shares)))


def in_mixed(seed: int, number: int, seeds: int) -> Scores:
    """Loss at load 0.9; the mix and the load are known."""
    fleet = mixed_fleet(seed, number)
    workload = workloads.poisson(fleet.plan, fleet.mix, 0.9, 1_000_000, 2000)
    asked = {name: KNOWN * share for name, share in workload.asked.items()}
    gigabytes = {name: ProfileName.parse(name).gb for name in asked}
    scores: Scores = {}
    for name in (*PLAIN, policies.DEFAULT):
        for run in range(seeds):
            policy = policies.named(name, asked, Random(f"{run} policy"))
            simulation = Simulation(fleet.plan, policy, Rules(warm_up=400), workload.asked)
            policy.tune(simulation.fleet, Regime.LOSS, workload.concurrent)
            simulation.run(workload.jobs(Random(f"{seed} {run} jobs")))
            scores.setdefault(name, []).append(_share(simulation, gigabytes))
    return scores


class YoungFleet(NamedTuple):
    """A small fleet of A100-40GB of which nothing is known beforehand, and what arrives there."""

    shape: str
    mix: str
    filling: bool

    def __str__(self) -> str:
        return f"{self.shape} {self.mix:7} {'filling up to 0.9' if self.filling else '300 pods at load 0.8'}"

    @property
    def alone(self) -> bool:
        """Whether it is a single GPU."""
        return self.shape == "1x1"


YOUNG: Sequence[YoungFleet] = [
    YoungFleet(shape, mix, filling)
    for shape in ("1x1", "1x2", "1x4", "1x8", "2x8", "4x8")
    for mix in ("uniform", "small", "big")
    for filling in (False, True)
]
MOST_YOUNG = 32


def in_young(seed: int, number: int, seeds: int) -> Scores:
    """From the first pod on; ours learns after 32 arrivals and after 128. Few pods fill a small fleet, so chance has a
    large part in how well: it is filled more often."""
    young = YOUNG[number]
    plan = from_flags([f"{young.shape}xA100-40GB"])
    mix = mixes.read(young.mix, plan)
    workload = workloads.fill_up(plan, mix, 0.9) if young.filling else workloads.poisson(plan, mix, 0.8, 1_000_000, 300)
    runs = seeds * max(1, MOST_YOUNG // plan.gpus) if young.filling else seeds
    scores: Scores = {}
    for name in (*PLAIN, policies.DEFAULT):
        for run in range(runs):
            policy: Policy = policies.named(name, random=Random(f"{run} policy"))
            simulation = Simulation(plan, policy, Rules(), workload.asked, learns_from=FIRST_TUNING)
            simulation.run(workload.jobs(Random(f"{seed} {run} jobs")))
            scores.setdefault(name, []).append(_share(simulation, plan.sizes))
    return scores


def _share(simulation: Simulation, sizes: Mapping[str, int]) -> float:
    rows = [(sizes[wants[0]], pods) for wants, pods in simulation.tally.pods.items()]
    return sum(size * pods.accepted for size, pods in rows) / sum(size * pods.arrived for size, pods in rows)


def _plain(model: Model) -> set[str]:
    return {profile.name for profile in model.profiles if profile.starts and not ProfileName.parse(profile.name).extra}


def _overlap(one: Model, other: Model) -> bool:
    return bool(_plain(one) & _plain(other)) and _plain(one) != _plain(other)
