"""A clock that moves only when a test says so."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class FakeClock:
    def __init__(self):
        self._now = 1000.0
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

    def advance(self, seconds):
        """Move on, making the calls that fall due, each at its own time."""
        end = self._now + seconds
        while self._calls and self._calls[0][0] <= end:
            due, _, timer = heapq.heappop(self._calls)
            self._now = max(self._now, due)
            if not timer.cancelled:
                timer.call()
        self._now = end

    def skip(self, seconds):
        """Move on as a process does that was stopped: what fell due meanwhile comes late, with the next `advance`."""
        self._now += seconds

    @property
    def waiting(self):
        """Calls that are still to be made."""
        return sum(not timer.cancelled for _, _, timer in self._calls)


class JumpingClock(FakeClock):
    """Whoever sleeps wakes at once, so much later."""

    def __init__(self):
        super().__init__()
        self.slept = []

    async def sleep(self, seconds):
        if seconds > 0:
            self.slept.append(seconds)
            self.advance(seconds)


class _Timer:
    def __init__(self, call):
        self.call = call
        self.cancelled = False

    def cancel(self):
        self.cancelled = True
