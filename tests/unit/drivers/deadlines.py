"""Deadlines that pass when a test says so."""

import asyncio


class HandTimers:
    """`call_later` of a clock that stands still."""

    def __init__(self):
        self._timers = []

    def call_later(self, seconds, call):
        self._timers.append(_Timer(call))
        return self._timers[-1]

    async def expire(self, count):
        """Let the deadlines pass of those that wait now, once all but `count` of them have come back."""
        async with asyncio.timeout(30):
            now = [each for each in self._timers if each.waits]
            while sum(each.waits for each in now) > count:
                await asyncio.sleep(0.001)
        late = [each for each in now if each.waits]
        assert len(late) == count
        for each in late:
            each.call()


class _Timer:
    def __init__(self, call):
        self.call = call
        self.waits = True

    def cancel(self):
        self.waits = False
