"""Tells node autoscalers of the pods that wait for a node: gated pods are invisible to them.

One placeholder pod a shape of waiting pod, in our own namespace, never more than `limit`. Level-based: what should be
there follows from the last `set`, what is there from a watch by label, so that a new process finds what an earlier one
left. designs/0007-autoscaling-hint.md has the reasons.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from instaslice.api import names
from instaslice.controller.placeholders import PRIORITY, placeholder
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import Clock
from instaslice.kube.core import PODS, PartialObjectMetadata, Pod
from instaslice.kube.errors import AlreadyExists, Conflict, NotFound
from instaslice.kube.meta import Key
from instaslice.kube.queue import Queue
from instaslice.kube.resource import Resource
from instaslice.kube.watch import Reflector

PRIORITY_CLASSES = Resource(
    PartialObjectMetadata, "PriorityClass", "priorityclasses", group="scheduling.k8s.io", namespaced=False
)
MANAGER = "instaslice-controller"

PATIENCE = 10.0
"""Seconds that a shape must be wanted before its placeholder comes: most slices that are missing are given back before
any node could be there."""
PAUSE = 60.0
"""Seconds without a placeholder after one was bound: the node it showed is there, and the waiting pods go first."""


class Hints:
    """`limit` 0 makes none and removes those of an earlier process; that is the flag turned off."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        limit: int,
        *,
        rng: random.Random,
        patience: float = PATIENCE,
        pause: float = PAUSE,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._limit = limit
        self._rng = rng
        self._patience = patience
        self._pause = pause
        self._queue: Queue[str] = Queue(clock=clock)
        self._present: Cache[Pod] = Cache()
        # None until the first `set`: a controller that has not looked yet does not mean that nobody waits.
        self._wanted: dict[str, dict[str, Any]] | None = None
        self._not_before: dict[str, float] = {}
        # A thousand pods wait for long, and the controller tells us at every turn.
        self._made: dict[tuple[str, str, int], dict[str, Any]] = {}

    def set(self, waiting: Mapping[str, Pod], memory: Mapping[str, int] | None = None) -> None:
        """The pods, by uid and the most important first, that no present node can hold. Replaces what was set before;
        cheap to repeat, and returns at once.

        `memory` is, for a pod's uid, the GPU memory that an empty node of the shape it needs advertises.
        """
        wanted: dict[str, dict[str, Any]] = {}
        made: dict[tuple[str, str, int], dict[str, Any]] = {}
        for uid, pod in waiting.items():
            if len(wanted) >= self._limit:
                break
            # A gated pod may still change: Kueue narrows its node selector.
            kind = uid, pod.metadata.resource_version, (memory or {}).get(uid, 0)
            made[kind] = self._made.get(kind) or placeholder(pod, self._namespace, kind[2])
            wanted.setdefault(made[kind]["metadata"]["name"], made[kind])
        self._made = made
        now = self._clock.monotonic()
        for name in wanted:
            self._not_before.setdefault(name, now + self._patience)
        before = self._wanted or {}
        self._wanted = wanted
        for name in {*before, *wanted, *(pod.metadata.name for pod in self._present)}:
            self._queue.add(name)

    async def run(self) -> None:
        """Until cancelled. What the API server refuses is tried again, ever later."""
        if self._limit:
            await self._client.apply(PRIORITY_CLASSES, PRIORITY, manager=MANAGER, force=True)
        selector = Selector(namespace=self._namespace, labels=names.PLACEHOLDER)
        reflector = Reflector(self._client, PODS, self._present, clock=self._clock, rng=self._rng, selector=selector)
        self._present.on_change(self._look)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            await self._present.synced()
            group.create_task(self._queue.work(self._reconcile))

    def _look(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is not None:
            self._queue.add(pod.metadata.name)

    async def _reconcile(self, name: str) -> float | None:
        """Bring one placeholder to what it should be; the seconds after which to look again."""
        if self._wanted is None:
            return None
        wanted = self._wanted.get(name)
        present = self._present.get(Key(self._namespace, name))
        now = self._clock.monotonic()
        if present is not None:
            used_up = bool(present.spec.node_name) or present.ended
            if used_up:
                self._not_before[name] = now + self._pause
            if used_up or wanted is None:
                await self._remove(present)
            return None
        if wanted is None:
            self._not_before.pop(name, None)
            return None
        wait = self._not_before[name] - now
        if wait > 0:
            return wait
        try:
            await self._client.create(PODS, wanted)
        except AlreadyExists:
            # The watch is behind, and will tell.
            return None
        return None

    async def _remove(self, pod: Pod) -> None:
        """At once, without asking a kubelet: it may be gone, and a placeholder must not hold a node's room."""
        key = Key(self._namespace, pod.metadata.name)
        try:
            await self._client.delete(PODS, key, uid=pod.metadata.uid, grace_seconds=0)
        except (NotFound, Conflict):
            # Gone, or another of its name by now: the watch will tell.
            return
