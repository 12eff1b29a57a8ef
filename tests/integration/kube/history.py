"""What a cache told its handlers, and whether that can be the truth."""

import asyncio
import random
from contextlib import asynccontextmanager

from waiting import until

from instaslice.kube.cache import Cache
from instaslice.kube.client import Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS
from instaslice.kube.meta import key_of
from instaslice.kube.watch import Reflector

PATIENCE = 60.0
"""Seconds after which a wait counts as hung. Nothing asserts on how long anything took."""


class History:
    """Follows a cache and checks each change as it comes: nothing told twice, nothing out of thin air."""

    def __init__(self, cache):
        self.cache = cache
        self.told = []
        self.versions = {}
        cache.on_change(self._hear)

    def _hear(self, old, new):
        key = key_of(old or new)
        known = self.versions.get(key)
        assert known == (old and old.metadata.resource_version), f"{key}: told of a change from a state never told"
        if new is None:
            del self.versions[key]
        else:
            assert old is None or old.metadata.uid == new.metadata.uid
            assert known != new.metadata.resource_version, f"{key}: told twice"
            self.versions[key] = new.metadata.resource_version
        kind = "came" if old is None else "went" if new is None else "changed"
        # A pod is marked for deletion before it goes; no test tells the two apart.
        if new is None or new.metadata.deletion_timestamp is None:
            self.told.append((kind, key.name))

    async def until_true(self, client, namespace):
        """Wait until the cache is what the server holds."""
        async with asyncio.timeout(PATIENCE):
            pods = await client.list(PODS, Selector(namespace=namespace))
            wanted = {key_of(pod): pod.metadata.resource_version for pod in pods}
        await until(lambda: self.versions == wanted, PATIENCE)
        assert {key_of(pod): pod.metadata.resource_version for pod in self.cache} == wanted


@asynccontextmanager
async def following(client, namespace, **options):
    """A synced cache of the namespace's pods and its history, while the block runs."""
    cache = Cache()
    history = History(cache)
    history.reflector = Reflector(
        client,
        PODS,
        cache,
        clock=SystemClock(),
        rng=random.Random(1),
        selector=Selector(namespace=namespace),
        **options,
    )
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(history.reflector.run())
        async with asyncio.timeout(PATIENCE):
            await cache.synced()
        yield history
        watching.cancel()
