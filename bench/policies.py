"""Every policy in every regime, on mixes that were not used to choose anything.

Loss: what does not fit is gone; score = share of memory slices asked for that was placed. Fill: nothing ends, 105 %
of what fits ideally is asked for. Queue: first come first served with backfill, load 0.93; score = mean wait in mean
lifetimes. Moves: loss at load 1.0, each refused demand may move one slice, all slices movable, moves cost nothing.

104 A100-40GB (13 nodes of 8), 24 random mixes, Poisson arrivals, exponential lives. All policies see the same jobs.
fgd, dp and adaptive know the profiles of 2000 earlier arrivals; adaptive also guesses the load within 10 % and knows
the regime. Differences are means over mixes with 95 % confidence intervals (normal, over mixes).

Two regimes are about other fleets (`fleets.py`), with eight and forty job lists each. Mixed: random fleets of two to
four models that offer a part of their profiles in common; loss at load 0.9. Young: one to 32 GPUs of which nothing is
known beforehand; 300 pods at load 0.8, and filling up to 0.9. There ours is compared with the best of the others, fleet
by fleet.

    python bench/policies.py [--mixes 24] [--seeds 3] [--only mixed]
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from random import Random
from statistics import mean, stdev
from typing import NamedTuple

import fleets
from workloads import GPUS, Mix, capacity, fleet, history, loss, mixes, queue

from instaslice.placement import Placer, Policy, Regime, policies
from instaslice.placement.rehearsal import NEVER, Arrival, poisson_arrivals

HELD_OUT = 20_261_116
"""Seed of the mixes. Everything was chosen on mixes of seeds 7 and 8."""
VARIANTS_TRIED = 45
"""Tables that were compared on the tuning mixes before the portfolio was fixed. Of the rehearsal itself two
lengths were tried."""
LOADS = (0.9, 1.0, 1.1)
WARM_UP = 4.0
OURS = policies.DEFAULT
MIXED_FLEETS, MIXED_SEEDS = 16, 8
YOUNG_SEEDS = 40
Scores = dict[str, list[float]]
"""Policy → one score for each job list."""


def learned(name: str, asked: dict[str, float], regime: Regime, concurrent: float, seed: int) -> Policy:
    random = Random(seed)
    policy = policies.named(name, asked, random)
    policy.tune(fleet(), regime, concurrent * random.uniform(0.9, 1.1))
    return policy


def all_policies(asked: dict[str, float], regime: Regime, concurrent: float, seed: int) -> dict[str, Policy]:
    return {name: learned(name, asked, regime, concurrent, seed) for name in policies.names()}


def played(
    score: Callable[[Placer, list[Arrival]], float], ready: dict[str, Policy], lists: list[list[Arrival]]
) -> Scores:
    return {name: [score(Placer(fleet(), policy), each) for each in lists] for name, policy in ready.items()}


def in_loss(mix: Mix, number: int, seeds: int, load: float) -> Scores:
    random = Random(number * 1000 + round(load * 10))
    rate = load * capacity(mix)
    ready = all_policies(history(mix, random), Regime.LOSS, rate, number)
    lists = [poisson_arrivals(mix, rate, round(rate * 20), random) for _ in range(seeds)]
    return played(lambda placer, each: loss(placer, each, WARM_UP).share, ready, lists)


def in_fill(mix: Mix, number: int, seeds: int) -> Scores:
    random = Random(number * 1000 + 1)
    count = 1.05 * capacity(mix)
    ready = all_policies(history(mix, random), Regime.FILL, count, number)
    made = [poisson_arrivals(mix, 1.0, round(count), random) for _ in range(4 * seeds)]
    lists = [[Arrival(job.at, NEVER, job.profile) for job in each] for each in made]
    return played(lambda placer, each: loss(placer, each, 0.0).share, ready, lists)


def in_queue(mix: Mix, number: int, seeds: int) -> Scores:
    random = Random(number * 1000 + 2)
    rate = 0.93 * capacity(mix)
    ready = all_policies(history(mix, random), Regime.QUEUE, rate, number)
    lists = [poisson_arrivals(mix, rate, round(rate * 40), random) for _ in range(seeds)]
    return played(lambda placer, each: queue(placer, each, WARM_UP), ready, lists)


def with_moves(mix: Mix, number: int, seeds: int) -> Scores:
    random = Random(number * 1000 + 3)
    rate = capacity(mix)
    policy = learned(OURS, history(mix, random), Regime.LOSS, rate, number)
    lists = [poisson_arrivals(mix, rate, round(rate * 20), random) for _ in range(seeds)]
    still = [loss(Placer(fleet(), policy), each, WARM_UP).share for each in lists]
    moving = [loss(Placer(fleet(), policy), each, WARM_UP, most_moves=1) for each in lists]
    return {
        "no move": still,
        "one move": [outcome.share for outcome in moving],
        "moves a slice": [outcome.moves for outcome in moving],
    }


REGIMES: dict[str, Callable[[Mix, int, int], Scores]] = {
    **{f"loss {load}": lambda mix, number, seeds, load=load: in_loss(mix, number, seeds, load) for load in LOADS},
    "fill": in_fill,
    "queue": in_queue,
    "moves": with_moves,
}


OTHER_FLEETS = {"mixed": MIXED_FLEETS, "young": len(fleets.YOUNG)}
"""Regimes with a number of fleets of their own, instead of mixes."""


class Task(NamedTuple):
    """The scores of one regime on one mix, or on one fleet."""

    regime: str
    number: int
    mix: Mix
    seeds: int
    mix_seed: int

    def run(self) -> Scores:
        match self.regime:
            case "mixed":
                return fleets.in_mixed(self.mix_seed, self.number, MIXED_SEEDS)
            case "young":
                return fleets.in_young(self.mix_seed, self.number, YOUNG_SEEDS)
        return REGIMES[self.regime](self.mix, self.number, self.seeds)


def run(task: Task) -> tuple[str, int, Scores]:
    return task.regime, task.number, task.run()


class Results:
    """Scores by regime, mix and policy."""

    def __init__(self) -> None:
        self._scores: dict[str, dict[int, Scores]] = {}

    def add(self, regime: str, number: int, scores: Scores) -> None:
        self._scores.setdefault(regime, {})[number] = scores

    def names(self, regime: str) -> list[str]:
        return list(next(iter(self._scores[regime].values())))

    def by_mix(self, regimes: Sequence[str], policy: str) -> list[float]:
        """A policy's mean in each mix, over the job lists of these regimes."""
        numbers = sorted(self._scores[regimes[0]])
        return [mean(score for regime in regimes for score in self._scores[regime][n][policy]) for n in numbers]

    def differences(self, regimes: Sequence[str], policy: str, base: str) -> list[float]:
        pairs = zip(self.by_mix(regimes, policy), self.by_mix(regimes, base), strict=True)
        return [ours - theirs for ours, theirs in pairs]

    def to_best(self, regime: str, policy: str, others: Sequence[str]) -> list[float]:
        """A policy's mean on each fleet, minus that of the best of the others there."""
        rows = zip(*(self.by_mix([regime], name) for name in (policy, *others)), strict=True)
        return [row[0] - max(row[1:]) for row in rows]

    def wait_ratio(self, policy: str, base: str) -> tuple[float, float, float]:
        """The geometric mean over mixes of the ratio of mean waits, and its interval."""
        pairs = zip(self.by_mix(["queue"], policy), self.by_mix(["queue"], base), strict=True)
        logs = [math.log(max(ours, 1e-6) / max(theirs, 1e-6)) for ours, theirs in pairs]
        return math.exp(mean(logs)), math.exp(mean(logs) - half(logs)), math.exp(mean(logs) + half(logs))


