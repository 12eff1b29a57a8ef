"""A burst of pods on a local cluster: how fast they are ungated, and what CPU each process spends on it.

Shared by `burst.py` and `calls.py`. Times are as a watch in this process sees them.
"""

import asyncio
import contextlib
import random
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from instaslice.api.pods import gated
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import Key
from instaslice.kube.watch import Reflector
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec

HERE = Path(__file__).parent
NAMESPACE = "default"
GPUS = 16
"""A node: 112 slices of 1g.5gb."""
PATIENCE = 600.0
BESIDE, MOST_BESIDE = "anything else", 0.1
"""The CPU share of this process, the kernel and everything else during a burst; a twentieth on an idle machine."""


Calls = Counter[tuple[str, str]]
"""Verb, resource with its subresource → calls."""

_LINE = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


BY_THE_CLOCK = ("leases", "nodes", "secrets", "mutatingwebhookconfigurations", "")
"""Resources that are requested from time to time, with or without pods: heartbeats, the webhook's certificate."""


async def calls_of(client: Client) -> Calls:
    """The requests to the API server so far, without those that follow the clock instead of pods."""
    calls: Calls = Counter()
    for line in (await client.raw("GET", "/metrics")).decode().splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        labels = dict(_LABEL.findall(found[1]))
        if labels["resource"] in BY_THE_CLOCK or labels["verb"] in ("WATCH", "LIST"):
            continue
        what = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
        calls[labels["verb"], what] += int(float(found[2]))
    return calls


@dataclass
class Burst:
    """The measurements of one burst. Times are seconds since the first pod was created."""

    count: int
    created: float
    ungated: float
    cpu: dict[str, float]
    calls: Calls

    @property
    def rate(self) -> float:
        return self.count / self.ungated

    def report(self, title: str) -> None:
        shares = "  ".join(f"{name} {seconds:.1f}" for name, seconds in sorted(self.cpu.items()) if seconds >= 0.05)
        asked = "  ".join(f"{verb} {what} {count}" for (verb, what), count in self.calls.most_common(8))
        print(
            f"{title}: {self.rate:.0f} pods/s; all created after {self.created:.1f} s, all gates gone after "
            f"{self.ungated:.1f} s. CPU seconds: {shares}. Calls: {asked}",
            flush=True,
        )
        beside = self.cpu[BESIDE]
        if beside > MOST_BESIDE * sum(self.cpu.values()):
            print(f"NOT TO BE COUNTED: other work took {beside:.1f} s of CPU meanwhile", flush=True)


class Watched:
    """When pods were created and ungated."""

    def __init__(self, count: int, ended: bool) -> None:
        self._count, self._ended = count, ended
        self.came: set[Key] = set()
        self.ungated: set[Key] = set()
        self.over: set[Key] = set()
        self.first = self.created = self.last = 0.0
        self.done = asyncio.Event()

    def hear(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            return
        now, key = time.monotonic(), Key(new.metadata.namespace, new.metadata.name)
        self.first = self.first or now
        if key not in self.came:
            self.came.add(key)
            self.created = now
        if not gated(new) and key not in self.ungated:
            self.ungated.add(key)
            self.last = now
        if new.ended:
            self.over.add(key)
        if len(self.over if self._ended else self.ungated) == self._count:
            self.done.set()


async def burst(
    cluster: Cluster,
    count: int,
    *,
    hold: str = "",
    gated: bool = False,
    per_second: float = 0,
    others: Callable[[], dict[str, psutil.Process]] = dict,
) -> Burst:
    """Create the pods and wait until all are ungated, or with `hold` until all have ended."""
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as client:
        pods: Cache[Pod] = Cache()
        watched = Watched(count, ended=bool(hold))
        reflector = Reflector(
            client, PODS, pods, clock=SystemClock(), rng=random.Random(1), selector=Selector(namespace=NAMESPACE)
        )
        watching = asyncio.create_task(reflector.run())
        await pods.synced()
        pods.on_change(watched.hear)
        running = {name: found for name in cluster.processes.names() if (found := cluster.processes.find(name))}
        running |= others()
        asked = await calls_of(client)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        machine = psutil.cpu_times()
        before = {name: _cpu(process) for name, process in running.items()}
        words = [cluster.kubeconfig, str(count), hold, "1" if gated else "0", str(per_second)]
        creator = await asyncio.create_subprocess_exec(sys.executable, HERE / "creator.py", *words)
        try:
            async with asyncio.timeout(PATIENCE):
                if await creator.wait():
                    raise SystemExit("the creator of the pods failed")
                # It is the only child of this process that has ended and was waited for.
                spent = resource.getrusage(resource.RUSAGE_CHILDREN)
                await watched.done.wait()
        except TimeoutError:
            raise SystemExit(
                f"after {PATIENCE:.0f} s {len(watched.ungated)} of {count} pods were past their gate, "
                f"{len(watched.over)} had ended (logs: {cluster.layout.logs})"
            ) from None
        finally:
            if creator.returncode is None:
                creator.kill()
            watching.cancel()
        asked = await calls_of(client) - asked
        cpu = {name: _cpu(process) - before[name] for name, process in running.items()}
        cpu["creator"] = spent.ru_utime + spent.ru_stime - children.ru_utime - children.ru_stime
        # What else ran on this machine meanwhile: beside it the measured rate is too low.
        cpu[BESIDE] = _busy(psutil.cpu_times()) - _busy(machine) - sum(cpu.values())
    return Burst(count, watched.created - watched.first, watched.last - watched.first, cpu, asked)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _busy(times: Any) -> float:
    return sum(times) - times.idle - times.iowait - times.guest - times.guest_nice


@contextlib.contextmanager
def cluster_of(nodes: int, *, bare: bool = False) -> Iterator[Cluster]:
    """A cluster for one measurement."""
    cluster = Cluster(f"bench-burst-{nodes}{'-bare' if bare else ''}")
    try:
        cluster.up(ClusterSpec(nodes=nodes, gpus=GPUS, bare=bare), Source())
        yield cluster
    finally:
        cluster.down()


@contextlib.contextmanager
def bare_loop(cluster: Cluster, nodes: int) -> Iterator[psutil.Process]:
    """The bare loop beside a cluster, as a separate process."""
    process = subprocess.Popen([sys.executable, HERE / "bare_loop.py", cluster.kubeconfig, str(nodes)])
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()
