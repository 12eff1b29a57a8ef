"""The events: pods arrive, are placed or wait or go away, and end; in the order of time, exactly.

A pod is placed by the same `Placer` the controller uses, and waits in the same `WaitingQueue`, with the same GPUs
reserved for the first in it (`LongestWaiting`). Its slices are held from the decision until the hardware has destroyed
them; it runs from when they are created. At one instant ends come before arrivals.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import partial
from heapq import heappop, heappush
from math import ceil
from typing import NamedTuple

from instaslice.placement import Demand, Grant, NodeName, Placer, Plan, Policy, WaitingQueue, moves
from instaslice.placement.longest_waiting import PATIENCE, LongestWaiting
from instaslice.placement.policy import Regime, next_tuning
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.jobs import NEVER, Job, Wants
from instaslice.simulate.occupancy import Levels, Occupancy
from instaslice.simulate.samples import MOST_SHOWN, Sample, Samples
from instaslice.simulate.tally import Tally


class QueueDiscipline(StrEnum):
    """What happens to a pod that does not fit: it is rejected, waits in strict order, or lets others that fit pass."""

    NONE = "none"
    FIFO = "fifo"
    BACKFILL = "backfill"


class Rules(NamedTuple):
    """How the world behaves. Latencies are those of one pod's slices, created or destroyed together.

    Pods that arrive before `warm_up` others have are simulated and not counted. At most `moves` slices are moved for a
    pod that does not fit; the part `movable` of all pods may be moved, which makes them run longer by the latencies.
    With `BACKFILL`, GPUs are reserved for the first pod in the queue after `patience_ms`; None: never.
    """

    queue: QueueDiscipline = QueueDiscipline.NONE
    create_ms: int = 0
    destroy_ms: int = 0
    warm_up: int = 0
    moves: int = 0
    movable: float = 1.0
    patience_ms: int | None = round(1000 * PATIENCE)


class _Running(NamedTuple):
    """A pod that holds its slices until `end`, or for good where that is NEVER."""

    end: int
    grants: tuple[Grant, ...]


class Simulation:
    """One run of one policy on one fleet. `run` once, then read `tally`, `occupancy` and `samples`."""

    def __init__(
        self, plan: FleetPlan, policy: Policy, rules: Rules, asked: Mapping[str, float], learns_from: int | None = None
    ) -> None:
        """`asked` weighs profiles in what counts as fragmentation. `learns_from` is after how many arrivals the policy
        first thinks about them; None: never."""
        self.plan = plan
        self.fleet = plan.build()
        self.rules = rules
        self.tally = Tally(plan.sizes)
        self.occupancy = Occupancy(self.fleet, asked)
        self.samples = Samples(self._sample)
        self.now = 0
        self.averages = Levels(0.0, 0.0, 0.0)
        """From the end of the warm-up to the last arrival."""
        every = -(-plan.gpus // MOST_SHOWN)
        self.shown = range(0, plan.gpus, every)
        """The GPUs on the map, by number."""
        self._placer = Placer(self.fleet, policy)
        self._demands: dict[Wants, Demand] = {}
        self._ends: list[tuple[int, int]] = []  # end and number of pods; stale where `_running` knows better
        self._running: dict[int, _Running] = {}
        self._holder: dict[Grant, int] = {}  # only if slices may be moved
        self._learns_at = learns_from
        self._queue = WaitingQueue()
        self._waiting: dict[str, tuple[int, Job]] = {}  # those in the queue, each with its number
        self._longest: LongestWaiting | None = None
        if rules.queue is QueueDiscipline.BACKFILL and rules.patience_ms is not None:
            self._longest = LongestWaiting(self.fleet, self._queue, rules.patience_ms / 1000, second=1000)
        self._number = 0
        self._accepted = 0

    def run(self, jobs: Iterable[Job]) -> None:
        """Simulate until the last pod has arrived and, where pods wait, until all have run."""
        for job in jobs:
            self._until(job.at)
            if self._number == self.rules.warm_up:
                self.occupancy.restart(job.at)
            self._arrive(job)
        self.averages = self.occupancy.average(self.now)
        if self.rules.queue is not QueueDiscipline.NONE:
            while self._ends:
                self._until(self._ends[0][0])
        self.samples.reach(self.now + 1)

    @property
    def waiting(self) -> int:
        """Pods that wait now."""
        return len(self._queue)

    def _until(self, time: int) -> None:
        """All that happens up to a time, ends at that very time included."""
        ends = self._ends
        while (now := self._next()) is not None and now <= time:
            self._tick(now)
            while ends and ends[0][0] == now:
                self._end(heappop(ends)[1])
                self._queue.retry_all()
            if self._waiting:
                self._serve()
        self._tick(time)

    def _next(self) -> int | None:
        """When something happens next by itself: a pod ends, or it is time to choose for whom GPUs are reserved."""
        due = self._longest.due if self._longest is not None else None
        end = self._ends[0][0] if self._ends else None
        if due is None or (end is not None and end <= due):
            return end
        return max(ceil(due), self.now)

    def _tick(self, now: int) -> None:
        if now > self.samples.due:
            self.samples.reach(now)
        self.now = now

    def _arrive(self, job: Job) -> None:
        number, self._number = self._number, self._number + 1
        wants = job.wants
        counted = number >= self.rules.warm_up
        if counted:
            self.tally.arrived(wants)
        demand = self._demand(wants)
        self._placer.arrived(demand)
        if number == self._learns_at:
            self._placer.policy.tune(
                self.fleet, Regime.LOSS if self.rules.queue is QueueDiscipline.NONE else Regime.QUEUE
            )
            self._learns_at = next_tuning(number)
        if self.rules.queue is QueueDiscipline.NONE:
            if not self._try(demand, number, job):
                self._refused(number, wants)
        elif self.plan.can_ever_hold(wants):
            self._wait(number, job)
        elif counted:
            self.tally.rejected(wants)
            self.tally.impossible += 1

    def _refused(self, number: int, wants: Wants) -> None:
        if number < self.rules.warm_up:
            return
        self.tally.rejected(wants)
        self.tally.impossible += not self.plan.can_ever_hold(wants)
        self._count_pieces(wants)

    def _wait(self, number: int, job: Job) -> None:
        """Queue a pod and serve the queue, as the controller does: only requests that nobody waits for are tried."""
        strict, uid = self.rules.queue is QueueDiscipline.FIFO, str(number)
        behind = strict and len(self._queue) > 0
        self._waiting[uid] = number, job
        self._queue.add(uid, "" if strict else job.wants, priority=0, since=self.now)
        self._serve()
        if uid in self._waiting and number >= self.rules.warm_up:
            self.tally.queued += 1
            if not behind:
                self._count_pieces(job.wants)

    def _count_pieces(self, wants: Wants) -> None:
        reserved = self._longest.reserved.gpus if self._longest is not None and self._longest.reserved else ()
        kept = sum(self.occupancy.free(self.fleet.number(gpu)) for gpu in reserved)
        self.tally.room_in_pieces += self.tally.size(wants) <= self.plan.slices - self.occupancy.used - kept

    def _serve(self) -> None:
        """One decision of the controller, and the next where a pod was placed that GPUs were reserved for."""
        again = True
        while again:
            if self._longest is not None:
                self._longest.choose(self.now, self._queued_at, self._reserve)
            reserved = self._longest.reserved if self._longest is not None else None
            self._queue.serve(self._place)
            again = reserved is not None and reserved.uid not in self._waiting
            if again:
                self._queue.retry_all()  # what it leaves of what was reserved for it

    def _queued_at(self, uid: str) -> float:
        return self._waiting[uid][1].at

    def _reserve(self, uid: str) -> bool:
        """Reserve GPUs for a waiting pod; False where it fits now."""
        wants = self._waiting[uid][1].wants
        if self._longest is None or isinstance(self._placer.place(self._demand(wants)), Plan):
            return False
        return self._longest.reserve(uid, wants, _any_node, whole_node=False, now=self.now)

    def _place(self, uid: str) -> bool:
        number, job = self._waiting[uid]
        attempt = partial(self._try, self._demand(job.wants), number, job)
        placed = self._longest.open_for(uid, attempt) if self._longest is not None else attempt()
        if placed:
            del self._waiting[uid]
        return placed

    def _try(self, demand: Demand, number: int, job: Job) -> bool:
        started = self.now + self.rules.create_ms
        plan = self._placer.place(demand)
        if isinstance(plan, Plan):
            self._placer.commit(plan)
            self._note(plan.grants)
        elif self.rules.moves and (found := self._rearranged(demand)) is not None:
            plan = found.plan
            started += self.rules.destroy_ms  # of what was in the way
            if number >= self.rules.warm_up:
                self.tally.moves += len(found.moves)
        else:
            return False
        self._accepted += 1
        if number >= self.rules.warm_up:
            self.tally.accepted(job.wants, started - job.at)
        end = NEVER if job.life == NEVER else started + job.life + self.rules.destroy_ms
        self._hold(number, _Running(end, plan.grants))
        return True

    def _rearranged(self, demand: Demand) -> moves.Rearrangement | None:
        """Makes room by moving others and holds it; None if too few may move."""
        found = moves.find(self.fleet, self._placer.policy, demand, self._movable, most=self.rules.moves)
        if found is None:
            return None
        self._placer.rearrange(found)
        self._note((*(grant for move in found.moves for grant in move), *found.plan.grants))
        # All old slots are free before a new one is taken, and a new one may be where an old one was.
        owners = [self._holder.pop(move.old) for move in found.moves]
        for owner, move in zip(owners, found.moves, strict=True):
            end = self._running[owner].end
            if end != NEVER:
                end += self.rules.destroy_ms + self.rules.create_ms
            self._hold(owner, _Running(end, (move.new,)))
        return found

    def _hold(self, number: int, running: _Running) -> None:
        self._running[number] = running
        if running.end != NEVER:
            heappush(self._ends, (running.end, number))
        if self.rules.moves:
            for grant in running.grants:
                self._holder[grant] = number

    def _movable(self, grant: Grant) -> bool:
        """Whether it belongs to a movable pod of one slice: the same pods under every policy."""
        owner = self._holder[grant]
        return len(self._running[owner].grants) == 1 and owner * 2654435761 % 2**32 < self.rules.movable * 2**32

    def _end(self, number: int) -> None:
        running = self._running.get(number)
        if running is None or running.end != self.now:
            return  # it was moved, and ends later
        del self._running[number]
        self._placer.release(running.grants)
        self._note(running.grants)
        if self.rules.moves:
            for grant in running.grants:
                del self._holder[grant]

    def _demand(self, wants: Wants) -> Demand:
        demand = self._demands.get(wants)
        if demand is None:
            demand = self._demands[wants] = Demand(wants)
        return demand

    def _note(self, changed: tuple[Grant, ...]) -> None:
        for grant in changed:
            self.occupancy.update(self.fleet.number(grant.gpu), self.now)

    def _sample(self, at: int) -> Sample:
        levels = self.occupancy.present()
        return Sample(
            at=at,
            active=round(levels.active),
            used=round(levels.used),
            fragmentation=levels.fragmentation,
            running=len(self._running),
            waiting=self.waiting,
            arrived=self._number,
            accepted=self._accepted,
            states=tuple(map(self.fleet.state, self.shown)),
        )


def _any_node(_: NodeName) -> bool:
    return True