def half(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of the mean."""
    return 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def points(values: Sequence[float]) -> str:
    return f"{100 * mean(values):+.2f}±{100 * half(values):.2f}"


def report_mixed(results: Results, mix_seed: int) -> None:
    print("mixed: share of GPU memory placed; ours, and points over the best of the others")
    to_best = results.to_best("mixed", OURS, fleets.PLAIN)
    for number, (share, ahead) in enumerate(zip(results.by_mix(["mixed"], OURS), to_best, strict=True)):
        print(f"  {share:.4f}  {100 * ahead:+.2f}  {fleets.mixed_fleet(mix_seed, number)}")
    over = {base: points(results.differences(["mixed"], OURS, base)) for base in ("dra", "das", "fgd")}
    print(
        f"RESULT regime=mixed over_dra={over['dra']} over_das={over['das']} over_fgd={over['fgd']} "
        f"to_best={points(to_best)} worst_to_best={100 * min(to_best):+.2f}"
    )


def report_young(results: Results) -> None:
    print("young: share of memory slices placed; ours, and points over the best of the others")
    to_best = results.to_best("young", OURS, fleets.PLAIN)
    for young, share, ahead in zip(fleets.YOUNG, results.by_mix(["young"], OURS), to_best, strict=True):
        print(f"  {share:.4f}  {100 * ahead:+.2f}  {young}")
    several = [ahead for young, ahead in zip(fleets.YOUNG, to_best, strict=True) if not young.alone]
    alone = [ahead for young, ahead in zip(fleets.YOUNG, to_best, strict=True) if young.alone]
    print(
        f"RESULT regime=young over_fgd={points(results.differences(['young'], OURS, 'fgd'))} "
        f"to_best={points(to_best)} worst_to_best={100 * min(several):+.2f} "
        f"single_gpu_to_best={points(alone)} single_gpu_worst={100 * min(alone):+.2f}"
    )


def report(results: Results) -> None:
    every_load = [f"loss {load}" for load in LOADS]
    for regime in [*every_load, "fill"]:
        print(f"{regime}: share of memory slices placed, and points over fgd (worst mix)")
        for name in results.names(regime):
            ahead = results.differences([regime], name, "fgd")
            share = mean(results.by_mix([regime], name))
            print(f"  {name:10} {share:.4f}  {points(ahead)} ({100 * min(ahead):+.2f})")
    print("queue: mean wait in mean lives, and its ratio to first-fit's and to fgd's")
    for name in results.names("queue"):
        first, fgd = results.wait_ratio(name, "first-fit"), results.wait_ratio(name, "fgd")
        print(f"  {name:10} {mean(results.by_mix(['queue'], name)):.4f}  {show(first)}  {show(fgd)}")
    over = {base: results.differences(every_load, OURS, base) for base in ("dra", "das", "fgd")}
    print(
        f"RESULT regime=loss over_dra={points(over['dra'])} over_das={points(over['das'])} "
        f"over_fgd={points(over['fgd'])} worst_mix_to_fgd={100 * min(over['fgd']):+.2f}"
    )
    to_first = results.differences(["fill"], OURS, "first-fit")
    print(
        f"RESULT regime=fill over_fgd={points(results.differences(['fill'], OURS, 'fgd'))} "
        f"worst_mix_to_firstfit={100 * min(to_first):+.2f}"
    )
    first, fgd = results.wait_ratio(OURS, "first-fit"), results.wait_ratio(OURS, "fgd")
    print(f"RESULT regime=queue wait_to_firstfit={show(first)} wait_to_fgd={show(fgd)}")
    gain = results.differences(["moves"], "one move", "no move")
    print(
        f"RESULT regime=moves gain={points(gain)} moves_a_slice={mean(results.by_mix(['moves'], 'moves a slice')):.4f}"
    )


def show(ratio: tuple[float, float, float]) -> str:
    return f"{ratio[0]:.3f}[{ratio[1]:.3f},{ratio[2]:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixes", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3, help="job lists for each mix and load")
    parser.add_argument("--mix-seed", type=int, default=HELD_OUT)
    parser.add_argument("--only", choices=[*REGIMES, *OTHER_FLEETS], help="play one regime and print each mix")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    started = time.monotonic()
    chosen = mixes(options.mix_seed, options.mixes)
    tasks = [
        Task(regime, n, mix, options.seeds, options.mix_seed)
        for n, mix in enumerate(chosen)
        for regime in REGIMES
        if options.only in (None, regime)
    ]
    tasks += [
        Task(regime, n, chosen[0], options.seeds, options.mix_seed)
        for regime, count in OTHER_FLEETS.items()
        for n in range(count)
        if options.only in (None, regime)
    ]
    results = Results()
    with ProcessPoolExecutor(options.processes) as pool:
        for regime, number, scores in pool.map(run, tasks):
            results.add(regime, number, scores)
    print(
        f"{GPUS} GPUs, {options.mixes} mixes, {options.seeds} job lists each, {VARIANTS_TRIED} tables tried in tuning; "
        f"took {time.monotonic() - started:.0f} s"
    )
    if options.only in (None, "mixed"):
        report_mixed(results, options.mix_seed)
    if options.only in (None, "young"):
        report_young(results)
    if options.only in REGIMES:
        for name in results.names(options.only):
            print(f"  {name:10}", *(f"{score:.4f}" for score in results.by_mix([options.only], name)))
    if options.only is None:
        report(results)


if __name__ == "__main__":
    main()
