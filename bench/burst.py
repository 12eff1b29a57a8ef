"""Pods a second from the first creation to the last gate removed: a burst of 1,000 pods of 1g.5gb.

The pods are created as fast as the API server takes them, by a process of their own; all of Kubernetes and all of
InstaSlice run on this machine beside it. On 10 and 100 nodes of 16 A100 every pod finds a slice and holds it. One node
has 112 slices, so there each pod ends as soon as it runs and its slice is destroyed and given on: that is another
thing, the turnover of a full node. Beside it the bare loop, which only takes gates away: the limit. The last line:

    RESULT rate_1=<pods/s> rate_10=<pods/s> rate_100=<pods/s> bare_10=<pods/s> ratio_10=<rate_10 / bare_10>
"""

import asyncio

import click
from bursts import Burst, bare_loop, burst, cluster_of

COUNT = 1000


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


@click.command()
@click.option("--count", default=COUNT, show_default=True)
@click.option("--only", type=click.Choice(["1", "10", "100", "bare"]), help="One of the four.")
def main(count: int, only: str | None) -> None:
    result: dict[str, float] = {}
    for nodes in (1, 10, 100):
        if only in (None, str(nodes)):
            result[f"rate_{nodes}"] = ours(nodes, count).rate
    if only in (None, "bare"):
        result["bare_10"] = bare(10, count).rate
    if only is None:
        result["ratio_10"] = result["rate_10"] / result["bare_10"]
    print("RESULT", *(f"{key}={value:.{2 if 'ratio' in key else 0}f}" for key, value in result.items()))


if __name__ == "__main__":
    main()
