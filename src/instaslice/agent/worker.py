"""Carries out on one GPU what `decision` says, one call at a time, and tries again what did not go.

Knows the driver and a clock, nothing of Kubernetes but the structs. Where the driver answers at once, calls are made
on the event loop: a thread a call would cost more than the rest of the agent.
"""

from asyncio import Task
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from instaslice.agent.decision import (
    MISSING,
    Create,
    Decision,
    Destroy,
    Gpu,
    Past,
    Place,
    Step,
    decide,
    place_of,
    unreadable,
)
from instaslice.api.bounds import truncated
from instaslice.api.instaslice import Allocation, PreparedSlice, SliceState
from instaslice.drivers import Ailment, Driver, DriverError, Hung, Ill, InUse, Slice, SlotTaken
from instaslice.drivers import driver as drivers
from instaslice.drivers.lanes import Lanes
from instaslice.kube.clock import Clock
from instaslice.kube.limits import exponential_delay

FIRST_RETRY = 0.5
LONGEST_RETRY = 30.0
"""Seconds between two tries to destroy a slice that is held, or to read a GPU that does not answer."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What the administrator chose. Orphans that no pod uses are destroyed after `grace` seconds; with `keep_foreign`
    only ours."""

    grace: float = 60.0
    keep_foreign: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker needs of the process it is in."""

    driver: Driver
    lanes: Lanes
    clock: Clock
    habits: Habits
    spawn: Callable[[Coroutine[Any, Any, None]], "Task[None]"]
    """Runs a coroutine whose failure ends the process."""
    changed: Callable[[], None]
    """There is something new to report."""
    failed: Callable[[PreparedSlice], None]
    """A slice could not be made, or was lost: called once for each."""
    in_use: Callable[[Sequence[Slice]], Awaitable[Mapping[Slice, str]]]
    """Those of these orphans that have to stay, and why: a pod uses them, or nobody can tell whether one does."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    reason: str
    tries: int
    due: float
    kind: Ailment

    @classmethod
    def after(cls, before: "_Trouble | None", error: DriverError, now: float) -> "_Trouble":
        tries = before.tries + 1 if before else 0
        kind = Ailment.HUNG if isinstance(error, Hung) else Ailment.OTHER
        return cls(str(error), tries, now + exponential_delay(FIRST_RETRY, LONGEST_RETRY, tries), kind)


