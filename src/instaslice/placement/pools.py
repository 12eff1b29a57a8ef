"""GPUs of one kind in buckets, so that a choice looks at kinds of GPUs and not at GPUs.

A `Pool` holds the GPUs of one MIG geometry by state, a `SharedPool` those of one size by free MiB. GPUs are numbers
here; the fleet knows their names.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from instaslice.geometry import Model, States


class Pool:
    """GPUs of one geometry by state. `present` has bit s set where some GPU is in state s.

    A bucket is a heap whose entries may be stale: a GPU has left when `state_of` says so. Stale entries go when they
    come to the top, and all at once when they are more than half.
    """

    def __init__(self, model: Model, state_of: list[int]) -> None:
        self.model = model
        self.states = States.of(model)
        self.present = 0
        self.counts: dict[int, int] = {}
        self._heaps: dict[int, list[int]] = {}
        self._state_of = state_of

    def enter(self, gpu: int, state: int) -> None:
        self._state_of[gpu] = state
        count = self.counts.get(state, 0) + 1
        self.counts[state] = count
        if count == 1:
            self.present |= 1 << state
            self._heaps[state] = [gpu]
            return
        heap = self._heaps[state]
        heappush(heap, gpu)
        if len(heap) > 2 * count + 64:
            heap[:] = self.members(state)
            heapify(heap)

    def leave(self, gpu: int) -> int:
        """Take a GPU out of its bucket and return the state it was in."""
        state = self._state_of[gpu]
        self._state_of[gpu] = -1
        count = self.counts[state] - 1
        self.counts[state] = count
        if not count:
            self.present ^= 1 << state
        return state

    def lowest(self, state: int) -> int:
        """The GPU with the lowest number in that state; there must be one."""
        heap = self._heaps[state]
        state_of = self._state_of
        while state_of[heap[0]] != state:
            heappop(heap)
        return heap[0]

    def __len__(self) -> int:
        return sum(self.counts.values())

    def members(self, state: int) -> list[int]:
        """All GPUs in that state, ascending."""
        return sorted({gpu for gpu in self._heaps[state] if self._state_of[gpu] == state})


class SharedPool:
    """GPUs of one size, shared by memory, by free MiB. The distinct amounts are kept sorted for best fit."""

    def __init__(self, memory_mib: int) -> None:
        self.memory_mib = memory_mib
        self._free_of: dict[int, int] = {}
        self._amounts: list[int] = []
        self._gpus: dict[int, set[int]] = {}

    def enter(self, gpu: int, free: int) -> None:
        self._free_of[gpu] = free
        gpus = self._gpus.setdefault(free, set())
        if not gpus:
            insort(self._amounts, free)
        gpus.add(gpu)

    def leave(self, gpu: int) -> int:
        free = self._free_of.pop(gpu)
        gpus = self._gpus[free]
        gpus.remove(gpu)
        if not gpus:
            del self._gpus[free]
            self._amounts.pop(bisect_left(self._amounts, free))
        return free

    def free(self, gpu: int) -> int:
        return self._free_of[gpu]

    def fitting(self, mib: int) -> Iterator[int]:
        """GPUs with at least so much free: those with least first, of these the lowest number first."""
        for amount in self._amounts[bisect_left(self._amounts, mib) :]:
            yield from sorted(self._gpus[amount])

    def most_free(self) -> int:
        return self._amounts[-1] if self._amounts else 0

    def __len__(self) -> int:
        return len(self._free_of)


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
