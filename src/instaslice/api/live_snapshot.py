"""A snapshot of a cluster that watches keep current, for commands that redraw what they show when it changes."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from instaslice.api.instaslice import INSTASLICES
from instaslice.api.snapshot import ClusterSnapshot, UnreadObject
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import NAMESPACES, NODES, PODS
from instaslice.kube.errors import Unreadable
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.kube.resource import Resource
from instaslice.kube.storage import STORAGE_KINDS
from instaslice.kube.watch import Reflector


class WatchedKind:
    """The objects of one kind, and those of it that cannot be read now."""

    def __init__(self, client: Client, resource: Resource[Any], clock: Clock, changed: asyncio.Event) -> None:
        self.objects: Cache[Any] = Cache()
        self._resource = resource
        self._changed = changed
        self._unread: dict[Key, UnreadObject] = {}
        self.reflector = Reflector(
            client, resource, self.objects, clock=clock, rng=random.Random(), unreadable=self.set_unread
        )
        self.objects.on_change(self._update)

    @property
    def unread(self) -> list[UnreadObject]:
        return list(self._unread.values())

    def set_unread(self, metadata: ObjectMeta, error: Unreadable) -> None:
        key = Key(metadata.namespace, metadata.name)
        self._unread[key] = UnreadObject.of(self._resource, key, error)
        self._changed.set()

    def _update(self, old: Any, new: Any) -> None:
        metadata = (new or old).metadata
        self._unread.pop(Key(metadata.namespace, metadata.name), None)
        self._changed.set()


class LiveSnapshot:
    """Watches what `first` could read, as with `scheduling`, but for the Lease, which is renewed all the time. The
    kinds that it was refused stay left out."""

    def __init__(self, client: Client, clock: Clock, first: ClusterSnapshot) -> None:
        self.changed = asyncio.Event()
        """Set by every change; whoever waits for it clears it."""
        self._clock = clock
        self._first = first
        kinds: list[Resource[Any]] = [each for each in (PODS, NODES, INSTASLICES) if each.plural not in first.forbidden]
        if first.storage is not None:
            kinds += [NAMESPACES, *STORAGE_KINDS]
        self._kinds = {each.plural: WatchedKind(client, each, clock, self.changed) for each in kinds}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while inside; everything is there from the start. Raises what ends a watch for good."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.reflector.run()) for each in self._kinds.values()]
            for each in self._kinds.values():
                await each.objects.synced()
            yield
            for task in tasks:
                task.cancel()

    def read(self) -> ClusterSnapshot:
        """As it is now, as far as the watches have delivered it."""
        storage = [thing for kind in STORAGE_KINDS for thing in self._objects(kind)]
        return ClusterSnapshot(
            pods=self._objects(PODS),
            nodes=self._objects(NODES),
            instaslices=self._objects(INSTASLICES),
            now=self._clock.now(),
            unread=[each for kind in self._kinds.values() for each in kind.unread],
            namespaces=self._objects(NAMESPACES),
            storage=None if self._first.storage is None else storage,
            forbidden=self._first.forbidden,
        )

    def failure(self) -> str:
        """Why watches are broken now, by the first of them: what `read` returns may be out of date. "" where all are
        well."""
        broken = [each.reflector.failure for each in self._kinds.values() if each.reflector.failure is not None]
        more = f" (and {len(broken) - 1} other watches)" if len(broken) > 1 else ""
        return f"{broken[0]}{more}" if broken else ""

    def _objects(self, resource: Resource[Any]) -> list[Any]:
        kind = self._kinds.get(resource.plural)
        return list(kind.objects) if kind is not None else []
