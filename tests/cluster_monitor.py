"""Watch a live cluster and check its history: which write broke an invariant.

A check at the end sees only the final state, not a placement that two pods held for a second. The watches of pods and
of Instaslice objects are independent, but resource versions order all writes: writes are sorted by version first, then
checked. After a gap (the API server no longer has the version at which a watch stopped) the check starts again from a
new state.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self, TypeVar

from cluster_history import HistoryCheck, ObjectWrite, SlicesInUse

from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.doctor.findings import Finding
from instaslice.doctor.observed_cluster import ObservedCluster
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock, SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import Key, Object, key_of
from instaslice.kube.watch import Reflector

T = TypeVar("T", bound=Object)

RETRY_SECONDS = 0.2
PATIENCE = 60.0
"""Seconds for which the API server may be unreachable at the beginning and the end."""


@dataclass
class HistorySegment:
    """The writes that both watches reported without a gap, after a known state."""

    base: ObservedCluster
    writes: list[ObjectWrite] = field(default_factory=list)


class WatchLog(Generic[T]):
    """What one watch has reported. A Store for a Reflector."""

    def __init__(self, monitor: "ClusterMonitor") -> None:
        self._monitor = monitor
        self._versions: dict[Key, int] = {}
        """The last version of each object; of a deleted one the version of its deletion."""
        self._deleted: set[Key] = set()
        self.synced = asyncio.Event()

    def get(self, key: Key) -> T | None:
        """None: only versions are kept."""
        return None

    def replace(self, objects: Mapping[Key, T]) -> None:
        self._versions = {key: _version(each) for key, each in objects.items()}
        self._deleted = set()
        self.synced.set()
        self._monitor.on_gap()

    def upsert(self, new: T) -> None:
        self._versions[key_of(new)] = _version(new)
        self._deleted.discard(key_of(new))
        self._monitor.on_write(new, deleted=False)

    def remove(self, last: T) -> None:
        self._versions[key_of(last)] = _version(last)
        self._deleted.add(key_of(last))
        self._monitor.on_write(last, deleted=True)

    def includes(self, listed: Mapping[Key, int], version: int) -> bool:
        """Whether every write up to this list of this version has been reported."""
        behind = any(self._versions.get(key, 0) < each for key, each in listed.items())
        # Deleted by then, and the deletion has not been reported.
        extra = any(
            each <= version for key, each in self._versions.items() if key not in listed and key not in self._deleted
        )
        return not behind and not extra


class ClusterMonitor:
    """`async with ClusterMonitor(client) as monitor: ...`, then `monitor.findings`: complete when the block is left."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._pods: WatchLog[Pod] = WatchLog(self)
        self._instaslices: WatchLog[Instaslice] = WatchLog(self)
        self._recent: list[ObjectWrite] = []
        self._segment: HistorySegment | None = None
        self._in_use: SlicesInUse = {}
        self._gaps = 0
        self._gapped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.findings: list[Finding] = []
        self.checked = 0
        """Writes that were checked, for tests that require some."""

    async def __aenter__(self) -> Self:
        rng = random.Random(1)
        pods = Reflector(self._client, PODS, self._pods, clock=self._clock, rng=rng)
        instaslices = Reflector(self._client, INSTASLICES, self._instaslices, clock=self._clock, rng=rng)
        self._tasks = [
            asyncio.create_task(each) for each in (pods.run(), instaslices.run(), self._restart_after_gaps())
        ]
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
            self._check(None)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def on_write(self, thing: Object, *, deleted: bool) -> None:
        assert isinstance(thing, Pod | Instaslice)
        write = ObjectWrite(_version(thing), thing, deleted)
        (self._segment.writes if self._segment else self._recent).append(write)

    def on_gap(self) -> None:
        """A watch started with a list: the history before it is checked as far as both watches reported it."""
        self._gaps += 1
        if self._segment is not None:
            last: dict[type, int] = {}
            for write in self._segment.writes:
                last[type(write.object)] = max(write.version, last.get(type(write.object), 0))
            self._check(min(last.get(Pod, 0), last.get(Instaslice, 0)))
        self._recent = []
        self._gapped.set()

    def _check(self, until: int | None) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        check = HistoryCheck(segment.base, self._in_use)
        begins = int(segment.base.version)
        later: list[ObjectWrite] = []
        for write in sorted(segment.writes, key=lambda each: each.version):
            if until is not None and write.version > until:
                later.append(write)
            elif write.version > begins:
                check.apply(write)
                self.checked += 1
        self.findings += check.findings
        # Between these writes others may be missing: they say which slices are in use, but not what is wrong.
        for write in later:
            check.apply(write)
        self._in_use = check.confirmed_in_use()

    async def _restart_after_gaps(self) -> None:
        while True:
            await self._gapped.wait()
            await self._pods.synced.wait()
            await self._instaslices.synced.wait()
            # Not earlier: the first lists of the two watches are one gap. A second base would drop the writes reported
            # since the first.
            self._gapped.clear()
            before = self._gaps
            base = await self._read()
            if before == self._gaps:
                self._segment = HistorySegment(base, self._recent)
                self._recent = []

    async def catch_up(self) -> None:
        """Return once the watches have reported every write that a list returns now."""
        now = await self._read()
        version = int(now.version)
        pods = {key_of(pod): _version(pod) for pod in now.pods}
        instaslices = {key_of(each): _version(each) for each in now.instaslices}
        async with asyncio.timeout(PATIENCE):
            while not (
                self._segment is not None
                and self._pods.includes(pods, version)
                and self._instaslices.includes(instaslices, version)
            ):
                await self._clock.sleep(0.02)

    async def _read(self) -> ObservedCluster:
        deadline = self._clock.monotonic() + PATIENCE
        while True:
            try:
                return await ObservedCluster.read(self._client, self._clock)
            except KubeError:
                if self._clock.monotonic() >= deadline:
                    raise
                await self._clock.sleep(RETRY_SECONDS)


def _version(thing: Object) -> int:
    return int(thing.metadata.resource_version)
