"""Keep a store in sync with the API server: list, then watch.

One Reflector per kind. It fills the store by a watch-list (the server streams what is there, then a bookmark, then the
changes, in one answer) or, from servers that refuse that, by a paged list and a watch. It resumes where it was when a
connection ends, lists again when the server has compacted that version (410) or never reached it (it was restored from
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
"""Seconds without a byte after which a watch is opened again. The server sends a bookmark each minute, but none of a
kind that has not changed since the server started: where nothing is wrong, nothing is said."""
WATCH_SECONDS = (300, 600)
MAX_PAUSE = 10.0
HEALTHY_SECONDS = 5.0
"""A connection that lasted so long was healthy: the next wait is a short one again. Counting all failures of the
last minutes, as others do, leaves us blind for up to a minute after a server that was restarted twice is back."""
GATHER_SECONDS = 0.002
"""Between two reads of a list that streams in. The server sends each object by itself; taking many at once halves our
CPU, and nobody sees any of them before the last is there."""
FLOOD_SECONDS = 0.01
"""A single change is read as it arrives. Several at once, or two within this time, are a flood: more may gather for as
long."""
END_REASONS = ("ended", "gone", "quiet", "failed")
"""Why a watch is opened again: the server ended it, which it does every few minutes; it no longer has the version where
we were; nothing came for long; or it failed."""
INITIAL_END = "k8s.io/initial-events-end"

# How nearly every line starts. The test only skips the two-step decode that handles all lines.
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
        """`unreadable` is called for an object that cannot be decoded, with its name, uid and version. The store keeps
        its last readable version, where there was one."""
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
        self._last_read = clock.monotonic()
        self.failure: errors.KubeError | None = None
        """Why the last connection failed; None while it is healthy."""

    async def run(self) -> None:
        """Until cancelled. Failures are logged and retried with backoff. Raises BadRequest where the server cannot read
        the selector: it never will."""
        while True:
            resumed = self._version is not None
            began, before = self._clock.monotonic(), self._version
            try:
                await self._connect()
                self._ended("ended")
                if self._version != before or self._clock.monotonic() - began >= 1:
                    continue
                # A server that ends a watch at once, without an error, must not be asked again at once.
                log.warning("%s: the server ended the watch at once", self._what)
            except errors.Gone as error:
                self._ended("gone")
                self._version = None
                if resumed:
                    log.info("%s; listing again", error)
                    continue
                self._failed(error)
            except errors.Quiet as error:
                self._ended("quiet")
                if self._version is not None:
                    # Said only if the server does not answer now either.
                    self.failure = error
                    continue
                self._failed(error)
            except errors.BadRequest as error:
                if self._version is None and self._selector.params():
                    raise
                self._ended("failed")
                self._failed(error)
            except errors.KubeError as error:
                self._ended("failed")
                self._failed(error)
            await self._clock.sleep(self._backoff.next())

    async def _connect(self) -> None:
        """One connection to its end. Leaves `_version` where the next one may resume."""
        refused: errors.KubeError | None = None
        if self._version is None and self._watch_list:
            try:
                await self._stream({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
                return
            except (errors.Invalid, errors.BadRequest) as error:
                self._watch_list, refused = False, error
        if self._version is None:
            await self._list()
            if refused is not None:
                # Not before: a list is refused too where it is the selector that the server cannot read.
                log.info("%s; this server has no watch-list, listing in pages", refused)
        elif self.failure is not None:
            self._check_progress(await self._client.version(self._resource, self._selector))
        await self._stream({"resourceVersion": self._version or ""})

    async def _list(self) -> None:
        objects: dict[Key, T] = {}
        version = ""
        async for page in self._client.pages(self._resource, self._selector):
            objects.update((key_of(thing), thing) for thing in page.items or ())
            for each in page.unreadable:
                self._keep_previous(each, objects)
            version = page.metadata.resource_version
        self._store.replace(objects)
        self._version = version

    async def _stream(self, params: dict[str, str]) -> None:
        self._initial = {} if "sendInitialEvents" in params else None
        params |= {
            "allowWatchBookmarks": "true",
            # Spread out, so that after a restart of the server its watchers do not reconnect together from then on.
            "timeoutSeconds": str(self._rng.randint(*WATCH_SECONDS)),
        }
        lines = LineSplitter()
        async with self._client.watch(
            self._resource, self._selector, params, silent_after=self._silent_after
        ) as chunks:
            while chunk := await chunks.read():
                before, self._last_read = self._last_read, self._clock.monotonic()
                complete = lines.feed(chunk)
                for line in complete:
                    self._handle(line)
                self.failure = None
                if self._initial is not None:
                    await chunks.gather(GATHER_SECONDS)
                elif len(complete) > 1 or self._last_read - before < FLOOD_SECONDS:
                    await chunks.gather(FLOOD_SECONDS)

    def _handle(self, line: bytes) -> None:
        if not line.startswith(_CARRIES_OBJECT) and self._handle_control(line):
            return
        try:
            event = self._resource.event_decoder.decode(line)
        except msgspec.DecodeError as error:
            self._handle_unreadable(line, error)
            return
        thing = event.object
        if self._initial is not None:
            self._initial[key_of(thing)] = thing
            return
        self._check_progress(thing.metadata.resource_version)
        if event.type == "DELETED":
            self._store.remove(thing)
        else:
            self._store.upsert(thing)
        self._version = thing.metadata.resource_version

    def _check_progress(self, version: str) -> None:
        """The server is at this version. Raises Gone where we were ahead of it: then it was restored from a backup, and
        would never send what it did since under versions that we have seen. It does not report this: it accepts a watch
        from a version that it has not reached, and is silent until then."""
        if is_older(version, self._version or ""):
            raise errors.Gone(f"{self._what}: the server went back from version {self._version} to {version}")

    def _handle_unreadable(self, line: bytes, error: msgspec.DecodeError) -> None:
        event = self._event(line)
        broken = self._resource.unreadable(event.object, error)
        if self._initial is not None:
            self._keep_previous(broken, self._initial)
            return
        if event.type == "DELETED":
            # Of what was, only the name matters.
            self._store.remove(cast(T, PartialObjectMetadata(metadata=broken.metadata)))
        else:
            self._unreadable(*broken)
        self._version = broken.metadata.resource_version

    def _keep_previous(self, broken: UnreadableObject, objects: dict[Key, T]) -> None:
        """Of an object in a list that cannot be decoded: keep its last readable version."""
        key = Key(broken.metadata.namespace, broken.metadata.name)
        before = self._store.get(key)
        if before is not None and before.metadata.uid == broken.metadata.uid:
            objects[key] = before
        self._unreadable(*broken)

    def _event(self, line: bytes) -> _AnyEvent:
        try:
            return _any_event.decode(line)
        except msgspec.MsgspecError as error:
            raise errors.Unreadable(
                f"{self._what}: the server sent something that is not a watch event: {error}"
            ) from None

    def _handle_control(self, line: bytes) -> bool:
        """Handle a line without an object (an error, a bookmark); False if it has one after all."""
        event = self._event(line)
        match event.type:
            case "ERROR":
                status = _status.decode(event.object)
                raise errors.from_status(self._what, status, status.code)
            case "BOOKMARK":
                mark = _mark.decode(event.object).metadata
                if self._initial is None:
                    self._check_progress(mark.resource_version)
                    self._version = mark.resource_version
                elif (mark.annotations or {}).get(INITIAL_END) == "true":
                    self._store.replace(self._initial)
                    self._initial = None
                    self._version = mark.resource_version
                return True
        return False

    def _ended(self, reason: str) -> None:
        self._client.observer.watch_ended(self._resource.plural, reason)

    def _failed(self, error: errors.KubeError) -> None:
        self.failure = error
        log.warning("%s", error)
