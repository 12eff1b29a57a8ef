"""All objects of one kind in memory, with indexes, kept true by a Reflector.

Reads never wait and never scan. Objects are shared and frozen. Everything runs on one event loop; nothing here awaits
except `synced`.
"""

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from instaslice.kube.meta import Key, Object, key_of

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
        gone = [thing for key, thing in self._objects.items() if key not in objects]
        for thing in gone:
            self.remove(thing)
        for thing in objects.values():
            self.upsert(thing)
        self._synced.set()

    def upsert(self, new: T) -> None:
        """Take in one object as it is now; one whose resource version is already here is no news."""
        key = key_of(new)
        old = self._objects.get(key)
        if old is not None:
            if old.metadata.resource_version == new.metadata.resource_version:
                return
            if old.metadata.uid != new.metadata.uid:
                self.remove(old)
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

    def refresh(self, answer: T) -> None:
        """Take in what a write of ours was answered with, before the watch tells the same. Of an object that is gone
        by now, or is another, it is no news: the answer may be read after the watch has told of the end."""
        here = self._objects.get(key_of(answer))
        if here is not None and here.metadata.uid == answer.metadata.uid:
            self.upsert(answer)

    def remove(self, last: T) -> None:
        """Drop one object; handlers see its last state before the deletion as we knew it. Unknown is no news."""
        key = key_of(last)
        old = self._objects.pop(key, None)
        if old is None:
            return
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
