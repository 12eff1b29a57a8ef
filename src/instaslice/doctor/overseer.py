"""Follows a cluster while something happens in it, and says at which moment a rule was broken.

A check at the end sees what is; a place that was given to two pods for a second is seen only by following. Watches of
two kinds run at their own pace, but every write has its place in one order, the resource version: so events are put
into that order first, and judged then. Where a watch had to begin anew (the API server forgot where it was), what
happened between is not known, and judging begins anew too.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self, TypeVar

from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.doctor.findings import Finding
from instaslice.doctor.replay import Event, Holds, Replay
from instaslice.doctor.world import World, look
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock, SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import Key, Object, key_of
from instaslice.kube.watch import Reflector

T = TypeVar("T", bound=Object)

RETRY_SECONDS = 0.2
PATIENCE = 60.0
"""Seconds for which the server may be away when the end is judged."""


@dataclass
class Segment:
    """What both watches told without a gap, from a world that is known."""

    base: World
    events: list[Event] = field(default_factory=list)


class Tape(Generic[T]):
    """What one watch told. A Store for a Reflector."""

    def __init__(self, overseer: "Overseer") -> None:
        self._overseer = overseer
        self._told: dict[Key, int] = {}
        """The last version of each object, of one that is gone the version of its removal."""
        self._gone: set[Key] = set()
        self.synced = asyncio.Event()

    def get(self, key: Key) -> T | None:
        """Nothing: a tape keeps versions, and what cannot be read it cannot tell."""
        return None

    def replace(self, objects: Mapping[Key, T]) -> None:
        self._told = {key: _version(thing) for key, thing in objects.items()}
        self._gone = set()
        self.synced.set()
        self._overseer.gap()

    def upsert(self, new: T) -> None:
        self._told[key_of(new)] = _version(new)
        self._gone.discard(key_of(new))
        self._overseer.heard(new, gone=False)

    def remove(self, last: T) -> None:
        self._told[key_of(last)] = _version(last)
        self._gone.add(key_of(last))
        self._overseer.heard(last, gone=True)

    def has_come_to(self, there: Mapping[Key, int], version: int) -> bool:
        """Whether it has told all that led to this list of that version."""
        behind = any(self._told.get(key, 0) < each for key, each in there.items())
        # Removed by then, and the removal has not been told.
        extra = any(each <= version for key, each in self._told.items() if key not in there and key not in self._gone)
        return not behind and not extra


class Overseer:
    """`async with Overseer(client) as overseer: ...`, then `overseer.findings`: complete when the block is left."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._pods: Tape[Pod] = Tape(self)
        self._things: Tape[Instaslice] = Tape(self)
        self._recent: list[Event] = []
        self._segment: Segment | None = None
        self._holds: Holds = {}
        self._gaps = 0
        self._gapped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.findings: list[Finding] = []
        self.judged = 0
        """Events that were judged: a test may want to know that there were any."""

    async def __aenter__(self) -> Self:
        rng = random.Random(1)
        pods = Reflector(self._client, PODS, self._pods, clock=self._clock, rng=rng)
        things = Reflector(self._client, INSTASLICES, self._things, clock=self._clock, rng=rng)
        self._tasks = [asyncio.create_task(each) for each in (pods.run(), things.run())]
        self._tasks.append(asyncio.create_task(self._begin_anew()))
        async with asyncio.timeout(PATIENCE):
            while self._segment is None:
                await self._clock.sleep(0.01)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.catch_up()
            self._judge(None)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def heard(self, thing: Pod | Instaslice | Object, *, gone: bool) -> None:
        assert isinstance(thing, Pod | Instaslice)
        event = Event(_version(thing), thing, gone)
        (self._segment.events if self._segment else self._recent).append(event)

    def gap(self) -> None:
        """A watch began with a list: what happened before it is judged as far as both watches told it."""
        self._gaps += 1
        if self._segment is not None:
            last: dict[type, int] = {}
            for event in self._segment.events:
                last[type(event.thing)] = max(event.version, last.get(type(event.thing), 0))
            self._judge(min(last.get(Pod, 0), last.get(Instaslice, 0)))
        self._recent = []
        self._gapped.set()

    def _judge(self, until: int | None) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        replay = Replay(segment.base, self._holds)
        begins = int(segment.base.version)
        later: list[Event] = []
        for event in sorted(segment.events, key=lambda each: each.version):
            if until is not None and event.version > until:
                later.append(event)
            elif event.version > begins:
                replay.take(event)
                self.judged += 1
        self.findings += replay.findings
        # Of these we know that they happened, but not what happened between: who holds what follows, what is wrong not.
        for event in later:
            replay.take(event)
        self._holds = replay.certain_holds()

    async def _begin_anew(self) -> None:
        while True:
            await self._gapped.wait()
            await self._pods.synced.wait()
            await self._things.synced.wait()
            # Only now: the first lists of the two watches are one beginning. Looking a second time would drop what
            # was told since the first.
            self._gapped.clear()
            before = self._gaps
            base = await self._look()
            if before == self._gaps:
                self._segment = Segment(base, self._recent)
                self._recent = []

    async def catch_up(self) -> None:
        """Until the watches have told all that the server tells a list now."""
        now = await self._look()
        version = int(now.version)
        pods = {key_of(pod): _version(pod) for pod in now.pods}
        things = {key_of(thing): _version(thing) for thing in now.instaslices}
        async with asyncio.timeout(PATIENCE):
            while not (
                self._segment is not None
                and self._pods.has_come_to(pods, version)
                and self._things.has_come_to(things, version)
            ):
                await self._clock.sleep(0.02)

    async def _look(self) -> World:
        over = self._clock.monotonic() + PATIENCE
        while True:
            try:
                return await look(self._client, self._clock)
            except KubeError:
                if self._clock.monotonic() >= over:
                    raise
                await self._clock.sleep(RETRY_SECONDS)


def _version(thing: Object) -> int:
    return int(thing.metadata.resource_version)
