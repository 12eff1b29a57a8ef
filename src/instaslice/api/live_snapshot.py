"""A snapshot of a cluster that watches keep current, for commands that redraw what they show when it changes."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES
from instaslice.api.snapshot import ClusterSnapshot, UnreadObject
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import Clock
from instaslice.kube.core import LEASES, NAMESPACES, NODES, PODS, Lease
from instaslice.kube.errors import KubeError, Unreadable
from instaslice.kube.heartbeat import Renewals
from instaslice.kube.meta import Key, ObjectMeta, key_of
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


class WatchedLeases:
    """The Leases of our namespace. They are renewed all the time, so only another holder counts as a change; that one
    ran out is seen when something else is drawn."""

    def __init__(self, client: Client, clock: Clock, changed: asyncio.Event, silent: frozenset[str]) -> None:
        """`silent` were not renewed before this began."""
        self.leases: Cache[Lease] = Cache()
        self.known = False
        """Whether they were read: a user may see the fleet without them."""
        self._client = client
        self._clock = clock
        self._changed = changed
        self._silent_before = silent
        self._renewals = Renewals()
        self._selector = Selector(names.NAMESPACE)
        self._reflector = Reflector(
            client, LEASES, self.leases, clock=clock, rng=random.Random(), selector=self._selector
        )
        self.leases.on_change(self._update)

    async def run(self) -> None:
        """Return at once where they may not or cannot be listed: the fleet is shown without them."""
        with suppress(KubeError):
            await self._client.version(LEASES, self._selector)
            await self._reflector.run()

    async def note_synced(self) -> None:
        """Not awaited before the first picture: who may list them may not be allowed to watch them."""
        await self.leases.synced()
        self.known = True
        self._changed.set()

    @property
    def controller(self) -> Lease | None:
        return self.leases.get(Key(names.NAMESPACE, names.CONTROLLER))

    @property
    def silent(self) -> frozenset[str]:
        """The names of those that are not renewed any more."""
        expired = {each.name for each in self._renewals.expired(self._clock.monotonic())}
        return self._silent_before | expired

    def _update(self, old: Lease | None, new: Lease | None) -> None:
        lease = new or old
        assert lease is not None
        key, silent = key_of(lease), self.silent
        if new is None:
            self._renewals.forget(key)
        else:
            self._renewals.observe(new, self._clock.monotonic())
        if old is not None:
            self._silent_before -= {key.name}
        holder = (old.spec.holder_identity if old else "", new.spec.holder_identity if new else "")
        if holder[0] != holder[1] or self.silent != silent:
            self._changed.set()


class LiveSnapshot:
    """Watches what `first` could read, as with `scheduling`. The kinds that it was refused stay left out."""

    def __init__(self, client: Client, clock: Clock, first: ClusterSnapshot) -> None:
        self.changed = asyncio.Event()
        """Set by every change; whoever waits for it clears it."""
        self._clock = clock
        self._first = first
        kinds: list[Resource[Any]] = [each for each in (PODS, NODES, INSTASLICES) if each.plural not in first.forbidden]
        if first.storage is not None:
            kinds += [NAMESPACES, *STORAGE_KINDS]
        self._kinds = {each.plural: WatchedKind(client, each, clock, self.changed) for each in kinds}
        self._leases = WatchedLeases(client, clock, self.changed, first.silent_leases)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while inside; everything is there from the start. Raises what ends a watch for good."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.reflector.run()) for each in self._kinds.values()]
            for each in self._kinds.values():
                await each.objects.synced()
            tasks += [group.create_task(work) for work in (self._leases.run(), self._leases.note_synced())]
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
            lease=self._leases.controller,
            lease_unknown=not self._leases.known,
            silent_leases=self._leases.silent,
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
