"""The pods that wait, in the order of priority, then of arrival, and alike ones together.

Pods that want the same of the same nodes are of one shape: where the first of them finds no room, none does. So a
pass looks at one pod a shape, and a thousand replicas that wait cost as much as one.
"""

from bisect import insort
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

Shape = Hashable


class Place(NamedTuple):
    """Where a pod stands: higher priority first, then who came first; the number settles what is left."""

    rank: int
    since: float
    number: int
    uid: str


class Line:
    def __init__(self) -> None:
        self._rows: dict[Shape, list[Place]] = {}
        self._where: dict[str, tuple[Shape, Place]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, uid: str) -> bool:
        return uid in self._where

    def __iter__(self) -> Iterator[str]:
        """All, in order."""
        return (place.uid for place in sorted(place for _, place in self._where.values()))

    def add(self, uid: str, shape: Shape, priority: int, since: float) -> bool:
        """Stand in line; whether it was not there before. `since` is when it began to wait."""
        if uid in self._where:
            return False
        self._number += 1
        place = Place(-priority, since, self._number, uid)
        insort(self._rows.setdefault(shape, []), place)
        self._where[uid] = shape, place
        return True

    def leave(self, uid: str) -> bool:
        """Whether it was there."""
        found = self._where.pop(uid, None)
        if found is None:
            return False
        shape, place = found
        row = self._rows[shape]
        row.remove(place)
        if not row:
            del self._rows[shape]
        return True

    def ahead(self, uid: str) -> int:
        """How many stand before this one."""
        place = self._where[uid][1]
        return sum(other < place for _, other in self._where.values())

    def heads(self) -> list[Place]:
        """The first of each shape, in order."""
        return sorted(row[0] for row in self._rows.values())

    def serve(self, place: Callable[[str], bool]) -> None:
        """One pass: `place` is asked for each pod in order and says whether it found room, which ends its waiting.
        Where it did not, the others of its shape are not asked."""
        heads = [(row[0], number, shape) for number, (shape, row) in enumerate(self._rows.items())]
        heapify(heads)
        while heads:
            head, number, shape = heappop(heads)
            if not place(head.uid):
                continue
            self.leave(head.uid)
            if row := self._rows.get(shape):
                heappush(heads, (row[0], number, shape))
