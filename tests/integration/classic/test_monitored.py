"""The checks of this folder at work: more pods than slices, each gets one, and no write on the way is wrong."""

import asyncio

from cluster_monitor import ClusterMonitor
from manifests import pod

from instaslice.kube.client import Selector
from instaslice.kube.core import PODS

COUNT = 40
ASKED = {
    "limits": {"nvidia.com/mig-1g.5gb": "1"},
    "requests": {"cpu": "10m"},
    "annotations": {"local.gpu.das.com/run-for": "0s"},
    "restartPolicy": "Never",
}


async def test_every_write_of_a_crowd_is_judged(client, namespace):
    async with ClusterMonitor(client) as monitor:
        async with asyncio.TaskGroup() as group:
            for number in range(COUNT):
                group.create_task(client.create(PODS, pod(f"p-{number}", namespace=namespace, **ASKED)))
        async with asyncio.timeout(240):
            while True:
                pods = await client.list(PODS, Selector(namespace=namespace))
                if all(each.status.phase == "Succeeded" for each in pods):
                    break
                await asyncio.sleep(0.5)
    assert monitor.checked >= 3 * COUNT
    assert monitor.findings == []
