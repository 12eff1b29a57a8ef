"""How long emulated hardware takes for each step, in seconds.

Measured on an H200 (driver 580): 1g.18gb GI 20–25 ms (50–85 ms on an idle GPU) and CI 80–150 ms, destroyed CI 6–10 ms
and GI 10–30 ms; 3g.71gb about 300 ms, destroyed in 175 ms; a taken slot 0.5 ms. Other sizes lie on the line through
these two, by compute slices.
"""

from dataclasses import dataclass
from random import Random
from typing import Final


@dataclass(frozen=True, slots=True)
class Span:
    """Between `low` and `high` with one compute slice, longer by `growth` times that with each further one."""

    low: float = 0.0
    high: float = 0.0
    growth: float = 0.0

    def draw(self, compute: int, rng: Random) -> float:
        return rng.uniform(self.low, self.high) * (1 + self.growth * (compute - 1))


@dataclass(frozen=True, slots=True)
class Latencies:
    """One span per step."""

    create_gi: Span = Span()
    create_first_gi: Span = Span()
    create_ci: Span = Span()
    destroy_ci: Span = Span()
    destroy_gi: Span = Span()
    refuse: Span = Span()


INSTANT: Final = Latencies()
"""None at all: for tests, and where only our own time is measured."""

H200: Final = Latencies(
    create_gi=Span(0.020, 0.025),
    create_first_gi=Span(0.050, 0.085),
    create_ci=Span(0.080, 0.150, growth=0.7),
    destroy_ci=Span(0.006, 0.010, growth=2.6),
    destroy_gi=Span(0.010, 0.030, growth=2.6),
    refuse=Span(0.0005, 0.0005),
)
