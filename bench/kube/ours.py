"""Our client on the stream of `run.py`: cache, index, queue and a worker, as a controller has them."""

import asyncio
import random
import sys
from pathlib import Path

from tally import Tally

from instaslice.kube.cache import Cache, freeze_heap
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import Key, key_of
from instaslice.kube.queue import Queue
from instaslice.kube.watch import Reflector


async def main(kubeconfig: str, namespace: str, tally: Tally) -> None:
    async with await Client.connect(Path(kubeconfig)) as client:
        await client.raw("GET", "/version")
        cache: Cache[Pod] = Cache()
        queue: Queue[Key] = Queue(clock=SystemClock())
        seen: dict[Key, str] = {}

        async def reconcile(key: Key) -> None:
            pod = cache.get(key)
            if pod is not None and seen.get(key) != pod.metadata.resource_version:
                seen[key] = pod.metadata.resource_version
                tally.count()

        def handler(old: Pod | None, new: Pod | None) -> None:
            queue.add(key_of(new or old))  # type: ignore[arg-type]  # one of them is there

        cache.on_change(handler)
        reflector = Reflector(
            client, PODS, cache, clock=SystemClock(), rng=random.Random(), selector=Selector(namespace=namespace)
        )
        freeze_heap()
        tally.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            group.create_task(queue.work(reconcile))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Tally(int(sys.argv[3]), int(sys.argv[4]))))
