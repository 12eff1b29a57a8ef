"""Show node autoscalers the pods that wait for a node: they do not see gated pods.

One placeholder pod for each shape of waiting pod, in a namespace of its own, at most `limit`. Level-based: the wanted
placeholders follow from the last `set`, the present ones from a watch, so a new process finds what an earlier one left.
designs/0007-autoscaling-hint.md has the reasons.
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from instaslice.api import names
from instaslice.controller.placeholders import PRIORITY, placeholder
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import Clock
from instaslice.kube.core import PODS, PartialObjectMetadata, Pod
from instaslice.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from instaslice.kube.meta import Key, key_of
from instaslice.kube.queue import Queue
from instaslice.kube.resource import Resource
from instaslice.kube.watch import Reflector

log = logging.getLogger(__name__)

PRIORITY_CLASSES = Resource(
    PartialObjectMetadata, "PriorityClass", "priorityclasses", group="scheduling.k8s.io", namespaced=False
)

SET_UP = Key("", "set up")
"""In the queue of placeholders, so that it is repeated until it succeeds."""
PATIENCE = 10.0
"""Seconds that a shape must be wanted before its placeholder is created: most waits end before a new node could be
ready."""
PAUSE = 60.0
"""Seconds without a placeholder after one was bound: its node is there, and the waiting pods take it."""


class AutoscalingHints:
    """`limit` 0, the flag turned off, only removes what an earlier process left. So does any limit with placeholders in
    `former`, the namespace in which earlier versions created them."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        limit: int,
        *,
        former: str = names.NAMESPACE,
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
        self._former = former
        self._leftovers: dict[Key, Pod] = {}
        self._queue: Queue[Key] = Queue(clock=clock)
        self._present: Cache[Pod] = Cache()
        # None until the first `set`: until then it is not known whether pods wait.
        self._wanted: dict[str, dict[str, Any]] | None = None
        self._not_before: dict[str, float] = {}
        # Manifests, cached: the controller calls `set` after every pass, with up to hundreds of pods.
        self._made: dict[tuple[str, str, int], dict[str, Any]] = {}

    def set(self, waiting: Mapping[str, Pod], memory: Mapping[str, int] | None = None) -> None:
        """The pods that no present node can hold, by uid, the most important first. Replaces what was set before; cheap
        to repeat, and returns at once.

        `memory`: uid → the GPU memory that an empty node of the shape that the pod needs advertises.
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
            self._queue.add(Key(self._namespace, name))

    async def run(self) -> None:
        """Runs until cancelled. Requests that fail are repeated with backoff."""
        selector = Selector(namespace=self._namespace, labels=names.PLACEHOLDER)
        reflector = Reflector(self._client, PODS, self._present, clock=self._clock, rng=self._rng, selector=selector)
        self._present.on_change(self._enqueue)
        self._queue.add(SET_UP)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            await self._present.synced()
            group.create_task(self._queue.work(self._reconcile))

    def _enqueue(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is not None:
            self._queue.add(key_of(pod))

    async def _set_up(self) -> None:
        for pod in await self._client.list(PODS, Selector(namespace=self._former, labels=names.PLACEHOLDER)):
            self._leftovers[key_of(pod)] = pod
            self._queue.add(key_of(pod))
        if self._limit:
            await self._client.apply(PRIORITY_CLASSES, PRIORITY, manager=names.CONTROLLER, force=True)

    async def _reconcile(self, key: Key) -> float | None:
        """Create or remove one placeholder; returns the seconds after which to call it again."""
        if key == SET_UP:
            await self._set_up()
            return None
        if leftover := self._leftovers.get(key):
            await self._remove(leftover)
            return None
        if self._wanted is None:
            return None
        name = key.name
        wanted = self._wanted.get(name)
        present = self._present.get(key)
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
        with suppress(AlreadyExists):  # the watch is behind
            await self._client.create(PODS, wanted)
        return None

    async def _remove(self, pod: Pod) -> None:
        """Immediately, without waiting for a kubelet, which may be gone: a placeholder must not occupy a node."""
        key = key_of(pod)
        try:
            await self._client.delete(PODS, key, uid=pod.metadata.uid, grace_seconds=0)
        except (NotFound, Conflict):
            return  # gone, or replaced by another of its name
        except Forbidden as error:
            if self._limit:
                raise
            # The permission is granted with the flag only.
            log.warning("%s; remove the placeholder by hand: kubectl delete pod -n %s %s", error, *key)
