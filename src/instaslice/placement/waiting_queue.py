"""The queue of waiting pods: by priority, then by age; equal requests are tried once.

Pods that ask for the same on the same nodes have the same request key: when the first of them does not fit, none does.
A pass therefore tries one pod per key, and a thousand waiting replicas cost as much as one. A key that was refused is
not tried again until capacity may have become free.

A pass can be interrupted and resumed. In each round of a pass at most KEYS_PER_ROUND keys of a namespace are refused
before other namespaces get their turn: up to that number the order is strict, and nobody who creates pods with
thousands of different requests delays anybody else.

Pure: the caller passes every time and decides when to stop.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

RequestKey = Hashable

KEYS_PER_ROUND: Final = 64


class QueuePosition(NamedTuple):
    """Where a pod stands: higher priority first, then earlier arrival; `number` breaks ties."""

    rank: int
    since: float
    number: int
    uid: str
    namespace: str


class _Pass:
    """The heads that are still to be tried: of the namespaces in the lowest round, the first in queue order."""

    def __init__(self, round_of: Callable[[str], int]) -> None:
        self._round_of = round_of
        self._heads: dict[str, list[tuple[QueuePosition, RequestKey]]] = {}
        """By namespace, a heap each."""
        self._turns: list[tuple[int, QueuePosition, str]] = []
        """A heap with the first head of each namespace; stale entries are corrected when they are popped."""

    def __bool__(self) -> bool:
        return any(self._heads.values())

    def add(self, head: QueuePosition, key: RequestKey) -> None:
        heads = self._heads.setdefault(head.namespace, [])
        heappush(heads, (head, key))
        if heads[0][0] is head:
            self._queue(head.namespace)

    def next(self) -> tuple[QueuePosition, RequestKey] | None:
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


class WaitingQueue:
    def __init__(self) -> None:
        self._by_key: dict[RequestKey, list[QueuePosition]] = {}
        self._pods: dict[str, tuple[RequestKey, QueuePosition]] = {}
        self._number = 0
        self._refused: set[RequestKey] = set()
        """Keys that did not fit since capacity may last have become free."""
        self._refusals: Counter[str] = Counter()
        """The same, counted by the namespace of the pod that was tried."""

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def uids(self) -> Iterable[str]:
        """All, in any order."""
        return self._pods.keys()

    def __iter__(self) -> Iterator[str]:
        """All, in order."""
        return (position.uid for position in sorted(position for _, position in self._pods.values()))

    def add(self, uid: str, key: RequestKey, priority: int, since: float, namespace: str = "") -> bool:
        """Whether it did not wait before. `since` is when the pod was created."""
        if uid in self._pods:
            return False
        self._number += 1
        position = QueuePosition(-priority, since, self._number, uid, namespace)
        insort(self._by_key.setdefault(key, []), position)
        self._pods[uid] = key, position
        return True

    def remove(self, uid: str) -> bool:
        """Whether it waited."""
        found = self._pods.pop(uid, None)
        if found is None:
            return False
        key, position = found
        waiting = self._by_key[key]
        waiting.remove(position)
        if not waiting:
            del self._by_key[key]
            self._refused.discard(key)
        return True

    def ahead(self, uid: str) -> list[str]:
        """The pods that come before this one, in any order."""
        position = self._pods[uid][1]
        return [other for other, (_, theirs) in self._pods.items() if theirs < position]

    def alike(self, uid: str) -> list[str]:
        """The pods with the same request key, this one among them, in order."""
        return [position.uid for position in self._by_key[self._pods[uid][0]]]

    def heads(self) -> list[QueuePosition]:
        """The first pod of each key, in order."""
        return sorted(waiting[0] for waiting in self._by_key.values())

    def heads_round_robin(self) -> list[QueuePosition]:
        """The same, but the first of every namespace before the second of any."""
        seen: Counter[str] = Counter()
        found = []
        for head in self.heads():
            found.append((seen[head.namespace], head))
            seen[head.namespace] += 1
        return [head for _, head in sorted(found)]

    def was_refused(self, uid: str) -> bool:
        """Whether this pod's request was tried in vain since capacity may last have become free."""
        return self._pods[uid][0] in self._refused

    def retry_all(self) -> None:
        """Capacity may have become free, for whomever: the next pass tries every key."""
        self._refused.clear()
        self._refusals.clear()

    def serve(self, place: Callable[[str], bool], expired: Callable[[], bool] = lambda: False) -> bool:
        """A pass, or the next part of one. `place` is called for one pod after another and says whether the pod waits
        no longer. After a refusal the others with the same key are skipped.

        Returns whether the pass is complete: it stops when its time has `expired`, and the next call resumes it.
        """
        pass_ = _Pass(self._round)
        for key, waiting in self._by_key.items():
            if key not in self._refused:
                pass_.add(waiting[0], key)
        while (turn := pass_.next()) is not None:
            head, key = turn
            if place(head.uid):
                self.remove(head.uid)
                if key in self._by_key:
                    pass_.add(self._by_key[key][0], key)
            else:
                self._refused.add(key)
                self._refusals[head.namespace] += 1
            if expired():
                return not pass_
        return True

    def _round(self, namespace: str) -> int:
        return self._refusals[namespace] // KEYS_PER_ROUND
