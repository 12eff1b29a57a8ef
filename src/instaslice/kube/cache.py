"""All objects of one kind in memory, with indexes, kept true by a Reflector.

Reads never wait and never scan. Objects are shared and frozen. Everything runs on one event loop; nothing here awaits
except `synced`.

Two sources race: the watch, and the answers to our own writes, which may be read before or after the watch tells the
same or more. Whatever is older than what is here is therefore ignored; only a complete list can go back, which is how
a server that was restored from a backup is followed. designs/0002-our-own-kube-client.md has the cases.
"""

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from instaslice.kube.meta import Key, Object, is_older, key_of

T = TypeVar("T", bound=Object)

Index = Callable[[T], Iterable[str]]
"""The values under which an object is found: its node, its owner; none for an object that has none."""
Handler = Callable[[T | None, T | None], None]
"""Called with (old, new) after the cache changed: (None, new) came, (old, new) changed, (old, None) went. Old and new
are the same object: one deleted and made anew under its name goes first and comes then. What it raises ends the watch
and with it the process, so it hands its work to a queue."""


class Cache(Generic[T]):
    def __init__(self, *, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        self._indexes = dict(indexes or {})
        self._found: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in self._indexes}
        self._handlers: list[Handler[T]] = []
        self._answered: set[Key] = set()
        """Objects that an answer changed since the last complete list, and the watch has not caught up with."""
        self._synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def by(self, index: str, value: str) -> list[T]:
        """The objects whose index function named this value, in the order they came."""
        return list(self._found[index].get(value, {}).values())

    def on_change(self, handler: Handler[T]) -> None:
        """Call it for what is here already, and for every change from now on."""
        self._handlers.append(handler)
        for thing in self:
            handler(None, thing)

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def synced(self) -> None:
        """Return once the cache holds what a first complete list held."""
        await self._synced.wait()

    def replace(self, objects: Mapping[Key, T]) -> None:
        """Become this complete list. Handlers hear the difference only: what left while nobody watched, what came,
        what has another resource version; nothing twice."""
        # The server may have made the list before it answered a write, so the list may lack what the answer said. If
        # anything else is older in the list than here, this is a different history: etcd was restored from a backup.
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
        """Take in one object as the watch tells it; one that is older than what is here, or as old, is no news."""
        key = key_of(new)
        if not self._is_older(key, new):
            self._answered.discard(key)
            self._put(key, new)

    def refresh(self, answer: T) -> None:
        """Take in what a write of ours was answered with, before the watch tells the same. Of an object that is gone
        by now, or is another, it is no news: the answer may be read after the watch has told of the end."""
        key = key_of(answer)
        here = self._objects.get(key)
        if here is None or here.metadata.uid != answer.metadata.uid:
            return
        if not self._is_older(key, answer) and here.metadata.resource_version != answer.metadata.resource_version:
            self._answered.add(key)
            self._put(key, answer)

    def remove(self, last: T) -> None:
        """Drop one object; handlers see its last state before the deletion as we knew it. Unknown is no news, and so
        is the end of one that had the name before."""
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
            else:
                self._forget(key, old)
        self._objects[key] = new
        for name, values_of in self._indexes.items():
            found = self._found[name]
            for value in values_of(new):
                found.setdefault(value, {})[key] = new
        for handler in self._handlers:
            handler(old, new)

    def _drop(self, key: Key) -> None:
        old = self._objects.pop(key)
        self._forget(key, old)
        for handler in self._handlers:
            handler(old, None)

    def _forget(self, key: Key, old: T) -> None:
        for name, values_of in self._indexes.items():
            found = self._found[name]
            for value in values_of(old):
                entries = found[value]
                entries.pop(key, None)
                if not entries:
                    del found[value]


def freeze_heap() -> None:
    """Take what lives now out of garbage collection, and collect less often. Call it when everything is imported and
    again after the first sync: neither modules nor what caches hold become garbage in a cycle, and a full collection
    over them holds the loop for tens of milliseconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
