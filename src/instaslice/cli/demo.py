"""`instaslice demo`: the main job, shown on a cluster that comes and goes with it."""

import asyncio
import random
import time
from typing import Any

import click

from instaslice.api.names import GATE
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, JsonOp, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import Key
from instaslice.kube.watch import Reflector
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, Say, Spec
from instaslice.local.errors import LocalError

KEY = Key("default", "sample")
PATIENCE = 60.0
EXAMPLES = """\b
Examples:
  instaslice demo           start a cluster, show it, remove it
  instaslice demo --keep    leave it running, to look around
"""


@click.command(epilog=EXAMPLES)
@click.option("--keep", is_flag=True, help="Leave the cluster running.")
def command(keep: bool) -> None:
    """Start a real Kubernetes with an emulated GPU node and follow one gated pod to its end.

    The gate is what holds a pod until its slice exists. Here it is taken away by hand.
    """
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:6.1f} s  {text}")

    cluster = Cluster("demo")
    try:
        cluster.up(Spec(nodes=1, gpus=2), Source(), say=say)
        say("node gpu-0 is ready, with two emulated A100-40GB")
        asyncio.run(_follow_a_pod(cluster, say))
    finally:
        if not keep:
            cluster.down()
    if keep:
        say(f"export KUBECONFIG={cluster.kubeconfig}; `instaslice down demo` ends it")
    else:
        say("the cluster is gone again")


async def _follow_a_pod(cluster: Cluster, say: Say) -> None:
    pods: Cache[Pod] = Cache()
    changed = asyncio.Event()
    pods.on_change(lambda _old, _new: changed.set())
    async with await Client.connect(cluster.kubeconfig) as client:
        selector = Selector(namespace=KEY.namespace)
        watch = Reflector(client, PODS, pods, clock=SystemClock(), rng=random.Random(), selector=selector)
        watching = asyncio.create_task(watch.run())
        try:
            async with asyncio.timeout(PATIENCE):
                await client.apply(PODS, _sample(), manager="instaslice-demo")
                seen = ""
                while seen != "Succeeded":
                    await changed.wait()
                    changed.clear()
                    pod = pods.get(KEY)
                    if pod is None:
                        continue
                    gated = any(gate.name == GATE for gate in pod.spec.scheduling_gates or ())
                    now = "gated" if gated else pod.status.phase
                    if now == seen:
                        continue
                    seen = now
                    where = f" on {pod.spec.node_name}" if pod.spec.node_name else ""
                    say(f"pod {KEY.name}: {seen}{where}")
                    if gated:
                        say("the gate is removed, by hand in this demo")
                        await client.patch(PODS, KEY, [JsonOp(op="remove", path="/spec/schedulingGates")])
        except TimeoutError:
            raise LocalError(f"pod {KEY} did not succeed within {PATIENCE:.0f} s; see {cluster.layout.logs}") from None
        finally:
            watching.cancel()


def _sample() -> dict[str, Any]:
    """A pod that waits at the gate and then runs two seconds."""
    return {
        "metadata": {
            "namespace": KEY.namespace,
            "name": KEY.name,
            "annotations": {"local.gpu.das.com/run-for": "2s"},
        },
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": GATE}],
            "containers": [{"name": "main", "image": "busybox:1.35"}],
        },
    }
