"""Keep a store true to the API server: list, then watch, for ever.

One Reflector a kind. It fills the store by a watch-list (the server streams what is there, then a bookmark, then the
changes, in one answer) or, from servers that refuse that, by a paged list and a watch. It resumes where it was when a
connection ends, lists afresh when the server forgot where that was (410) or has never been there (it was restored from
a backup), and replaces connections that went silent.
"""

import logging
import random
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar, cast

import msgspec

from instaslice.kube import errors
from instaslice.kube.client import EVERYTHING, Client, Selector
from instaslice.kube.clock import Clock
from instaslice.kube.core import PartialObjectMetadata
from instaslice.kube.limits import Backoff
from instaslice.kube.lines import LineSplitter
from instaslice.kube.meta import Key, Object, ObjectMeta, is_older, key_of
from instaslice.kube.resource import Resource, UnreadableObject

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)

SILENT_AFTER = 90.0
"""Seconds without a byte after which a watch is taken for dead. The server sends a bookmark each minute; where it does
not, we only reconnect to a quiet watch a little too often."""
WATCH_SECONDS = (300, 600)
MAX_PAUSE = 10.0
HEALTHY_SECONDS = 5.0
"""A connection that lasted so long was a good one: the next wait is a short one again. Counting all failures of the
last minutes, as others do, leaves us blind for up to a minute after a server that was restarted twice is back."""
GATHER_SECONDS = 0.002
"""Between two reads of a list that streams in. The server sends each object by itself; taking many at once halves our
CPU, and nobody sees any of them before the last is there."""
FLOOD_SECONDS = 0.01
"""A change that comes alone is read as it comes. Several at once, or one so soon after another, are a flood: more are
let gather for as long."""
INITIAL_END = "k8s.io/initial-events-end"

# What nearly every line starts with. The test is only a short cut past the two-step decode that copes with all lines.
_CARRIES_OBJECT = (b'{"type":"ADDED"', b'{"type":"MODIFIED"', b'{"type":"DELETED"')


class Store(Protocol[T]):
    """What a Reflector writes to; Cache is one."""

    def get(self, key: Key) -> T | None: ...

    def replace(self, objects: Mapping[Key, T]) -> None: ...

    def upsert(self, new: T) -> None: ...

    def remove(self, last: T) -> None: ...


