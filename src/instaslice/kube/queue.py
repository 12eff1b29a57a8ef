"""Keys to reconcile: each once however often it was added, never two workers on one.

The names follow client-go's work queue. Holds keys, not objects: a worker reads the cache when its turn comes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from instaslice.errors import InstasliceError
from instaslice.kube.clock import Clock, Timer
from instaslice.kube.limits import TokenBucket, exponential_delay

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

FIRST_DELAY = 0.005
MAX_DELAY = 1000.0


class _Stop:
    """Behind the last key of a queue that was shut down."""


_STOP: Final = _Stop()


class Queue(Generic[K]):
    def __init__(self, *, clock: Clock, rate: float = 10.0, burst: int = 100) -> None:
        """`rate` and `burst` hold for retries of all keys together, as client-go does."""
        self._clock = clock
        self._bucket = TokenBucket(rate=rate, burst=burst, clock=clock)
        self._ready: asyncio.Queue[K | _Stop] = asyncio.Queue()
        self._dirty: set[K] = set()
        self._active: set[K] = set()
        self._later: dict[K, tuple[float, Timer]] = {}
        self._failures: dict[K, int] = {}
        self._stopped = False

    def __len__(self) -> int:
        """Keys that wait for a worker, without those of `add_after`."""
        return len(self._dirty)

    def add(self, key: K) -> None:
        """Have the key reconciled. While a worker is on it, that means once more when the worker is done."""
        assert key is not None, "None is what ends a worker"
        if self._stopped or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Add later; of several waits for one key the shortest counts."""
        if self._stopped:
            return
        due = self._clock.monotonic() + seconds
        waiting = self._later.get(key)
        if waiting is not None:
            if waiting[0] <= due:
                return
            waiting[1].cancel()
        self._later[key] = due, self._clock.call_later(seconds, lambda: self._due(key))

    def retry(self, key: K) -> float:
        """Add after a failure; each in a row doubles the wait, until `forget`. Returns the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = max(exponential_delay(FIRST_DELAY, MAX_DELAY, failures), self._bucket.reserve())
        self.add_after(key, wait)
        return wait

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure is its first."""
        self._failures.pop(key, None)

    async def get(self) -> K | None:
        """The next key, to be given back with `done`; None when the queue was shut down and is empty."""
        key = await self._ready.get()
        while isinstance(key, _Stop):
            self._ready.put_nowait(_STOP)
            if self._ready.qsize() == 1:
                return None
            # A key that was added while a worker was on it stands behind the mark.
            key = await self._ready.get()
        self._dirty.discard(key)
        self._active.add(key)
        return key

    def done(self, key: K) -> None:
        self._active.discard(key)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def shut_down(self) -> None:
        """Accept no more keys, drop the delayed ones, let workers finish what is ready. Safe to repeat."""
        if self._stopped:
            return
        self._stopped = True
        for _, timer in self._later.values():
            timer.cancel()
        self._later.clear()
        self._ready.put_nowait(_STOP)

    async def work(self, reconcile: Callable[[K], Awaitable[float | None]], *, workers: int = 1) -> None:
        """Reconcile keys until the queue is shut down.

        `reconcile` returns the seconds after which to reconcile again, or None. An InstasliceError is logged and the
        key retried; any other exception is a defect and ends all workers.
        """
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._worker(reconcile), name=f"queue worker {number}")

    async def _worker(self, reconcile: Callable[[K], Awaitable[float | None]]) -> None:
        while (key := await self.get()) is not None:
            try:
                again = await reconcile(key)
            except InstasliceError as error:
                wait = self.retry(key)
                log.warning("%s: %s; again in %.3g s", key, error, wait)
            else:
                self.forget(key)
                if again is not None:
                    self.add_after(key, again)
            finally:
                self.done(key)

    def _due(self, key: K) -> None:
        del self._later[key]
        self.add(key)
