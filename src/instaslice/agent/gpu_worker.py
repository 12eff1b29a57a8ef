"""Carry out on one GPU what `decision` says, one call at a time, and retry what failed.

Knows the driver and a clock, and of Kubernetes only the structs. Where the driver answers immediately, calls run on the
event loop: one thread per call would cost more than the rest of the agent.
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
    GpuState,
    LastReports,
    Slot,
    Step,
    decide,
    slot_of,
    unreadable,
)
from instaslice.api.bounds import truncated
from instaslice.api.instaslice import Allocation, PreparedSlice, SliceState
from instaslice.drivers import Driver, DriverError, Hung, InUse, Slice, SlotTaken, Unhealthy, UnhealthyReason
from instaslice.drivers import driver as drivers
from instaslice.drivers.executor import GpuExecutor
from instaslice.kube.clock import Clock
from instaslice.kube.limits import exponential_delay

FIRST_RETRY = 0.5
LONGEST_RETRY = 30.0
"""Seconds between two tries to destroy a slice that is in use, or to read a GPU that does not answer."""
OTHER = "other"
"""In place of a profile that the GPU does not have: a spec can be written by hand."""
NOT_LISTED = Unhealthy("its slices have not been listed yet", UnhealthyReason.OTHER)


@dataclass(frozen=True, slots=True)
class OrphanPolicy:
    """Orphans that no pod uses are destroyed after `grace` seconds; with `keep_foreign` only those that we made."""

    grace: float = 60.0
    keep_foreign: bool = False


@dataclass(frozen=True, slots=True)
class DriverCall:
    """A call to the driver that has ended."""

    operation: str
    """`create`, `destroy` or `list`."""
    gpu: drivers.GpuUuid
    profile: str
    """One that the GPU has, or OTHER; empty where slices were listed."""
    start: int
    allocation: Allocation | None
    """For which a slice was created, or whose slice was destroyed."""
    seconds: float
    error: DriverError | None


def _ignore(_: DriverCall) -> None: ...


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The hardware, the clock and the callbacks of a worker."""

    driver: Driver
    executor: GpuExecutor
    clock: Clock
    orphan_policy: OrphanPolicy
    spawn: Callable[[Coroutine[Any, Any, None]], "Task[None]"]
    """Runs a coroutine whose failure ends the process."""
    changed: Callable[[], None]
    """There is something new to report."""
    failed: Callable[[PreparedSlice], None]
    """Called once for each slice that could not be made or was lost."""
    in_use: Callable[[Sequence[Slice]], Awaitable[Mapping[Slice, str]]]
    """Those of these orphans that must stay, and why: a pod uses them, or it is unknown whether one does."""
    called: Callable[[DriverCall], None] = _ignore
    """Called after each call to the driver."""


@dataclass(frozen=True, slots=True)
class _Backoff:
    message: str
    tries: int
    due: float
    reason: UnhealthyReason

    @classmethod
    def after(cls, before: "_Backoff | None", error: DriverError, now: float) -> "_Backoff":
        tries = before.tries + 1 if before else 0
        reason = UnhealthyReason.HUNG if isinstance(error, Hung) else UnhealthyReason.OTHER
        return cls(str(error), tries, now + exponential_delay(FIRST_RETRY, LONGEST_RETRY, tries), reason)


@dataclass(frozen=True, slots=True)
class _ReadSlices:
    """List the slices of the GPU."""


@dataclass(frozen=True, slots=True)
class _CheckUsage:
    """Find out which of these orphans pods use. Their grace period is over."""

    orphans: tuple[Slice, ...]


