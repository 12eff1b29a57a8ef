"""The pods that wait, in the order of priority, then of arrival, and alike ones together.

Pods that want the same of the same nodes are of one shape: where the first of them finds no room, none does. So a
pass asks for one pod of each shape, and a thousand replicas that wait cost as much as one. A shape that was refused
is not asked again before room may have come free.

A pass can be interrupted and continued. In each round of it every namespace has at most SHAPES_PER_ROUND shapes
refused, and then those of others come first: the order is strict for as many, and nobody who makes pods of thousands
of shapes holds up anybody else.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

Shape = Hashable

SHAPES_PER_ROUND: Final = 64


class Place(NamedTuple):
    """Where a pod stands: higher priority first, then who came first; the number settles what is left."""

    rank: int
    since: float
    number: int
    uid: str
    namespace: str


class _Pass:
    """The heads of shapes that are still to be asked for: of the namespaces in the lowest round, the first in order."""

    def __init__(self, round_of: Callable[[str], int]) -> None:
        self._round_of = round_of
        self._heads: dict[str, list[tuple[Place, Shape]]] = {}
        """By namespace, a heap each."""
        self._turns: list[tuple[int, Place, str]] = []
        """A heap with the first head of each namespace; an entry that is no longer true is corrected when it comes."""

    def __bool__(self) -> bool:
        return any(self._heads.values())

    def add(self, head: Place, shape: Shape) -> None:
        heads = self._heads.setdefault(head.namespace, [])
        heappush(heads, (head, shape))
        if heads[0][0] is head:
            self._queue(head.namespace)

    def next(self) -> tuple[Place, Shape] | None:
        while self._turns:
            turn = heappop(self._turns)
            namespace = turn[2]
            heads = self._heads[namespace]
            if not heads or heads[0][0] is not turn[1]:
                continue  # it was queued again since
            if self._round_of(namespace) != turn[0]:
                self._queue(namespace)
                continue
            found = heappop(heads)
            if heads:
                self._queue(namespace)
            return found
        return None

    def _queue(self, namespace: str) -> None:
        heappush(self._turns, (self._round_of(namespace), self._heads[namespace][0][0], namespace))


class Line:
    def __init__(self) -> None:
        self._rows: dict[Shape, list[Place]] = {}
        self._where: dict[str, tuple[Shape, Place]] = {}
        self._number = 0
        self._refused: set[Shape] = set()
        """Shapes that found no room since it may last have come free."""
        self._refusals: Counter[str] = Counter()
        """The same, counted by the namespace of the pod that was asked for."""

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, uid: str) -> bool:
        return uid in self._where

    def uids(self) -> Iterable[str]:
        """All, in any order."""
        return self._where.keys()

    def __iter__(self) -> Iterator[str]:
        """All, in order."""
        return (place.uid for place in sorted(place for _, place in self._where.values()))

    def add(self, uid: str, shape: Shape, priority: int, since: float, namespace: str = "") -> bool:
        """Stand in line; whether it was not there before. `since` is when it began to wait."""
        if uid in self._where:
            return False
        self._number += 1
        place = Place(-priority, since, self._number, uid, namespace)
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
            self._refused.discard(shape)
        return True

    def ahead(self, uid: str) -> int:
        """How many stand before this one."""
        place = self._where[uid][1]
        return sum(other < place for _, other in self._where.values())

    def heads(self) -> list[Place]:
        """The first of each shape, in order."""
        return sorted(row[0] for row in self._rows.values())

    def heads_in_turns(self) -> list[Place]:
        """The same, but the first of every namespace before the second of any."""
        seen: Counter[str] = Counter()
        found = []
        for head in self.heads():
            found.append((seen[head.namespace], head))
            seen[head.namespace] += 1
        return [head for _, head in sorted(found)]

    def was_refused(self, uid: str) -> bool:
        """Whether pods of this one's shape were asked for in vain since room may last have come free."""
        return self._where[uid][0] in self._refused

    def ask_again(self) -> None:
        """Room may have come free, for whomever: the next pass asks for every shape."""
        self._refused.clear()
        self._refusals.clear()

    def serve(self, place: Callable[[str], bool], over: Callable[[], bool] = lambda: False) -> bool:
        """A pass, or the next part of one: `place` is asked for each pod in order and says whether it found room, which
        ends its waiting. Where it did not, the others of its shape are not asked. Whether the pass is complete: it
        stops where time is `over`, and the next call goes on.
        """
        pass_ = _Pass(self._round)
        for shape, row in self._rows.items():
            if shape not in self._refused:
                pass_.add(row[0], shape)
        while (turn := pass_.next()) is not None:
            head, shape = turn
            if place(head.uid):
                self.leave(head.uid)
                if shape in self._rows:
                    pass_.add(self._rows[shape][0], shape)
            else:
                self._refused.add(shape)
                self._refusals[head.namespace] += 1
            if over():
                return not pass_
        return True

    def _round(self, namespace: str) -> int:
        return self._refusals[namespace] // SHAPES_PER_ROUND
