"""The pods of a namespace and all Instaslice objects, watched, and the story that they tell."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager

from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.cli.story import News, Story
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import Key
from instaslice.kube.watch import Reflector


class Scene:
    """What the watches have told so far. `now` gives the seconds at which news is dated."""

    def __init__(self, client: Client, namespace: str, now: Callable[[], float]) -> None:
        self.instaslices: Cache[Instaslice] = Cache()
        self.story = Story()
        self.on_news: Callable[[list[News]], None] = lambda _: None
        """Called after every change of a pod or an Instaslice object, also where no pod has news."""
        self._pods: Cache[Pod] = Cache()
        self._now = now
        self._changed = asyncio.Event()
        clock, rng = SystemClock(), random.Random()
        self._slices = Reflector(client, INSTASLICES, self.instaslices, clock=clock, rng=rng)
        selector = Selector(namespace=namespace)
        self._podlist = Reflector(client, PODS, self._pods, clock=clock, rng=rng, selector=selector)
        self._pods.on_change(lambda _old, new: self._see([new] if new else []))
        self.instaslices.on_change(lambda _old, _new: self._see(self._pods))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Kept true while inside; from the start it holds what there is."""
        watching = [asyncio.create_task(each) for each in (self._slices.run(), self._podlist.run())]
        try:
            await self.instaslices.synced()
            await self._pods.synced()
            yield
        finally:
            for each in watching:
                each.cancel()

    def reached(self, key: Key, state: str) -> bool:
        life = self.story.lives.get(key)
        return life is not None and state in life.times

    async def until(self, pods: Collection[Key], state: str) -> None:
        """Return once all these pods have been in the state."""
        while not all(self.reached(key, state) for key in pods):
            self._changed.clear()
            await self._changed.wait()

    def _see(self, pods: Iterable[Pod]) -> None:
        at = self._now()
        self.on_news([news for pod in pods for news in self.story.see(pod, self.instaslices, at)])
        self._changed.set()
