"""CPU seconds of three Kubernetes clients on the same stream of a real API server: ours, kopf, the official one.

The stream: there are PODS pods of about 12 KB, then CHANGES of them change once each. Each client runs in a fresh
process, one after the other, RUNS times over; user and system time of its process count, from after its imports and its
first connection to the last event. The median run of each is compared. The last line:

    RESULT kopf_ratio=<kopf / ours> official_ratio=<official / ours>
"""

import asyncio
import os
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path

from instaslice.kube.client import Client
from instaslice.kube.core import PODS
from instaslice.kube.meta import Key
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
COUNT, CHANGES, RUNS = 3000, 1000, 3
WRITERS = 16
NAMESPACE = "default"
CLIENTS = {
    "ours": (ROOT / ".venv", "ours.py"),
    "kopf": (ROOT / ".venv-bench", "with_kopf.py"),
    "official": (ROOT / ".venv-bench", "with_official.py"),
}


def pod(number: int) -> dict[str, object]:
    """A pod of the size that training jobs have: three containers with environment, probes and mounts."""
    container = {
        "image": "registry.example/team/training-image:2026.11.16-3f2a9c1",
        "args": ["--epochs=90", "--data=/data/train", "--checkpoint=/ckpt"],
        "env": [{"name": f"SETTING_{i}", "value": f"value-of-setting-{i}"} for i in range(14)],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"memory": "16Gi"}},
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("data", "ckpt", "scratch")],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
    }
    return {
        "metadata": {
            "namespace": NAMESPACE,
            "name": f"train-{number:05}",
            "labels": {"app": "train", "team": f"team-{number % 7}", "job": f"job-{number % 90}"},
            "annotations": {f"example.com/note-{i}": f"a note of ordinary length, number {i}" for i in range(6)},
        },
        "spec": {
            "nodeName": f"node-{number % 40}",
            "containers": [{"name": name, **container} for name in ("main", "sidecar", "exporter")],
            "volumes": [{"name": name, "emptyDir": {}} for name in ("data", "ckpt", "scratch")],
        },
    }


def status(number: int) -> dict[str, object]:
    since = "2026-11-16T00:00:00Z"
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    running = {"ready": True, "restartCount": 0, "image": "x", "imageID": "sha256:" + "0" * 64}
    return {
        "phase": "Running",
        "podIP": f"10.1.{number // 250}.{number % 250}",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in conditions],
        "containerStatuses": [
            {"name": name, **running, "state": {"running": {"startedAt": since}}}
            for name in ("main", "sidecar", "exporter")
        ],
    }


async def fill(client: Client) -> None:
    async def one(number: int) -> None:
        await client.create(PODS, pod(number))
        key = Key(NAMESPACE, f"train-{number:05}")
        await client.merge(PODS, key, {"status": status(number)}, subresource="status")

    await at_once(one, COUNT)


async def at_once(one: Callable[[int], Awaitable[None]], count: int) -> None:
    """All of them, WRITERS at a time: as fast as this server takes them, as in a busy cluster."""
    numbers = iter(range(count))

    async def writer() -> None:
        for number in numbers:
            await one(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(writer())


async def change(client: Client, value: str) -> None:
    async def one(number: int) -> None:
        key = Key(NAMESPACE, f"train-{number:05}")
        await client.merge(PODS, key, {"metadata": {"labels": {"round": value}}})

    await at_once(one, CHANGES)


async def measure(name: str, kubeconfig: Path, client: Client, value: str) -> tuple[float, float]:
    """CPU seconds until all pods had arrived, and until the last change."""
    venv, script = CLIENTS[name]
    process = await asyncio.create_subprocess_exec(
        venv / "bin" / "python",
        HERE / script,
        kubeconfig,
        NAMESPACE,
        str(COUNT),
        str(CHANGES),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(120):
            filled = await said(process.stdout, name)
            await change(client, value)
            return filled, await said(process.stdout, name)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said(stdout: asyncio.StreamReader, name: str) -> float:
    line = (await stdout.readline()).decode().strip()
    if not line:
        raise SystemExit(f"{name} ended before its last event: run bench/kube/{CLIENTS[name][1]} by hand to see why")
    return float(line)


async def compare(cluster: Cluster) -> None:
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in CLIENTS}
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as client:
        await fill(client)
        size = len(await client.raw("GET", PODS.path(NAMESPACE, "train-00000")))
        print(f"{COUNT} pods of {size / 1000:.1f} KB, then {CHANGES} changes; CPU seconds of each run:")
        for run in range(RUNS):
            for name in CLIENTS:
                runs[name].append(await measure(name, cluster.kubeconfig, client, f"{name}-{run}"))
    middle = {name: statistics.median(whole for _, whole in each) for name, each in runs.items()}
    for name, each in runs.items():
        whole = "  ".join(f"{seconds:7.3f}" for _, seconds in each)
        pods = statistics.median(filled for filled, _ in each) / COUNT * 1e6
        changes = statistics.median(seconds - filled for filled, seconds in each) / CHANGES * 1e6
        print(f"  {name:9} {whole}   {pods:6.0f} us a pod listed {changes:6.0f} us a change")
    ratios = (f"{name}_ratio={middle[name] / middle['ours']:.1f}" for name in ("kopf", "official"))
    print("RESULT", *ratios)


def main() -> None:
    cluster = Cluster("bench-kube")
    try:
        cluster.up(ClusterSpec(nodes=0, bare=True), Source())
        # The API server alone: nobody else may change the pods or take CPU.
        for component in ("kube-controller-manager", "kube-scheduler", "kwok"):
            cluster.kill(component)
        asyncio.run(compare(cluster))
    finally:
        cluster.down()


if __name__ == "__main__":
    main()
