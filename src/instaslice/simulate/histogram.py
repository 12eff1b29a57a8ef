"""Waits in bounded memory: the mean is exact, a quantile is right to a thousandth of itself."""

from math import inf
from typing import Final

_KEPT_BITS: Final = 11
"""Leading bits that are distinguished: the middle of a bucket is off by at most 1 in 2**11."""


class Histogram:
    """Whole numbers from 0 on. Below 2**11 each has its own bucket; above, each octave has 2**10 of them."""

    __slots__ = ("_buckets", "count", "total")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0

    def add(self, value: int) -> None:
        self.count += 1
        self.total += value
        shift = value.bit_length() - _KEPT_BITS
        low = value if shift <= 0 else value >> shift << shift
        self._buckets[low] = self._buckets.get(low, 0) + 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, part: float, endless: int = 0) -> float:
        """The smallest value that at least this part of all values does not exceed; 0 where there are none. `endless`
        more values are infinite."""
        needed = part * (self.count + endless)
        seen = 0
        for low in sorted(self._buckets):
            seen += self._buckets[low]
            if seen >= needed:
                shift = max(low.bit_length() - _KEPT_BITS, 0)
                return low + ((1 << shift) - 1) / 2
        return inf if endless else 0.0
