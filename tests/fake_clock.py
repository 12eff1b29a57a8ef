"""A clock that moves only when a test says so."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta

from waiting import until

from instaslice.kube.clock import SystemClock


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


class ThreadsClock(FakeClock):
    """For calls that run in threads, of which some hang. How long the others take is theirs, so no time can be named at
    which only the deadlines of those that hang are due: a test says instead how many they are. Sleeps are apart from
    the deadlines, and end with `woken`."""

    def __init__(self):
        super().__init__()
        self.woken = asyncio.Event()

    async def sleep(self, seconds):
        await self.woken.wait()
        self.woken.clear()

    async def expire(self, count):
        """Let the deadlines pass of those that wait now, once all but `count` of them have come back."""
        now = [timer for _, _, timer in self._calls]

        def late():
            return [timer for timer in now if not timer.cancelled]

        await until(lambda: len(late()) <= count, 30)
        assert len(late()) == count
        for timer in late():
            timer.cancel()
            timer.call()


class FastClock(SystemClock):
    """Time goes by itself, for tests against real servers, which no fake clock moves; only faster, so that a minute
    takes a fifth of a second."""

    SPEED = 300.0

    def monotonic(self):
        return super().monotonic() * self.SPEED

    def call_later(self, seconds, call):
        return super().call_later(seconds / self.SPEED, call)


class _Timer:
    def __init__(self, call):
        self.call = call
        self.cancelled = False

    def cancel(self):
        self.cancelled = True
