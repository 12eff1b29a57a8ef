"""What thousands of waiting pods with different requests cost everybody else.

One user makes 3,500 pods, each with a selector of its own that no node has, on 80 nodes of 16 GPUs. Meanwhile, and for
a while after the last of them, ordinary pods of another namespace come and go one after the other; each that ends leads
to a pass over the queue. The last line:

    RESULT pass_ms_3500=<one whole pass> ordinary_pod_s=<the slowest from creation to no gate> lease_lost=<times>

The pass is CPU time of the same dispatcher in this process, on the final state of that cluster.
"""

import asyncio
import random
import time
from statistics import median
from typing import Any

import click
import msgspec
from bursts import PATIENCE, cluster_of
from creator import pod

from instaslice.api.names import NAMESPACE
from instaslice.api.pods import gated
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.cli.controller import LEASE
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.orders import Limits, NullOrders
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import LEASES, NAMESPACES, PODS, Namespace
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.local.cluster import Cluster
from instaslice.local.objects import ClusterObjects
from instaslice.placement import policies

COUNT, NODES = 3500, 80
AT_ONCE = 16
AFTER = 15
"""Ordinary pods that are created after the last of the others."""
LOOK_SECONDS = 0.05


async def measure(cluster: Cluster, count: int) -> str:
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as client:
        for name in ("odd", "ordinary"):
            await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name=name)))
            await ClusterObjects(client).namespace_ready(name)
        before = await transitions(client)
        began = time.monotonic()
        crowd = asyncio.create_task(make_crowd(client, count))
        waits: list[float] = []
        while not crowd.done():
            waits.append(await ordinary(client, len(waits)))
        await crowd
        print(f"{count} odd pods made in {time.monotonic() - began:.0f} s", flush=True)
        waits += [await ordinary(client, len(waits) + number) for number in range(AFTER)]
        lost = await transitions(client) - before
        world = await ClusterSnapshot.read(client, SystemClock())
    print(f"{len(waits)} ordinary pods: the middle one {median(waits):.2f} s, the slowest {max(waits):.2f} s")
    return f"pass_ms_{count}={1000 * pass_seconds(world):.0f} ordinary_pod_s={max(waits):.2f} lease_lost={lost}"


async def make_crowd(client: Client, count: int) -> None:
    numbers = iter(range(count))

    async def maker() -> None:
        for number in numbers:
            body = _pod("odd", number)
            body["spec"]["nodeSelector"] = {"example.com/rack": f"rack-{number}"}
            await client.raw("POST", PODS.path("odd"), body=msgspec.json.encode(body))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(maker())


async def ordinary(client: Client, number: int) -> float:
    """Create a pod, wait until it is ungated, and delete it; returns the seconds that it waited."""
    made = await client.create(PODS, _pod("ordinary", number))
    key, began = Key("ordinary", made.metadata.name), time.monotonic()
    while time.monotonic() - began < PATIENCE:
        now = await client.get(PODS, key)
        if not gated(now):
            break
        await asyncio.sleep(LOOK_SECONDS)
    waited = time.monotonic() - began
    await client.delete(PODS, key, grace_seconds=0)
    return waited


async def transitions(client: Client) -> int:
    """How often the controller's Lease changed its holder."""
    return (await client.get(LEASES, Key(NAMESPACE, LEASE))).spec.lease_transitions


def pass_seconds(world: ClusterSnapshot) -> float:
    """A whole pass over the queue, as when capacity may have become free."""
    state = ClusterState(policies.named(policies.DEFAULT))
    dispatcher = Dispatcher(state, NullOrders(), lambda: 0.0, random.Random(1), Limits())
    for node in world.nodes:
        dispatcher.node_changed(None, node)
    for thing in world.instaslices:
        dispatcher.instaslice_changed(None, thing)
    for each in world.pods:
        dispatcher.pod_changed(None, each)
    dispatcher.start()
    dispatcher.decide()
    took = []
    for _ in range(5):
        state.queue.retry_all()
        began = time.process_time()
        dispatcher.decide()
        took.append(time.process_time() - began)
    print(f"{len(state.queue)} pods wait, a pass {', '.join(f'{1000 * each:.0f}' for each in took)} ms")
    return median(took)


def _pod(namespace: str, number: int) -> dict[str, Any]:
    body = pod(number, "", False)
    body["metadata"] = {"namespace": namespace, "name": f"{namespace}-{number:05}"}
    return body


@click.command()
@click.option("--count", default=COUNT, show_default=True)
@click.option("--nodes", default=NODES, show_default=True)
def main(count: int, nodes: int) -> None:
    with cluster_of(nodes) as cluster:
        result = asyncio.run(measure(cluster, count))
    print("RESULT", result)


if __name__ == "__main__":
    main()
