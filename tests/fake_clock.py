"""A clock that moves only when a test says so."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class FakeClock:
    def __init__(self, start=1000.0):
        self._now = start
        self._calls = []
        self._count = 0

    def monotonic(self):
        return self._now

    def now(self):
        return datetime(2026, 11, 16, tzinfo=UTC) + timedelta(seconds=self._now)

    def call_later(self, seconds, call):
        timer = _Timer(call)
        self._count += 1
        heapq.heappush(self._calls, (self._now + seconds, self._count, timer))
        return timer

    async def sleep(self, seconds):
        if seconds <= 0:
            return
        woken = asyncio.get_running_loop().create_future()
        self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        await woken

    @property
    def next(self):
        """When the next call is due; None where there is none."""
        while self._calls and self._calls[0][2].cancelled:
            heapq.heappop(self._calls)
        return self._calls[0][0] if self._calls else None

    def advance(self, seconds):
        """Move on, making the calls that fall due, each at its own time."""
        end = self._now + seconds
        while self._calls and self._calls[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._calls)
            if not timer.cancelled:
                timer.call()
        self._now = end


class _Timer:
    def __init__(self, call):
        self.call = call
        self.cancelled = False

    def cancel(self):
        self.cancelled = True
