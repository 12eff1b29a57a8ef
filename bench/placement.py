"""What one decision costs, and whether it grows with the fleet.

A fleet of A100-40GB is filled until demands are refused; then slices end at random and new ones arrive, so that the
fleet stays as full and as fragmented as it gets. Place and commit are timed; the mean is over all decisions, including
refusals. Processor time of this thread, and the median of five blocks, so that other load hardly counts.

    python bench/placement.py [--gpus 10 1000 10000 100000] [--decisions 50000]
"""

import argparse
import time
from random import Random
from statistics import mean, median, quantiles

from workloads import PROFILES, fleet

from instaslice.placement import Demand, Grant, Placer, Plan, policies

SIZES = (10, 1_000, 10_000, 100_000)
BLOCKS = 5


def steady(gpus: int, policy: str, random: Random) -> tuple[Placer, list[Grant]]:
    """A fleet that has refused something, and what runs on it."""
    placer = Placer(fleet(gpus), policies.named(policy, dict.fromkeys(PROFILES, 1.0)))
    running: list[Grant] = []
    while True:
        answer = placer.place(Demand((random.choice(PROFILES),)))
        if not isinstance(answer, Plan):
            return placer, running
        placer.commit(answer)
        running.append(answer.grants[0])


def churn(placer: Placer, running: list[Grant], decisions: int, random: Random) -> list[float]:
    """Microseconds of each decision."""
    timed = []
    for _ in range(decisions):
        at = random.randrange(len(running))
        running[at], running[-1] = running[-1], running[at]
        placer.release((running.pop(),))
        demand = Demand((random.choice(PROFILES),))
        begun = time.thread_time_ns()
        answer = placer.place(demand)
        if isinstance(answer, Plan):
            placer.commit(answer)
            running.append(answer.grants[0])
        timed.append((time.thread_time_ns() - begun) / 1000)
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=SIZES)
    parser.add_argument("--decisions", type=int, default=50_000)
    parser.add_argument("--policy", default=policies.DEFAULT, choices=policies.names())
    options = parser.parse_args()
    means = {}
    for gpus in options.gpus:
        random = Random(gpus)
        placer, running = steady(gpus, options.policy, random)
        churn(placer, running, max(options.decisions, gpus), random)  # leave the state that filling has produced
        blocks = [churn(placer, running, options.decisions // BLOCKS, random) for _ in range(BLOCKS)]
        means[gpus] = median(map(mean, blocks))
        timed = [each for block in blocks for each in block]
        kinds = placer.fleet.pools[0].present.bit_count()
        tail = quantiles(timed, n=100)[98]
        print(f"{gpus:7} GPUs of {kinds:4} kinds: mean {means[gpus]:.2f} us, p99 {tail:.2f} us")
    if {1_000, 10_000, 100_000} <= means.keys():
        print(f"RESULT mean_us_10000={means[10_000]:.2f} growth={means[100_000] / means[1_000]:.2f}")


if __name__ == "__main__":
    main()
