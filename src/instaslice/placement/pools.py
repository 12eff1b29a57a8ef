"""GPUs grouped by kind of state, so that a choice looks at kinds and not at single GPUs.

A `Pool` holds the GPUs of one MIG geometry by kind of state, a `SharedPool` those of one size by free MiB. GPUs are
numbers here; the fleet knows their names.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator

from instaslice.geometry import Model, States

_BLOCK = 9  # bits of a GPU's number within a block: masks of 512 bits are quick to copy


class GpuSet:
    """A set of GPU numbers that knows its lowest: a mask for each block of 512, and a mask of the blocks in use.

    All it does costs the same for ten members or a hundred thousand; a heap would grow with stale entries.
    """

    __slots__ = ("_blocks", "_used", "count")

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._used = 0
        self.count = 0

    def add(self, gpu: int) -> None:
        block = gpu >> _BLOCK
        mask = self._blocks.get(block, 0)
        if not mask:
            self._used |= 1 << block
        self._blocks[block] = mask | 1 << (gpu & (1 << _BLOCK) - 1)
        self.count += 1

    def remove(self, gpu: int) -> None:
        block = gpu >> _BLOCK
        mask = self._blocks[block] ^ 1 << (gpu & (1 << _BLOCK) - 1)
        self._blocks[block] = mask
        if not mask:
            self._used ^= 1 << block
        self.count -= 1

    def lowest(self) -> int:
        """The lowest number; there must be one."""
        block = (self._used & -self._used).bit_length() - 1
        mask = self._blocks[block]
        return (block << _BLOCK) + (mask & -mask).bit_length() - 1

    def __iter__(self) -> Iterator[int]:
        """Ascending."""
        for block in bits(self._used):
            for bit in bits(self._blocks[block]):
                yield (block << _BLOCK) + bit


class Pool:
    """GPUs of one geometry by kind of state. `present` has bit c set where some GPU is of kind c."""

    def __init__(self, model: Model, state_of: list[int]) -> None:
        self.model = model
        self.states = States.of(model)
        self.kinds = self.states.kinds
        self.present = 0
        self.used = 0
        """Memory slices taken on these GPUs."""
        self.held: Counter[str] = Counter()
        """Slices by profile, on closed GPUs too. Kept by the fleet: a kind does not say which profiles it holds."""
        self._count = 0
        self._kind = self.kinds.of
        self._by_kind: dict[int, GpuSet] = {}
        self._state_of = state_of

    def enter(self, gpu: int, state: int) -> None:
        self._state_of[gpu] = state
        kind = self._kind[state]
        members = self._by_kind.get(kind)
        if members is None:
            members = self._by_kind[kind] = GpuSet()
        if not members.count:
            self.present |= 1 << kind
        members.add(gpu)
        self._count += 1
        self.used += self.kinds.used[kind]

    def leave(self, gpu: int) -> int:
        """Take a GPU out of the pool and return the state it was in."""
        state = self._state_of[gpu]
        self._state_of[gpu] = -1
        kind = self._kind[state]
        members = self._by_kind[kind]
        members.remove(gpu)
        if not members.count:
            self.present ^= 1 << kind
        self._count -= 1
        self.used -= self.kinds.used[kind]
        return state

    def lowest(self, kind: int) -> int:
        """The GPU with the lowest number of that kind; there must be one."""
        return self._by_kind[kind].lowest()

    def count(self, kind: int) -> int:
        """How many GPUs are of that kind; there must be one."""
        return self._by_kind[kind].count

    def members(self, kind: int) -> Iterator[int]:
        """All GPUs of that kind, ascending; there must be one. Valid until the pool changes."""
        return iter(self._by_kind[kind])

    def by_state(self) -> dict[int, list[int]]:
        """All GPUs by state. Looks at every GPU, unlike the rest: not for use in every decision."""
        found: dict[int, list[int]] = {}
        for kind in bits(self.present):
            for gpu in self._by_kind[kind]:
                found.setdefault(self._state_of[gpu], []).append(gpu)
        return found

    def __len__(self) -> int:
        return self._count


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
