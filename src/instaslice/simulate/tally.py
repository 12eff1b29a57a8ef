"""Counts of pods by what they request: no record of a single pod is kept."""

from collections import defaultdict
from collections.abc import Mapping

from instaslice.simulate.histogram import Histogram
from instaslice.simulate.jobs import Wants


class PodCounts:
    """Pods with the same request: how many arrived, ran and were rejected, and how long they waited in all."""

    __slots__ = ("accepted", "arrived", "rejected", "waited")

    def __init__(self) -> None:
        self.arrived = 0
        self.accepted = 0
        self.rejected = 0
        self.waited = 0


class Tally:
    """Counts of pods that arrived after the warm-up. What arrived, ran, was rejected and still waits always add up."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.pods: defaultdict[Wants, PodCounts] = defaultdict(PodCounts)
        self.waits = Histogram()
        self.queued = 0
        """Pods that did not start when they arrived, but waited for room."""
        self.moves = 0
        """Slices moved to make room."""
        self.room_in_pieces = 0
        """Pods that did not fit at first although the fleet had as many free slices."""
        self.impossible = 0
        """Pods that no node could hold even when empty; they count as rejected."""

    def arrived(self, wants: Wants) -> None:
        self.pods[wants].arrived += 1

    def accepted(self, wants: Wants, waited: int) -> None:
        pods = self.pods[wants]
        pods.accepted += 1
        pods.waited += waited
        self.waits.add(waited)

    def rejected(self, wants: Wants) -> None:
        self.pods[wants].rejected += 1

    def size(self, wants: Wants) -> int:
        """Memory slices of all of a pod's slices."""
        return sum(self.sizes[want] for want in wants)
