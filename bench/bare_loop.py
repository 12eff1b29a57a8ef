"""The bare loop: watches gated pods and patches them ungated and pinned, and does nothing else. A process of its own.

What remains of an operator that decides nothing, records nothing and creates no slice: the limit for ours. The patch
is the one that our controller sends. Usage: bare_loop.py KUBECONFIG NODES
"""

import asyncio
import random
import sys
from pathlib import Path

from instaslice.api.names import GATE, MIG_UUIDS
from instaslice.kube.cache import freeze_heap
from instaslice.kube.client import Client, JsonOp
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import Key, key_of
from instaslice.kube.watch import Reflector
from instaslice.local.nodes import name

AT_ONCE = 32


class Gated:
    """A store of the pods that are still gated, in the order they arrived."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Pod] = asyncio.Queue()
        self._seen: set[Key] = set()

    def replace(self, objects: dict[Key, Pod]) -> None:
        for pod in objects.values():
            self.upsert(pod)

    def upsert(self, new: Pod) -> None:
        key = key_of(new)
        if new.spec.scheduling_gates and key not in self._seen:
            self._seen.add(key)
            self.queue.put_nowait(new)

    def remove(self, last: Pod) -> None:
        self._seen.discard(key_of(last))


def steps(pod: Pod, node: str, uuid: str) -> list[JsonOp]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if pod.metadata.annotations:
        annotate = JsonOp(op="add", path=f"/metadata/annotations/{MIG_UUIDS.replace('/', '~1')}", value=uuid)
    else:
        annotate = JsonOp(op="add", path="/metadata/annotations", value={MIG_UUIDS: uuid})
    return [
        annotate,
        JsonOp(op="test", path="/spec/schedulingGates", value=[{"name": GATE}]),
        JsonOp(op="remove", path="/spec/schedulingGates"),
        JsonOp(op="add", path="/spec/affinity", value=affinity),
    ]


async def main(kubeconfig: str, nodes: int) -> None:
    async with await Client.connect(Path(kubeconfig), rate=10_000, burst=10_000) as client:
        gated = Gated()
        reflector = Reflector(client, PODS, gated, clock=SystemClock(), rng=random.Random(1))
        freeze_heap()

        async def ungate(first: int) -> None:
            turn = first
            while True:
                pod = await gated.queue.get()
                await client.patch(PODS, key_of(pod), steps(pod, name(turn % nodes), f"MIG-{turn:036}"))
                turn += AT_ONCE

        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            for worker in range(AT_ONCE):
                group.create_task(ungate(worker))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
