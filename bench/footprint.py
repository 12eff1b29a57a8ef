"""Resident memory of webhook, controller and agent in the image, and the megabytes that the image adds to its base.

They run from the image's own files, as a pod would (`image_processes.py`), on a local cluster of 10 emulated nodes and
a real one, with 16 A100 each. The agent that counts is that of the real node, idle and with a pod on each of its GPUs,
under a real kubelet; and the one that serves all emulated nodes at once, with 300 pods: more than any node holds.
The last line:

    RESULT image_mb=<> controller_mib=<at 1,000 pods> webhook_mib=<most> agent_mib=<most> agent_idle_cores=<>
"""

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from creator import NAMESPACE, pod
from image_processes import ROOT, UnpackedImage, image

from instaslice.api.pods import gated
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import NODES, PODS, Pod
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import Key
from instaslice.local import images, realnode
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec
from instaslice.local.operator import AGENT, CONTROLLER, NODE_AGENT, WEBHOOK

GPUS = 16
SOME, MANY = 300, 1000
IDLE_SECONDS = 30.0
PATIENCE = 600.0
AT_ONCE = 16
LOOK_SECONDS = 0.5
NAMES = {WEBHOOK: "webhook", CONTROLLER: "controller", NODE_AGENT: "agent", AGENT: "agent of 10 emulated nodes"}

Sample = Mapping[str, float]
"""Component → MiB."""


async def measure(cluster: Cluster) -> str:
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as client:
        await until_ungated(client, await create(client, ["warm-up"]))
        await client.delete(PODS, Key(NAMESPACE, "warm-up"))
        cores = await idle_cores(cluster, NODE_AGENT)
        idle = sample(cluster, "idle")
        real = [f"real-{number}" for number in range(GPUS)]
        await create(client, real, on=realnode.NAME)
        await until(client, real, lambda each: each.status.phase == "Running")
        with_real = sample(cluster, f"{GPUS} pods on the real node")
        # The others are for the emulated nodes: so many containers would take this machine minutes.
        await client.merge(NODES, Key("", realnode.NAME), {"spec": {"unschedulable": True}})
        names = [f"burst-{number}" for number in range(MANY)]
        await until_ungated(client, await create(client, names[:SOME]))
        some = sample(cluster, f"{SOME} more pods")
        await until_ungated(client, await create(client, names[SOME:]))
        many = sample(cluster, f"{MANY} more pods")
    agent = max(*(each[NODE_AGENT] for each in (idle, with_real, some)), some[AGENT])
    return (
        f"controller_mib={many[CONTROLLER]:.0f} webhook_mib={max(idle[WEBHOOK], some[WEBHOOK]):.0f} "
        f"agent_mib={agent:.0f} agent_idle_cores={cores:.3f}"
    )


def sample(cluster: Cluster, title: str) -> Sample:
    found = {}
    for name in NAMES:
        process = cluster.processes.find(name)
        if process is None:
            raise SystemExit(f"{name} ended: {cluster.processes.last_log_line(name)}")
        found[name] = process.memory_info().rss / 2**20
    print(f"{title}:", ", ".join(f"{NAMES[name]} {mib:.0f} MiB" for name, mib in found.items()), flush=True)
    return found


async def idle_cores(cluster: Cluster, name: str) -> float:
    process = cluster.processes.find(name)
    assert process is not None, f"{name} runs"
    before, began = process.cpu_times(), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.monotonic() - began)


async def create(client: Client, names: Iterable[str], on: str = "") -> list[str]:
    """Create pods of one slice each, as fast as the API server takes them. Retries while no webhook answers yet."""
    remaining, created = iter(names), []

    async def creator() -> None:
        for name in remaining:
            body = _pod(name, on)
            while True:
                with contextlib.suppress(KubeError):
                    await client.raw("POST", PODS.path(NAMESPACE), body=body)
                    break
                await asyncio.sleep(LOOK_SECONDS)
            created.append(name)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(creator())
    return created


def _pod(name: str, on: str) -> bytes:
    body: dict[str, Any] = pod(0, "", gated=False)
    body["metadata"]["name"] = name
    if on:
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
        body["spec"]["containers"][0] |= {"image": images.BUSYBOX, "command": ["sleep", "100000"]}
    return msgspec.json.encode(body)


async def until_ungated(client: Client, names: Iterable[str]) -> None:
    await until(client, names, lambda each: not gated(each))


async def until(client: Client, names: Iterable[str], holds: Callable[[Pod], bool]) -> None:
    wanted = set(names)
    try:
        async with asyncio.timeout(PATIENCE):
            while wanted:
                found = await client.list(PODS, Selector(namespace=NAMESPACE))
                wanted -= {each.metadata.name for each in found if holds(each)}
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise SystemExit(f"{len(wanted)} pods, {min(wanted)} for one, still wait: see their conditions") from None


def main() -> None:
    cluster = Cluster("bench-footprint")
    with tempfile.TemporaryDirectory(prefix="isl-footprint-") as scratch:
        unpacked = UnpackedImage.unpack(Path(scratch) / "root")
        Path(scratch).chmod(0o755)
        try:
            cluster.up(ClusterSpec(nodes=10, gpus=GPUS, real_node=True), Source())
            unpacked.replace(cluster, WEBHOOK)
            unpacked.replace(cluster, CONTROLLER)
            unpacked.replace(cluster, AGENT, user=ROOT, folders=[cluster.layout.gpus])
            node = [cluster.layout.gpus, realnode.cdi(cluster.layout), Path("/var/lib/kubelet")]
            unpacked.replace(cluster, NODE_AGENT, user=ROOT, folders=node)
            result = asyncio.run(measure(cluster))
        finally:
            cluster.down()
    print(f"RESULT image_mb={json.loads(image('size'))['image_mb']:.0f} {result}")


if __name__ == "__main__":
    if os.geteuid() != 0:
        raise SystemExit("bench-footprint needs root: it opens the image and a real node")
    main()
