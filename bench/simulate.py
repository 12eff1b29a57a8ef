"""How long a large simulation takes and how much memory: ten thousand GPUs, a million pods.

The loss model at load 1.0 under the default policy, run by the simulator as `instaslice simulate` runs it.

    python bench/simulate.py [--gpus 10000] [--pods 1000000] [--policy adaptive] [--profile]
"""

import argparse
import cProfile
import resource
import time

from instaslice.placement import policies
from instaslice.simulate import fleets, mixes, workloads
from instaslice.simulate.comparison import Comparison, Scenario, compare
from instaslice.simulate.simulation import QueueDiscipline, Rules

GPUS_PER_NODE = 8


def scenario(gpus: int, pods: int, policy: str, queue: str) -> Scenario:
    plan = fleets.from_flags([f"{gpus // GPUS_PER_NODE}x{GPUS_PER_NODE}xA100-40GB"])
    workload = workloads.poisson(plan, mixes.read("uniform", plan), 1.0, 3_600_000, pods)
    return Scenario(plan, workload, Rules(QueueDiscipline(queue), warm_up=pods // 5), (policy,), (1,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=1_000_000)
    parser.add_argument("--policy", default=policies.DEFAULT, choices=policies.names())
    parser.add_argument("--queue", default=QueueDiscipline.NONE.value, choices=[each.value for each in QueueDiscipline])
    parser.add_argument("--profile", action="store_true", help="print where the time goes; slower")
    options = parser.parse_args()
    made = scenario(options.gpus, options.pods, options.policy, options.queue)
    watch = cProfile.Profile()
    begun, worked = time.monotonic(), time.process_time()
    found: Comparison = watch.runcall(compare, made) if options.profile else compare(made)
    seconds, processor = time.monotonic() - begun, time.process_time() - worked
    if options.profile:
        watch.print_stats("tottime")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    run = found.policies[0].runs[0]
    print(
        f"RESULT gpus={made.plan.gpus} pods={options.pods} policy={options.policy} seconds={seconds:.1f} "
        f"cpu_seconds={processor:.1f} us_per_pod={1e6 * processor / options.pods:.1f} peak_mib={peak:.0f} "
        f"accepted_slices={run.by_slices:.4f}"
    )


if __name__ == "__main__":
    main()