class GpuWorker:
    """One GPU. Only driver calls leave the event loop. `reports` is what its status says now."""

    def __init__(
        self, gpu: drivers.Gpu, context: WorkerContext, last: Sequence[PreparedSlice], lost: str = "", *, known: bool
    ) -> None:
        """`last` is what was reported last, by this process or an earlier one, `known` whether the GPU was reported as
        healthy then; `lost` is why slices may be gone."""
        self.gpu = gpu
        self.reports: tuple[PreparedSlice, ...] = tuple(last)
        self._context = context
        self._last: LastReports = {each.id: each for each in last}
        self._lost = lost or MISSING
        self._allocations: tuple[Allocation, ...] = ()
        self._found: tuple[Slice, ...] = ()
        self._stale = True
        self._known = known
        self.listed = False
        """Whether this process has listed the slices of the GPU."""
        self.driver_health: Unhealthy | None = None
        """What the driver reported last."""
        self._unreadable: _Backoff | None = None
        self._failures: dict[Slot, _Backoff] = {}
        self._refused_creates: list[tuple[Allocation, str]] = []
        self._orphaned_since: dict[Slot, float] = {}
        self._ours: frozenset[Slot] = frozenset()
        self._unused: frozenset[Slice] = frozenset()
        """Orphans that no pod used when we checked, a moment ago."""
        self._decision: Decision | None = None
        self._task: Task[None] | None = None

    # Called by the node ---------------------------------------------------------------------------------------------

    @property
    def unhealthy(self) -> Unhealthy | None:
        """Why nothing can be made on this GPU; None when it is healthy."""
        failed = self._unreadable
        return self.driver_health or (Unhealthy(failed.message, failed.reason) if failed else None)

    @property
    def unusable(self) -> Unhealthy | None:
        """Why nothing may be placed on this GPU: it is unhealthy, or what is on it has never been reported. A pod could
        otherwise be given a slice that another one uses."""
        return self.unhealthy or (None if self._known or self.listed else NOT_LISTED)

    def set_allocations(self, allocations: tuple[Allocation, ...]) -> None:
        """All allocations on this GPU."""
        if allocations != self._allocations:
            self._allocations = allocations
            self._decision = None

    def reread(self, lost: str = "") -> None:
        """List the slices again: they may have changed without us. `lost` is why some may be gone."""
        self._stale = True
        self._lost = lost or self._lost

    def set_health(self, unhealthy: Unhealthy | None) -> None:
        """What the driver reports. On a GPU that is healthy again, everything is retried immediately."""
        if unhealthy == self.driver_health:
            return
        self.driver_health = unhealthy
        self._decision = None
        if not unhealthy:
            self._unreadable = None
            self._failures.clear()
            self._stale = True

    def advance(self) -> None:
        """Do what is due: immediately where the driver allows it, otherwise in a task that reports its progress."""
        if self._task is None and self._run_immediate() is not None:
            self._task = self._context.spawn(self._run())

    def next_due(self) -> float | None:
        """Seconds until something is due even if nothing happens; None: nothing."""
        if self._task is not None:
            return None
        if self._unreadable:
            dues = [self._unreadable.due]
        else:
            dues = [failure.due for slot, failure in self._failures.items() if slot not in self._orphaned_since]
            for slot, since in self._orphaned_since.items():
                if self._may_destroy(slot):
                    failure = self._failures.get(slot)
                    dues.append(max(since + self._context.orphan_policy.grace, failure.due if failure else 0.0))
        return max(0.0, min(dues) - self._context.clock.monotonic()) if dues else None

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _run_immediate(self) -> "Step | _ReadSlices | _CheckUsage | None":
        """Do all that needs no waiting; the first that does."""
        while (work := self._next()) is not None:
            if isinstance(work, _CheckUsage) or not self._context.driver.immediate(self.gpu.uuid):
                return work
            began = self._context.clock.monotonic()
            try:
                self._ended(work, began, self._call(work))
            except DriverError as error:
                self._ended(work, began, error)
        return None

    async def _run(self) -> None:
        try:
            while (work := self._run_immediate()) is not None:
                if isinstance(work, _CheckUsage):
                    self._usage_checked(work, await self._context.in_use(work.orphans))
                else:
                    await self._execute(work)
                self._next()
                self._context.changed()
        finally:
            self._task = None

    async def _execute(self, work: Step | _ReadSlices) -> None:
        began, call = self._context.clock.monotonic(), partial(self._call, work)
        try:
            self._ended(work, began, await self._context.executor.call(self.gpu.uuid, _describe(work), call))
        except DriverError as error:
            self._ended(work, began, error)

    def _ended(self, work: Step | _ReadSlices, began: float, result: tuple[Slice, ...] | DriverError) -> None:
        self._context.called(self._described(work, began, result if isinstance(result, DriverError) else None))
        if isinstance(result, DriverError):
            self._failed_at(work, result)
        else:
            self._succeeded(work, result)

    def _described(self, work: Step | _ReadSlices, began: float, error: DriverError | None) -> DriverCall:
        allocation: Allocation | None = None
        operation, slot = "list", Slot("", 0)
        match work:
            case Create(wanted):
                operation, slot, allocation = "create", slot_of(wanted), wanted
            case Destroy(doomed):
                operation, slot = "destroy", slot_of(doomed)
                allocation = next((each for each in self._allocations if slot_of(each) == slot), None)
        profile = slot.profile if not slot.profile or self.gpu.model.has(slot.profile) else OTHER
        seconds = self._context.clock.monotonic() - began
        return DriverCall(operation, self.gpu.uuid, profile, slot.start, allocation, seconds, error)

    def _call(self, work: Step | _ReadSlices) -> tuple[Slice, ...]:
        """Blocks. Returns the slices that the call listed or made."""
        driver, gpu = self._context.driver, self.gpu.uuid
        match work:
            case _ReadSlices():
                return driver.slices(gpu)
            case Create(wanted):
                return (driver.create(gpu, wanted.profile, wanted.start),)
            case Destroy(doomed):
                driver.destroy(doomed)
                return ()

    def _next(self) -> Step | _ReadSlices | _CheckUsage | None:
        """The next step that is due; updates the reports."""
        now = self._context.clock.monotonic()
        if self._stale:
            if self._unreadable is None or self._unreadable.due <= now:
                return _ReadSlices()
            if self._decision is None:
                unhealthy = self.driver_health.message if self.driver_health else self._unreadable.message
                self._publish(unreadable(self._allocations, self._last, unhealthy, known=self._known or self.listed))
                self._decision = Decision((), self.reports)
            return None
        decision = self._decide(now)
        for step in decision.steps:
            if isinstance(step, Create) or self._due(slot_of(step.doomed), now):
                return step
        over = tuple(each for each in decision.orphans if self._grace_is_over(slot_of(each), now))
        unused = next((each for each in over if each in self._unused), None)
        if unused is not None:
            return Destroy(unused)
        return _CheckUsage(over) if over else None

    def _decide(self, now: float) -> Decision:
        if self._decision is not None:
            return self._decision
        there = {slot_of(each) for each in self._found}
        for wanted, reason in self._refused_creates:
            # Where the slice turns out to exist already, it is adopted.
            if slot_of(wanted) not in there:
                self._fail(wanted, reason)
        self._refused_creates.clear()
        self._failures = {slot: failure for slot, failure in self._failures.items() if slot in there}
        failures = {slot: failure.message for slot, failure in self._failures.items()}
        unhealthy = self.driver_health.message if self.driver_health else ""
        gpu = GpuState(self._found, unhealthy, failures, self._lost)
        decision = decide(self._allocations, gpu, self._last)
        orphans = {slot_of(each) for each in decision.orphans}
        for claimed in self._orphaned_since.keys() - orphans:
            # Why it could not be destroyed as an orphan says nothing about it as the slice of an allocation.
            self._failures.pop(claimed, None)
        self._unused = self._unused & frozenset(decision.orphans)
        self._orphaned_since = {slot: self._orphaned_since.get(slot, now) for slot in orphans}
        self._ours = (self._ours & orphans) | decision.ours
        self._lost = MISSING
        self._publish(decision.reports)
        self._decision = decision
        return decision

    def _publish(self, reports: tuple[PreparedSlice, ...]) -> None:
        before, self._last = self._last, {each.id: each for each in reports}
        self.reports = reports
        for each in reports:
            if each.state is SliceState.FAILED and not _was_failed(before, each.id):
                self._context.failed(each)

    def _succeeded(self, work: Step | _ReadSlices, there: tuple[Slice, ...]) -> None:
        match work:
            case _ReadSlices():
                self._stale, self.listed = False, True
                self._unreadable = None
                self._found = there
            case Create():
                self._found += there
            case Destroy(doomed):
                slot = slot_of(doomed)
                self._failures.pop(slot, None)
                self._found = tuple(each for each in self._found if slot_of(each) != slot)
        self._decision = None

    def _failed_at(self, work: Step | _ReadSlices, error: DriverError) -> None:
        """The call may have taken effect in part, so the slices are listed again first."""
        now = self._context.clock.monotonic()
        self._stale = True
        self._decision = None
        self._unused = frozenset()
        match work:
            case Create(wanted) if isinstance(error, SlotTaken):
                self._refused_creates.append((wanted, str(error)))
            case Create(wanted):
                self._fail(wanted, str(error))
            case Destroy(doomed):
                slot = slot_of(doomed)
                self._failures[slot] = _Backoff.after(self._failures.get(slot), error, now)
        if isinstance(work, _ReadSlices) or isinstance(error, Hung):
            self._unreadable = _Backoff.after(self._unreadable, error, now)

    def _usage_checked(self, check: _CheckUsage, used: Mapping[Slice, str]) -> None:
        now = self._context.clock.monotonic()
        for orphan, reason in used.items():
            slot = slot_of(orphan)
            self._failures[slot] = _Backoff.after(self._failures.get(slot), InUse(reason, ()), now)
        self._unused = frozenset(check.orphans) - used.keys()
        self._decision = None

    def _grace_is_over(self, slot: Slot, now: float) -> bool:
        """Whether an orphan may be destroyed now."""
        waited = now - self._orphaned_since[slot] >= self._context.orphan_policy.grace
        return waited and self._may_destroy(slot) and self._due(slot, now)

    def _due(self, slot: Slot, now: float) -> bool:
        failure = self._failures.get(slot)
        return failure is None or failure.due <= now

    def _may_destroy(self, slot: Slot) -> bool:
        return not self._context.orphan_policy.keep_foreign or slot in self._ours

    def _fail(self, wanted: Allocation, reason: str) -> None:
        before = self._last[wanted.id]
        failed = msgspec.structs.replace(before, state=SliceState.FAILED, reason=truncated(reason))
        self._last = {**self._last, wanted.id: failed}
        self._context.failed(failed)


def _was_failed(last: LastReports, name: str) -> bool:
    before = last.get(name)
    return before is not None and before.state is SliceState.FAILED


def _describe(work: Step | _ReadSlices) -> str:
    match work:
        case _ReadSlices():
            return "list slices"
        case Create(wanted):
            return f"create {wanted.profile} at {wanted.start}"
        case Destroy(doomed):
            return f"destroy {doomed.placement}"
