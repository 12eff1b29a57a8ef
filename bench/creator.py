"""Creates pods that ask for a slice, as a separate process. Usage: creator.py KUBECONFIG COUNT HOLD GATED PER_SECOND

HOLD is how long each runs ("" indefinitely), GATED is 1 for pods that are created gated and ask for nothing (there is
no webhook beside the bare loop), PER_SECOND 0 for as fast as the API server takes them.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from instaslice.api.names import GATE
from instaslice.kube.client import Client
from instaslice.kube.core import PODS

AT_ONCE = 16
NAMESPACE = "default"


def pod(number: int, hold: str, gated: bool) -> dict[str, Any]:
    limits = {} if gated else {"nvidia.com/mig-1g.5gb": "1"}
    resources = {"limits": limits, "requests": {"cpu": "10m", "memory": "1Mi"}}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": resources}],
    }
    if gated:
        spec["schedulingGates"] = [{"name": GATE}]
    meta: dict[str, Any] = {"namespace": NAMESPACE, "name": f"burst-{number:05}"}
    if hold:
        meta["annotations"] = {"local.gpu.das.com/run-for": hold}
    return {"metadata": meta, "spec": spec}


async def main(kubeconfig: str, count: int, hold: str, gated: bool, per_second: float) -> None:
    async with await Client.connect(Path(kubeconfig), rate=10_000, burst=10_000) as client:
        numbers, path = iter(range(count)), PODS.path(NAMESPACE)
        began = time.monotonic()

        async def creator() -> None:
            for number in numbers:
                if per_second:
                    await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
                # Not `create`, which reads the answer: this process should take as little CPU as possible.
                await client.raw("POST", path, body=msgspec.json.encode(pod(number, hold, gated)))

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(creator())


if __name__ == "__main__":
    _, kubeconfig, count, hold, gated, per_second = sys.argv
    asyncio.run(main(kubeconfig, int(count), hold, gated == "1", float(per_second)))
