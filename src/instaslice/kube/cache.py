"""All objects of one kind in memory, kept in sync by a Reflector.

Reads never wait. Objects are shared and frozen. Everything runs on one event loop; nothing here awaits except `synced`.

Two sources race: the watch, and the responses to our own writes, which may be read before or after the same change
arrives on the watch. Whatever is older than what is here is therefore ignored; only a complete list can go back, which
is how a server that was restored from a backup is followed. designs/0002-our-own-kube-client.md has the cases.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from instaslice.kube.meta import Key, Object, is_older, key_of

T = TypeVar("T", bound=Object)

Handler = Callable[[T | None, T | None], None]
"""Called with (old, new) after the cache changed: (None, new) added, (old, new) updated, (old, None) deleted. Old and
new have the same uid: an object that was deleted and created again under its name is first deleted, then added. What a
handler raises ends the watch and with it the process, so it hands its work to a queue."""


class Cache(Generic[T]):
    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._handlers: list[Handler[T]] = []
        self._answered: set[Key] = set()
        """Objects that a response changed since the last complete list, and the watch has not caught up with."""
        self._synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def on_change(self, handler: Handler[T]) -> None:
        """Call the handler for what is here already, and for every change from now on."""
        self._handlers.append(handler)
        for thing in self:
            handler(None, thing)

    async def synced(self) -> None:
        """Return once the cache holds what a first complete list held."""
        await self._synced.wait()

    def replace(self, objects: Mapping[Key, T]) -> None:
        """Become this complete list. Handlers get the difference only: what was deleted or added while nobody watched,
        what has another resource version; nothing twice."""
        # The server may have made the list before it answered a write, so the list may lack that write. If anything
        # else is older in the list than here, this is a different history: etcd was restored from a backup.
        ahead = {key for key, thing in objects.items() if self._is_older(key, thing)}
        if not ahead <= self._answered:
            ahead = set()
        self._answered.clear()
        for key in [key for key in self._objects if key not in objects]:
            self._drop(key)
        for key, thing in objects.items():
            if key not in ahead:
                self._put(key, thing)
        self._synced.set()

    def upsert(self, new: T) -> None:
        """Store one object from the watch, unless it is older than what is here, or the same version."""
        key = key_of(new)
        if not self._is_older(key, new):
            self._answered.discard(key)
            self._put(key, new)

    def refresh(self, answer: T) -> None:
        """Store the response to a write of ours before the watch brings it. Ignored where the object is gone by now, or
        was replaced by another: the response may be read after the deletion came on the watch."""
        key = key_of(answer)
        here = self._objects.get(key)
        if here is None or here.metadata.uid != answer.metadata.uid:
            return
        if not self._is_older(key, answer) and here.metadata.resource_version != answer.metadata.resource_version:
            self._answered.add(key)
            self._put(key, answer)

    def remove(self, last: T) -> None:
        """Drop one object; handlers get its last state before the deletion as we knew it. Ignored where it is unknown,
        or where the deletion is that of an earlier object of this name."""
        key = key_of(last)
        here = self._objects.get(key)
        if here is None or self._is_older(key, last):
            return
        same = here.metadata.uid == last.metadata.uid
        if same or is_older(here.metadata.resource_version, last.metadata.resource_version):
            self._drop(key)

    def _is_older(self, key: Key, thing: T) -> bool:
        here = self._objects.get(key)
        return here is not None and is_older(thing.metadata.resource_version, here.metadata.resource_version)

    def _put(self, key: Key, new: T) -> None:
        old = self._objects.get(key)
        if old is not None:
            if old.metadata.resource_version == new.metadata.resource_version:
                return
            if old.metadata.uid != new.metadata.uid:
                self._drop(key)
                old = None
        self._objects[key] = new
        for handler in self._handlers:
            handler(old, new)

    def _drop(self, key: Key) -> None:
        old = self._objects.pop(key)
        for handler in self._handlers:
            handler(old, None)


def freeze_heap() -> None:
    """Take what lives now out of garbage collection, and collect less often. Call it when everything is imported and
    again after the first sync: neither modules nor what caches hold become garbage in a cycle, and a full collection
    over them holds the loop for tens of milliseconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