class _AnyEvent(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _MarkMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Mark(msgspec.Struct, gc=False):
    """A bookmark: an object of the kind with all but this left empty, some of it null where the kind wants a list."""

    metadata: _MarkMeta


_any_event = msgspec.json.Decoder(_AnyEvent)
_mark = msgspec.json.Decoder(_Mark)
_status = msgspec.json.Decoder(errors.Status)


class Reflector(Generic[T]):
    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        store: Store[T],
        *,
        clock: Clock,
        rng: random.Random,
        selector: Selector = EVERYTHING,
        silent_after: float = SILENT_AFTER,
        watch_list: bool = True,
        unreadable: Callable[[ObjectMeta, errors.Unreadable], None] = lambda _, error: log.warning("%s", error),
    ) -> None:
        """`unreadable` is told of an object that cannot be read, by its name, uid and version. In the store it stays as
        it was before; where it never could be read it is not there."""
        self._client = client
        self._resource = resource
        self._store = store
        self._clock = clock
        self._rng = rng
        self._selector = selector
        self._silent_after = silent_after
        self._watch_list = watch_list
        self._unreadable = unreadable
        self._backoff = Backoff(clock=clock, rng=rng, most=MAX_PAUSE, forget_after=HEALTHY_SECONDS)
        self._what = f"watch {resource.plural} {selector.namespace}".rstrip()
        self._version: str | None = None
        """Where to resume; None: list first."""
        self._initial: dict[Key, T] | None = None
        """What a watch-list has sent so far; swapped in only when complete."""
        self._heard = clock.monotonic()
        self.failure: errors.KubeError | None = None
        """Why the last connection ended, where it did not end well; None while all is well."""

    async def run(self) -> None:
        """Never returns. A server that refuses or does not answer is said in the log and asked again, ever slower."""
        while True:
            resumed = self._version is not None
            began, before = self._clock.monotonic(), self._version
            try:
                await self._connect()
                if self._version != before or self._clock.monotonic() - began >= 1:
                    continue
                # A server that hangs up at once, without a word, is not to be asked again at once.
                log.warning("%s: the server ended the watch at once", self._what)
            except errors.Gone as error:
                self._version = None
                if resumed:
                    log.info("%s; listing afresh", error)
                    continue
                self._failed(error)
            except errors.KubeError as error:
                self._failed(error)
            await self._clock.sleep(self._backoff.next())

    async def _connect(self) -> None:
        """One connection to its end. Leaves `_version` where the next one may resume."""
        if self._version is None and self._watch_list:
            try:
                await self._stream({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
                return
            except (errors.Invalid, errors.BadRequest) as error:
                log.info("%s; this server has no watch-list, listing in pages", error)
                self._watch_list = False
        if self._version is None:
            await self._list()
        elif self.failure is not None:
            self._reached(await self._client.version(self._resource, self._selector))
        await self._stream({"resourceVersion": self._version or ""})

    async def _list(self) -> None:
        objects: dict[Key, T] = {}
        version = ""
        async for page in self._client.pages(self._resource, self._selector):
            objects.update((key_of(thing), thing) for thing in page.items or ())
            for each in page.unreadable:
                self._leave(each, objects)
            version = page.metadata.resource_version
        self._store.replace(objects)
        self._version = version

    async def _stream(self, params: dict[str, str]) -> None:
        self._initial = {} if "sendInitialEvents" in params else None
        params |= {
            "allowWatchBookmarks": "true",
            # Spread out, so that after a restart of the server its watchers do not all come back together for ever.
            "timeoutSeconds": str(self._rng.randint(*WATCH_SECONDS)),
        }
        lines = LineSplitter()
        async with self._client.watch(
            self._resource, self._selector, params, silent_after=self._silent_after
        ) as chunks:
            while chunk := await chunks.read():
                before, self._heard = self._heard, self._clock.monotonic()
                came = lines.feed(chunk)
                for line in came:
                    self._take(line)
                self.failure = None
                if self._initial is not None:
                    await chunks.gather(GATHER_SECONDS)
                elif len(came) > 1 or self._heard - before < FLOOD_SECONDS:
                    await chunks.gather(FLOOD_SECONDS)

    def _take(self, line: bytes) -> None:
        if not line.startswith(_CARRIES_OBJECT) and self._mark(line):
            return
        try:
            event = self._resource.event_decoder.decode(line)
        except msgspec.DecodeError as error:
            self._take_unreadable(line, error)
            return
        thing = event.object
        if self._initial is not None:
            self._initial[key_of(thing)] = thing
            return
        self._reached(thing.metadata.resource_version)
        if event.type == "DELETED":
            self._store.remove(thing)
        else:
            self._store.upsert(thing)
        self._version = thing.metadata.resource_version

    def _reached(self, version: str) -> None:
        """What the server has come to. Raises Gone where we were further already: then it was restored from a backup,
        and what it did since under versions that we take for known would never be told. It does not say so by itself:
        a watch from a version that it has not reached yet is accepted, and is silent until then."""
        if is_older(version, self._version or ""):
            raise errors.Gone(f"{self._what}: the server went back from version {self._version} to {version}")

    def _take_unreadable(self, line: bytes, error: msgspec.DecodeError) -> None:
        event = self._event(line)
        left_out = self._resource.unreadable(event.object, error)
        if self._initial is not None:
            self._leave(left_out, self._initial)
            return
        if event.type == "DELETED":
            # Of what was, only the name matters.
            self._store.remove(cast(T, PartialObjectMetadata(metadata=left_out.metadata)))
        else:
            self._unreadable(*left_out)
        self._version = left_out.metadata.resource_version

    def _leave(self, left_out: UnreadableObject, objects: dict[Key, T]) -> None:
        """Of an object in a list that cannot be read: as it was before."""
        key = Key(left_out.metadata.namespace, left_out.metadata.name)
        before = self._store.get(key)
        if before is not None and before.metadata.uid == left_out.metadata.uid:
            objects[key] = before
        self._unreadable(*left_out)

    def _event(self, line: bytes) -> _AnyEvent:
        try:
            return _any_event.decode(line)
        except msgspec.MsgspecError as error:
            raise errors.Unreadable(f"{self._what}: the server sends what is no watch: {error}") from None

    def _mark(self, line: bytes) -> bool:
        """Deal with a line that carries no object; False if it does after all."""
        event = self._event(line)
        match event.type:
            case "ERROR":
                status = _status.decode(event.object)
                raise errors.from_status(self._what, status, status.code)
            case "BOOKMARK":
                mark = _mark.decode(event.object).metadata
                if self._initial is None:
                    self._reached(mark.resource_version)
                    self._version = mark.resource_version
                elif (mark.annotations or {}).get(INITIAL_END) == "true":
                    self._store.replace(self._initial)
                    self._initial = None
                    self._version = mark.resource_version
                return True
        return False

    def _failed(self, error: errors.KubeError) -> None:
        self.failure = error
        log.warning("%s", error)
