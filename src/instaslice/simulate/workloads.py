"""Where jobs come from: Poisson arrivals of a mix, a fill-up, a trace, or a trace used as a mix.

Each generates its jobs from a `Random`, one at a time: the same seed gives every policy the same jobs, and a million of
them take no memory.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import exp
from random import Random
from typing import Final, Protocol

from instaslice.simulate import ramp
from instaslice.simulate.errors import BadWorkload
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.fluid import Fluid
from instaslice.simulate.jobs import NEVER, Job
from instaslice.simulate.mixes import Mix
from instaslice.simulate.ramp import LOGNORMAL_SIGMA

Lives = Callable[[Random, float], float]
"""A life with that mean."""

LIVES: Final[dict[str, Lives]] = {
    "exponential": lambda random, mean: random.expovariate(1 / mean),
    "lognormal": lambda random, mean: mean * exp(random.gauss(-(LOGNORMAL_SIGMA**2) / 2, LOGNORMAL_SIGMA)),
    "fixed": lambda random, mean: mean,
}
_SHORTFALLS: Final[dict[str, ramp.Shortfall]] = {
    "exponential": ramp.of_exponential,
    "lognormal": ramp.of_lognormal,
    "fixed": ramp.of_fixed,
}
_BATCH: Final = 1024

PODS: Final = 20_000
"""How many arrive unless the load needs more."""
MOST_PODS: Final = 100_000_000
"""More run for hours: a typing error."""
MOST_LOAD: Final = 1000
_MOST_CHOSEN: Final = 64 * PODS
_ENOUGH, _TOO_LITTLE = 0.99, 0.95
"""Of the load: what a number of pods that is chosen here meets, and what one that was given has to."""


class Workload(Protocol):
    """Jobs by ascending arrival. `title` says what they are and `count` how many there will be; `asked` is the slices
    of each profile in an average pod, `concurrent` how many pods would run at once if all fitted (None: not known).
    `load_met` is the part of these that do, on average from when `begin` pods have arrived until `end` have.
    """

    @property
    def title(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def asked(self) -> dict[str, float]: ...
    @property
    def concurrent(self) -> float | None: ...
    def load_met(self, begin: int, end: int) -> float: ...
    def jobs(self, random: Random) -> Iterator[Job]: ...


class Poisson:
    """Pods of a mix at random times, `rate` of them in a millisecond, living `life_ms` on average."""

    def __init__(self, mix: Mix, rate: float, life_ms: float, count: int, lives: str = "exponential") -> None:
        self.title = f"{count} pods, Poisson arrivals, {lives} lives of {life_ms / 1000:g} s"
        self.count = count
        self.asked = mix.slices()
        self.concurrent = rate * life_ms
        self._mix, self._rate, self._life_ms, self._lives = mix, rate, life_ms, LIVES[lives]
        self._shortfall = _SHORTFALLS[lives]

    def load_met(self, begin: int, end: int) -> float:
        return ramp.load_met(self._shortfall, begin / self.concurrent, end / self.concurrent)

    def jobs(self, random: Random) -> Iterator[Job]:
        now, left = 0.0, self.count
        while left > 0:
            for wants in random.choices(self._mix.pods, self._mix.shares, k=min(left, _BATCH)):
                now += random.expovariate(self._rate)
                yield Job(round(now), max(round(self._lives(random, self._life_ms)), 1), wants)
            left -= _BATCH


class FillUp:
    """Pods of a mix, one a second, that never end."""

    def __init__(self, mix: Mix, count: int) -> None:
        self.title = f"{count} pods that never end"
        self.count = count
        self.asked = mix.slices()
        self.concurrent = float(count)
        self._mix = mix

    def load_met(self, begin: int, end: int) -> float:
        return 1.0

    def jobs(self, random: Random) -> Iterator[Job]:
        for number in range(self.count):
            yield Job(1000 * number, NEVER, random.choices(self._mix.pods, self._mix.shares)[0])


class TraceReplay:
    """The jobs of a trace at their own times."""

    def __init__(self, trace: Sequence[Job]) -> None:
        """Raises BadWorkload where the trace has no jobs."""
        if not trace:
            raise BadWorkload("the trace has no job that wants a GPU")
        self.title = f"{len(trace)} pods of a trace at their own times"
        self.count = len(trace)
        self.asked = as_mix(trace).slices()
        self.concurrent = None
        self._trace = trace

    def load_met(self, begin: int, end: int) -> float:
        return 1.0

    def jobs(self, random: Random) -> Iterator[Job]:
        return iter(self._trace)


class Resampled:
    """Pods drawn from a trace, with their own lives, at Poisson times: the trace as a distribution."""

    def __init__(self, trace: Sequence[Job], rate: float, count: int) -> None:
        self.title = f"{count} pods drawn from a trace of {len(trace)}, Poisson arrivals"
        self.count = count
        self.asked = as_mix(trace).slices()
        self.concurrent = rate * sum(job.life for job in trace) / len(trace)
        self._trace, self._rate = trace, rate
        self._shortfall = ramp.of_lives(job.life for job in trace)

    def load_met(self, begin: int, end: int) -> float:
        return ramp.load_met(self._shortfall, begin / self._rate, end / self._rate)

    def jobs(self, random: Random) -> Iterator[Job]:
        now = 0.0
        for _ in range(self.count):
            now += random.expovariate(self._rate)
            yield random.choice(self._trace)._replace(at=round(now))


def as_mix(trace: Sequence[Job]) -> Mix:
    """The pods of a trace by how often they come."""
    counts = Counter(job.wants for job in trace)
    return Mix(tuple(counts), tuple(float(count) for count in counts.values()))


def pods_at_once(plan: FleetPlan, asked: dict[str, float]) -> float:
    """How many average pods the fleet holds when packing is ideal: load 1.0. Raises BadWorkload."""
    return Fluid(plan.models, tuple(asked)).capacity(asked).most


def poisson(plan: FleetPlan, mix: Mix, load: float, life_ms: float, count: int, lives: str = "exponential") -> Poisson:
    """Arrivals so fast that, were none refused, `load` times the fluid capacity would run at once."""
    _positive(load=load, life=life_ms, pods=count)
    return Poisson(mix, load * pods_at_once(plan, mix.slices()) / life_ms, life_ms, count, lives)


def fill_up(plan: FleetPlan, mix: Mix, load: float) -> FillUp:
    """As many pods as `load` times the fluid capacity. Raises BadWorkload where they are too many to wait for."""
    _positive(load=load)
    count = max(round(load * pods_at_once(plan, mix.slices())), 1)
    if count > MOST_PODS:
        raise BadWorkload(f"load {load:g} of this fleet is {count} pods; at most {MOST_PODS}: give a lower --load")
    return FillUp(mix, count)


def resampled(plan: FleetPlan, trace: Sequence[Job], load: float, count: int) -> Resampled:
    """A trace's pods at a load. What runs at once is what lives long: pods are weighed by their lives."""
    _positive(load=load, pods=count)
    total_life = sum(job.life for job in trace)
    if not total_life:
        raise BadWorkload("the pods of the trace have no lives to draw from")
    running: Counter[str] = Counter()
    for job in trace:
        for want in job.wants:
            running[want] += job.life
    asked = {want: life / total_life for want, life in running.items()}
    return Resampled(trace, load * pods_at_once(plan, asked) * len(trace) / total_life, count)


def enough_pods(workload: Workload, cold: float, most: int = _MOST_CHOSEN) -> int:
    """How many have to arrive for those after the first part `cold` of them to meet the load; at most `most`."""
    count = PODS
    while count < most and workload.load_met(int(cold * count), count) < _ENOUGH:
        count = min(2 * count, most)
    return count


def too_few_pods(workload: Workload, warm_up: int) -> str | None:
    """Why a result is about less than the load that was asked for, with the remedy; None where it is not."""
    met = workload.load_met(warm_up, workload.count)
    if met >= _TOO_LITTLE:
        return None
    enough = enough_pods(workload, warm_up / workload.count, MOST_PODS)
    return (
        f"{workload.count} pods meet {100 * met:.1f} % of the load on average, as the fleet begins empty; "
        f"give --pods {enough} to meet it"
    )


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise BadWorkload(f"{name} {value:g}; it must be above 0")
