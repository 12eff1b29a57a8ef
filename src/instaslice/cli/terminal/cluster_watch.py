"""Watches the pods of a namespace and all Instaslice objects, and keeps the timelines of the pods."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager

from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.cli.terminal.timeline import Timelines, Transition
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import Key
from instaslice.kube.watch import Reflector


class ClusterWatch:
    """What the watches have delivered so far. `now` gives the seconds that date a transition."""

    def __init__(self, client: Client, namespace: str, now: Callable[[], float]) -> None:
        self.instaslices: Cache[Instaslice] = Cache()
        self.timelines = Timelines()
        self.on_change: Callable[[list[Transition]], None] = lambda _: None
        """Called after every change of a pod or an Instaslice object, with or without transitions."""
        self._pods: Cache[Pod] = Cache()
        self._now = now
        self._changed = asyncio.Event()
        clock, rng = SystemClock(), random.Random()
        selector = Selector(namespace=namespace)
        self._reflectors = (
            Reflector(client, INSTASLICES, self.instaslices, clock=clock, rng=rng),
            Reflector(client, PODS, self._pods, clock=clock, rng=rng, selector=selector),
        )
        self._pods.on_change(lambda _old, new: self._update([new] if new else []))
        self.instaslices.on_change(lambda _old, _new: self._update(self._pods))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while inside; the caches are complete from the start."""
        tasks = [asyncio.create_task(each.run()) for each in self._reflectors]
        try:
            await self.instaslices.synced()
            await self._pods.synced()
            yield
        finally:
            for task in tasks:
                task.cancel()

    def reached(self, key: Key, state: str) -> bool:
        pod = self.timelines.pods.get(key)
        return pod is not None and state in pod.times

    async def until(self, pods: Collection[Key], state: str) -> None:
        """Return once all these pods have been in the state."""
        while not all(self.reached(key, state) for key in pods):
            self._changed.clear()
            await self._changed.wait()

    def _update(self, pods: Iterable[Pod]) -> None:
        at = self._now()
        self.on_change([each for pod in pods for each in self.timelines.update(pod, self.instaslices, at)])
        self._changed.set()
