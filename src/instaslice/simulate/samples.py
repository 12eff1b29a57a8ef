"""The history of a run at evenly spaced times, never more than so many: what the charts and the map are drawn from."""

from collections.abc import Callable
from typing import Final, NamedTuple

MOST_SAMPLES: Final = 240
MOST_SHOWN: Final = 128
"""GPUs on the map; of a larger fleet every n-th is shown."""


class Sample(NamedTuple):
    """The state of things at one time. `states` has one state number for each GPU on the map."""

    at: int
    active: int
    used: int
    fragmentation: float
    running: int
    waiting: int
    arrived: int
    accepted: int
    states: tuple[int, ...]


class Samples:
    """At most `most` samples: when full, every second one is dropped and the step doubles."""

    def __init__(self, take: Callable[[int], Sample], most: int = MOST_SAMPLES) -> None:
        self._take = take
        self._most = most
        self.step = 1000
        self.taken: list[Sample] = []
        self.due = 0
        """The next time at which a sample is to be taken."""

    def reach(self, now: int) -> None:
        """Take the samples that were due before `now`; nothing has changed since the last call."""
        while self.due < now:
            self.taken.append(self._take(self.due))
            self.due += self.step
            if len(self.taken) == self._most:
                del self.taken[1::2]
                self.step *= 2
                self.due = len(self.taken) * self.step
