"""Pods per second from the first creation to the last gate removed: a burst of 1,000 pods of 1g.5gb.

The pods are created as fast as the API server takes them, by a separate process; all of Kubernetes and
InstaSlice run on this machine beside it. On 10 and 100 nodes of 16 A100 every pod gets a slice and keeps it. One node
has 112 slices, so there each pod ends as soon as it runs and its slice is destroyed and replaced: that measures the
turnover of a full node. The limit is the bare loop, which only removes gates. The speed of a shared machine changes by
half from minute to minute, so all of them run several times in turn, and the median of each counts. The last line:

    RESULT rate_1=<pods/s> rate_10=<pods/s> rate_100=<pods/s> bare_10=<pods/s> ratio_10=<rate_10 / bare_10>

The ratio is the median of the turns' ratios, not the ratio of the medians.
"""

import asyncio
from statistics import median

import click
from bursts import Burst, bare_loop, burst, cluster_of

COUNT = 1000
TURNS = 5


def ours(nodes: int, count: int) -> Burst:
    with cluster_of(nodes) as cluster:
        seen = asyncio.run(burst(cluster, count, hold="" if nodes > 1 else "0s"))
    seen.report(f"{nodes} nodes")
    return seen


def bare(nodes: int, count: int) -> Burst:
    with cluster_of(nodes, bare=True) as cluster, bare_loop(cluster, nodes) as process:
        seen = asyncio.run(burst(cluster, count, gated=True, others=lambda: {"bare loop": process}))
    seen.report(f"{nodes} nodes, bare loop")
    return seen


def line(result: dict[str, float]) -> str:
    return " ".join(f"{key}={value:.{2 if 'ratio' in key else 0}f}" for key, value in result.items())


@click.command()
@click.option("--count", default=COUNT, show_default=True)
@click.option("--turns", default=TURNS, show_default=True, help="Of ours on 10 and 100 nodes and the bare loop.")
@click.option("--only", type=click.Choice(["1", "10", "100", "bare"]), help="One of the four, once.")
def main(count: int, turns: int, only: str | None) -> None:
    if only is not None:
        seen = bare(10, count) if only == "bare" else ours(int(only), count)
        print("RESULT", line({"bare_10" if only == "bare" else f"rate_{only}": seen.rate}))
        return
    result = {"rate_1": ours(1, count).rate}
    rates = [(ours(10, count).rate, bare(10, count).rate, ours(100, count).rate) for _ in range(turns)]
    ten, limit, hundred = zip(*rates, strict=True)
    result["rate_10"] = median(ten)
    result["rate_100"] = median(hundred)
    result["bare_10"] = median(limit)
    result["ratio_10"] = median(rate / most for rate, most in zip(ten, limit, strict=True))
    print("RESULT", line(result))


if __name__ == "__main__":
    main()
