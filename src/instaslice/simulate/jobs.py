"""What arrives: one pod with the slices it requests, when it arrives and how long it lives."""

from collections.abc import Iterable
from typing import Final, NamedTuple

NEVER: Final = -1
"""The life of a pod that never ends."""

Wants = tuple[str, ...]
"""The profiles of one pod's slices: granted together on one node, or not at all."""


class Job(NamedTuple):
    """One pod. Times are whole milliseconds, so that sums are exact in any order; `life` starts when it runs."""

    at: int
    life: int
    wants: Wants


class Trace(NamedTuple):
    """Jobs read from a file: in order of arrival, with how many rows were skipped because they request no GPU."""

    jobs: list[Job]
    skipped: int


def trace(jobs: Iterable[Job], skipped: int = 0) -> Trace:
    """Sorted by arrival; jobs of the same instant keep the order of the file."""
    return Trace(sorted(jobs, key=lambda job: job.at), skipped)
