"""Calls that are due later: one heap that its owner runs, instead of a timer for each.

A deadline is never cancelled: what it calls is level-based, and finds nothing to do.
"""

from collections.abc import Callable
from heapq import heappop, heappush

Call = Callable[[float], None]


class Deadlines:
    def __init__(self, failed: Callable[[Exception], object], sooner: Callable[[], object]) -> None:
        """`failed` receives what a call raises; the others are called all the same. `sooner` is called when the next
        deadline is an earlier one than before, so that the owner sets its timer again."""
        self._failed = failed
        self._sooner = sooner
        self._heap: list[tuple[float, int, Call]] = []
        self._number = 0

    def at(self, due: float, call: Call) -> None:
        """Call it, with the time, at the first `run` from then on."""
        self._number += 1
        heappush(self._heap, (due, self._number, call))
        if self._heap[0][1] == self._number:
            self._sooner()

    @property
    def next(self) -> float | None:
        """When the next is due."""
        return self._heap[0][0] if self._heap else None

    def run(self, now: float, expired: Callable[[], bool] = lambda: False) -> None:
        """Call everything that is due, or as much as there is time for: the rest stays due. What is added meanwhile
        waits for the next run, so this ends."""
        last = self._number
        later: list[tuple[float, int, Call]] = []
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)
            if entry[1] > last:
                later.append(entry)
                continue
            try:
                entry[2](now)
            except Exception as error:
                self._failed(error)
            if expired():
                break
        for entry in later:
            heappush(self._heap, entry)
