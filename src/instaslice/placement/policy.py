"""What a placement policy is: an order over the candidates that are legal now.

Pure: a policy reads the fleet and never changes it. The placer takes the first candidate for a single slice, and goes
through all of them in order when a pod needs several slices on one node.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import ClassVar, Final, NamedTuple, Protocol

from instaslice.geometry import States
from instaslice.placement.demands import Admits, Prefers
from instaslice.placement.fleet import Fleet

FIRST_TUNING: Final = 32
"""Arrivals after which a policy has something to learn from."""


def next_tuning(arrivals: int) -> int:
    """After how many arrivals to learn again: what is known changes less and less, but old demand is forgotten."""
    return arrivals + min(3 * arrivals, 4000)


class Regime(Enum):
    """What happens to a demand that does not fit, and whether anything ever ends."""

    QUEUE = "queue"
    LOSS = "loss"
    FILL = "fill"


class Candidate(NamedTuple):
    """A GPU of the fleet by number, and a placement by its index in the GPU's `States`."""

    gpu: int
    placement: int


class Policy(ABC):
    """Which GPU, and which start on it, one more slice should take.

    A policy may keep what it learned from `arrived`, and a seeded random number generator; nothing else. Two
    policies that saw the same calls give the same answers.
    """

    name: ClassVar[str]

    @abstractmethod
    def candidates(
        self, fleet: Fleet, profile: str, admits: Admits | None = None, prefers: Prefers | None = None
    ) -> Iterator[Candidate]:
        """Every open GPU on which the profile has a legal start and whose node is admitted, each at the start this
        policy would take there, best first.

        Of equally good candidates, those on preferred nodes come first; a policy that walks GPUs in
        a fixed order finds no two equally good. Lazy: stop early and the rest costs nothing. Valid until the fleet
        changes. A profile that no GPU has gives no candidates.
        """

    @abstractmethod
    def placement(self, states: States, state: int, profile: str) -> int | None:
        """The placement, by index, that this policy takes on a GPU in that state; None where none is legal."""

    def first(
        self, fleet: Fleet, profile: str, admits: Admits | None = None, prefers: Prefers | None = None
    ) -> Candidate | None:
        """The best candidate, None where no legal one is free. Same as the first of `candidates`, and may be faster."""
        return next(self.candidates(fleet, profile, admits, prefers), None)

    def arrived(self, profile: str) -> None:
        """A slice of this profile was asked for, whether or not it fitted. Called once for each slice."""
        return

    @property
    def asked(self) -> Mapping[str, float]:
        """What has arrived, in slices by profile, as far as it is remembered: all that a restart has to keep."""
        return {}

    def recall(self, asked: Mapping[str, float]) -> None:
        """Remember this, what `asked` was in an earlier process, in place of what has arrived so far."""
        return

    def tuning(self, fleet: Fleet, regime: Regime = Regime.QUEUE, concurrent: float | None = None) -> "Tuning | None":
        """What to think about, now that some tens of slices have arrived: a copy of all that it takes, so that another
        thread may do the thinking. None from a policy that learns nothing.

        `concurrent` is how many slices would run at once if all fitted, as far as the caller knows.
        """
        return None

    def tune(self, fleet: Fleet, regime: Regime = Regime.QUEUE, concurrent: float | None = None) -> None:
        """Think at once about what arrived, and go by it from now on; may take a second."""
        tuning = self.tuning(fleet, regime, concurrent)
        if tuning is not None:
            tuning.run()()


class Tuning(Protocol):
    """What arrived, to be thought about apart from the policy that it is from."""

    def run(self) -> Callable[[], None]:
        """Takes seconds, and touches nothing that others use. What it returns has the policy go by the result: call it
        where the policy is used."""
        ...
