"""API calls of InstaSlice for one pod, from its creation to the release of its slice, counted by the API server itself.

Pods are created one at a time, every four seconds, so that writes that would be coalesced in a burst are separate;
only what no pod waits for is written with the next pod's. The server's metrics do not say who called. So the same
pods also run on a cluster without InstaSlice, where the bare loop makes one call for each and everything else does
the same work; the difference is ours. Calls that follow the clock instead of pods, and the opening of watches, are
left out. The last line:

    RESULT calls_1=<calls per pod on 1 node> calls_10=<on 10 nodes> calls_100=<on 100 nodes>
"""

import asyncio

import click
from bursts import Calls, bare_loop, burst, calls_of, cluster_of

from instaslice.api.instaslice import INSTASLICES
from instaslice.kube.client import Client
from instaslice.local.cluster import Cluster

COUNT = 20
HOLD = "2s"
"""Long enough that everything is written before the pod ends."""
PER_SECOND = 0.25
"""So slow that one pod has ended before the next is created."""
QUIET = 3.0
"""Seconds for late calls: events, the last entry that is removed from a spec."""


async def count(cluster: Cluster, pods: int, *, gated: bool) -> Calls:
    async with await Client.connect(cluster.kubeconfig) as client:
        before = await calm(client)
        await burst(cluster, pods, hold=HOLD, gated=gated, per_second=PER_SECOND)
        if not gated:
            await until_released(client)
        await asyncio.sleep(QUIET)
        after = await calls_of(client)
    return after - before


async def calm(client: Client) -> Calls:
    """The calls so far, once there are no more: a new cluster writes an event for each of its nodes."""
    before = await calls_of(client)
    while True:
        await asyncio.sleep(QUIET)
        now = await calls_of(client)
        if now == before:
            return now
        before = now


async def until_released(client: Client) -> None:
    while True:
        things = await client.list(INSTASLICES)  # a LIST, which is not counted
        if not any(thing.spec.allocations for thing in things):
            return
        await asyncio.sleep(0.5)


def ours(nodes: int, pods: int) -> Calls:
    with cluster_of(nodes) as cluster:
        return asyncio.run(count(cluster, pods, gated=False))


def others(nodes: int, pods: int) -> Calls:
    with cluster_of(nodes, bare=True) as cluster, bare_loop(cluster, nodes):
        calls = asyncio.run(count(cluster, pods, gated=True))
    calls["PATCH", "pods"] -= pods
    return calls


@click.command()
@click.option("--count", "pods", default=COUNT, show_default=True)
@click.option("--nodes", type=int, multiple=True, default=(1, 10, 100), show_default=True)
def main(pods: int, nodes: tuple[int, ...]) -> None:
    theirs = others(nodes[0], pods)
    result = {}
    for each in nodes:
        calls = ours(each, pods)
        calls.subtract(theirs)
        print(f"{each} nodes, calls a pod:")
        for (verb, what), number in sorted(calls.items(), key=lambda item: (item[0][1], item[0][0])):
            if abs(number) >= pods / 50:
                print(f"  {verb:7} {what:28} {number / pods:5.2f}")
        result[f"calls_{each}"] = calls.total() / pods
    print("RESULT", *(f"{key}={value:.1f}" for key, value in result.items()))


if __name__ == "__main__":
    main()