@dataclass(frozen=True, slots=True)
class _Look:
    """Read what is on the GPU."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """Find out which of these orphans pods use. Their grace is over."""

    orphans: tuple[Slice, ...]


class GpuWorker:
    """One GPU. Everything but the driver's calls happens on the event loop; `reports` is what to say of it now."""

    def __init__(self, gpu: drivers.Gpu, around: Surroundings, past: Sequence[PreparedSlice], lost: str = "") -> None:
        """`past` is what was reported before, by this process or an earlier one; `lost` is why slices may be gone."""
        self.gpu = gpu
        self.reports: tuple[PreparedSlice, ...] = tuple(past)
        self._around = around
        self._past: Past = {each.id: each for each in past}
        self._lost = lost or MISSING
        self._allocations: tuple[Allocation, ...] = ()
        self._found: tuple[Slice, ...] = ()
        self._stale = True
        self.read = False
        """Whether this process has read what is on the GPU."""
        self._ill: Ill | None = None
        self._blind: _Trouble | None = None
        self._troubles: dict[Place, _Trouble] = {}
        self._refused: list[tuple[Allocation, str]] = []
        self._orphaned: dict[Place, float] = {}
        self._ours: frozenset[Place] = frozenset()
        self._unused: frozenset[Slice] = frozenset()
        """Orphans that no pod was found to use when we asked, a moment ago."""
        self._decision: Decision | None = None
        self._task: Task[None] | None = None

    # What the node tells it -----------------------------------------------------------------------------------------

    @property
    def ill(self) -> Ill | None:
        """Why nothing can be made on this GPU; None when it is well."""
        return self._ill or (Ill(self._blind.reason, self._blind.kind) if self._blind else None)

    @property
    def told(self) -> Ill | None:
        """What the driver said last of its health."""
        return self._ill

    def take(self, allocations: tuple[Allocation, ...]) -> None:
        """What is promised on this GPU now."""
        if allocations != self._allocations:
            self._allocations = allocations
            self._decision = None

    def look(self, lost: str = "") -> None:
        """What is on the GPU may have changed behind our back."""
        self._stale = True
        self._lost = lost or self._lost

    def health(self, ill: Ill | None) -> None:
        """What the driver says ails the GPU. One that is well again is tried again at once."""
        if ill == self._ill:
            return
        self._ill = ill
        self._decision = None
        if not ill:
            self._blind = None
            self._troubles.clear()
            self._stale = True

    def advance(self) -> None:
        """Do what is due: at once where the driver is prompt, otherwise in a task that says when it got further."""
        if self._task is None and self._rest() is not None:
            self._task = self._around.spawn(self._work())

    def again(self) -> float | None:
        """Seconds until there will be something to do even if nothing happens; None: nothing."""
        if self._task is not None:
            return None
        if self._blind:
            dues = [self._blind.due]
        else:
            dues = [trouble.due for place, trouble in self._troubles.items() if place not in self._orphaned]
            for place, since in self._orphaned.items():
                if self._goes(place):
                    trouble = self._troubles.get(place)
                    dues.append(max(since + self._around.habits.grace, trouble.due if trouble else 0.0))
        return max(0.0, min(dues) - self._around.clock.monotonic()) if dues else None

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _rest(self) -> "Step | _Look | _Ask | None":
        """What has to be waited for, after all that can be done at once."""
        while (work := self._next()) is not None:
            if isinstance(work, _Ask) or not self._around.driver.prompt(self.gpu.uuid):
                return work
            try:
                self._did(work, self._call(work))
            except DriverError as error:
                self._did_not(work, error)
        return None

    async def _work(self) -> None:
        try:
            while (work := self._rest()) is not None:
                if isinstance(work, _Ask):
                    self._answered(work, await self._around.in_use(work.orphans))
                else:
                    await self._do(work)
                self._next()
                self._around.changed()
        finally:
            self._task = None

    async def _do(self, work: Step | _Look) -> None:
        try:
            self._did(work, await self._around.lanes.call(self.gpu.uuid, _name(work), partial(self._call, work)))
        except DriverError as error:
            self._did_not(work, error)

    def _call(self, work: Step | _Look) -> tuple[Slice, ...]:
        """Blocks. What is there afterwards, as far as the call tells."""
        driver, gpu = self._around.driver, self.gpu.uuid
        match work:
            case _Look():
                return driver.slices(gpu)
            case Create(wanted):
                return (driver.create(gpu, wanted.profile, wanted.start),)
            case Destroy(doomed):
                driver.destroy(doomed)
                return ()

    def _next(self) -> Step | _Look | _Ask | None:
        """What to do now; brings the reports up to date where what is on the GPU is known."""
        now = self._around.clock.monotonic()
        if self._stale:
            if self._blind is None or self._blind.due <= now:
                return _Look()
            if self._decision is None:
                ill = self._ill.words if self._ill else self._blind.reason
                self._settle(unreadable(self._allocations, self._past, ill))
                self._decision = Decision((), self.reports)
            return None
        decision = self._decide(now)
        for step in decision.steps:
            if isinstance(step, Create) or self._due(place_of(step.doomed), now):
                return step
        over = tuple(each for each in decision.orphans if self._over(place_of(each), now))
        unused = next((each for each in over if each in self._unused), None)
        if unused is not None:
            return Destroy(unused)
        return _Ask(over) if over else None

    def _decide(self, now: float) -> Decision:
        if self._decision is not None:
            return self._decision
        there = {place_of(each) for each in self._found}
        for wanted, reason in self._refused:
            # The slice may have been there already without our knowing: then it is taken over.
            if place_of(wanted) not in there:
                self._give_up(wanted, reason)
        self._refused.clear()
        self._troubles = {place: trouble for place, trouble in self._troubles.items() if place in there}
        troubles = {place: trouble.reason for place, trouble in self._troubles.items()}
        gpu = Gpu(self.gpu.uuid, self._found, self._ill.words if self._ill else "", troubles, self._lost)
        decision = decide(self._allocations, gpu, self._past)
        orphans = {place_of(each) for each in decision.orphans}
        for claimed in self._orphaned.keys() - orphans:
            # What kept it as an orphan says nothing of it as somebody's slice.
            self._troubles.pop(claimed, None)
        self._unused = self._unused & frozenset(decision.orphans)
        self._orphaned = {place: self._orphaned.get(place, now) for place in orphans}
        self._ours = (self._ours & orphans) | decision.ours
        self._lost = MISSING
        self._settle(decision.reports)
        self._decision = decision
        return decision

    def _settle(self, reports: tuple[PreparedSlice, ...]) -> None:
        before, self._past = self._past, {each.id: each for each in reports}
        self.reports = reports
        for each in reports:
            if each.state is SliceState.FAILED and not _failed(before, each.id):
                self._around.failed(each)

    def _did(self, work: Step | _Look, there: tuple[Slice, ...]) -> None:
        match work:
            case _Look():
                self._stale, self.read = False, True
                self._blind = None
                self._found = there
            case Create():
                self._found += there
            case Destroy(doomed):
                place = place_of(doomed)
                self._troubles.pop(place, None)
                self._found = tuple(each for each in self._found if place_of(each) != place)
        self._decision = None

    def _did_not(self, work: Step | _Look, error: DriverError) -> None:
        """The call may have taken effect in part, so the next thing is to look."""
        now = self._around.clock.monotonic()
        self._stale = True
        self._decision = None
        self._unused = frozenset()
        match work:
            case Create(wanted) if isinstance(error, SlotTaken):
                self._refused.append((wanted, str(error)))
            case Create(wanted):
                self._give_up(wanted, str(error))
            case Destroy(doomed):
                place = place_of(doomed)
                self._troubles[place] = _Trouble.after(self._troubles.get(place), error, now)
        if isinstance(work, _Look) or isinstance(error, Hung):
            self._blind = _Trouble.after(self._blind, error, now)

    def _answered(self, ask: _Ask, used: Mapping[Slice, str]) -> None:
        now = self._around.clock.monotonic()
        for orphan, reason in used.items():
            place = place_of(orphan)
            self._troubles[place] = _Trouble.after(self._troubles.get(place), InUse(reason, ()), now)
        self._unused = frozenset(ask.orphans) - used.keys()
        self._decision = None

    def _over(self, place: Place, now: float) -> bool:
        """Whether the time of an orphan is over."""
        waited = now - self._orphaned[place] >= self._around.habits.grace
        return waited and self._goes(place) and self._due(place, now)

    def _due(self, place: Place, now: float) -> bool:
        trouble = self._troubles.get(place)
        return trouble is None or trouble.due <= now

    def _goes(self, place: Place) -> bool:
        return not self._around.habits.keep_foreign or place in self._ours

    def _give_up(self, wanted: Allocation, reason: str) -> None:
        before = self._past[wanted.id]
        failed = msgspec.structs.replace(before, state=SliceState.FAILED, reason=truncated(reason))
        self._past = {**self._past, wanted.id: failed}
        self._around.failed(failed)


def _failed(past: Past, name: str) -> bool:
    before = past.get(name)
    return before is not None and before.state is SliceState.FAILED


def _name(work: Step | _Look) -> str:
    match work:
        case _Look():
            return "list slices"
        case Create(wanted):
            return f"create {wanted.profile} at {wanted.start}"
        case Destroy(doomed):
            return f"destroy {doomed.placement}"
