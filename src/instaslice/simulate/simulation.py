"""The events: pods arrive, are placed or wait or go away, and end; in the order of time, exactly.

A pod is placed by the same `Placer` the controller uses. Its slices are held from the decision until the hardware has
destroyed them; it runs from when they are created. At one instant ends come before arrivals, and pods wait in the
order in which they came.
"""

from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from heapq import heappop, heappush
from typing import NamedTuple

from instaslice.geometry import States
from instaslice.placement import Demand, Grant, Placer, Plan, Policy
from instaslice.placement.pools import Pool
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.jobs import NEVER, Job, Wants
from instaslice.simulate.occupancy import Levels, Occupancy
from instaslice.simulate.samples import MOST_GPUS, Sample, Samples
from instaslice.simulate.tally import Tally


class Queue(StrEnum):
    """What becomes of a pod that finds no room: it goes away, waits behind all others, or lets those pass that fit."""

    NONE = "none"
    FIFO = "fifo"
    BACKFILL = "backfill"


class Rules(NamedTuple):
    """How the world behaves. Latencies are those of one pod's slices, created or destroyed together.

    Pods that arrive before `warm_up` others have are simulated and not counted.
    """

    queue: Queue = Queue.NONE
    create_ms: int = 0
    destroy_ms: int = 0
    warm_up: int = 0


class Simulation:
    """One run of one policy on one fleet. `run` once, then read `tally`, `occupancy` and `samples`."""

    def __init__(self, plan: FleetPlan, policy: Policy, rules: Rules) -> None:
        self.plan = plan
        self.fleet = plan.build()
        self.rules = rules
        self.tally = Tally(plan.sizes)
        self.occupancy = Occupancy(self.fleet)
        self.samples = Samples(self._sample)
        self.now = 0
        self.averages = Levels(0.0, 0.0, 0.0)
        """From the end of the warm-up to the last arrival."""
        every = -(-plan.gpus // MOST_GPUS)
        self.shown = range(0, plan.gpus, every)
        """The GPUs on the map, by number."""
        self._geometry = [pool.states for pool in self.fleet.pool_of if isinstance(pool, Pool)]
        self._placer = Placer(self.fleet, policy)
        self._demands: dict[Wants, Demand] = {}
        self._ends: list[tuple[int, int, tuple[Grant, ...]]] = []
        self._lines: dict[Wants, deque[tuple[int, Job]]] = {}  # waiting pods by kind, each with its number
        self._number = 0
        self._accepted = 0
        self._ended = 0
        self._waiting = 0
        self._asked: dict[str, float] = {}

    def run(self, jobs: Iterable[Job], asked: dict[str, float]) -> None:
        """Simulate until the last pod has arrived and, where pods wait, until all have run.

        `asked` weighs profiles in what counts as fragmentation.
        """
        self._asked = asked
        for job in jobs:
            self._until(job.at)
            if self._number == self.rules.warm_up:
                self.occupancy.restart(job.at)
            self._arrive(job)
        self.averages = self.occupancy.average(self.now, asked)
        if self.rules.queue is not Queue.NONE:
            while self._ends:
                self._until(self._ends[0][0])
        self.samples.reach(self.now + 1)

    @property
    def waiting(self) -> int:
        """Pods that wait now."""
        return self._waiting

    def geometry(self, gpu: int) -> States:
        """The states that a GPU, by number, can be in."""
        return self._geometry[gpu]

    def _until(self, time: int) -> None:
        """All that happens up to a time, ends at that very time included."""
        ends = self._ends
        while ends and ends[0][0] <= time:
            now = ends[0][0]
            self._tick(now)
            while ends and ends[0][0] == now:
                self._release(heappop(ends)[2])
            if self._lines:
                self._place_waiting()
        self._tick(time)

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
        if self._lines and (wants in self._lines or self.rules.queue is Queue.FIFO):
            placed = False  # one of its kind waits already, and nothing has been freed since it was tried
        else:
            placed = self._try(demand, number, job)
        if placed:
            return
        if counted and self.tally.size(wants) <= self.plan.slices - self.occupancy.used:
            self.tally.room_in_pieces += 1
        possible = self.plan.can_ever_hold(wants)
        if possible and self.rules.queue is not Queue.NONE:
            self._lines.setdefault(wants, deque()).append((number, job))
            self._waiting += 1
        elif counted:
            self.tally.rejected(wants)
            self.tally.impossible += not possible

    def _place_waiting(self) -> None:
        """In the order of arrival; where one of a kind finds no room, none of its kind does."""
        heads = sorted((line[0][0], wants) for wants, line in self._lines.items())
        while heads:
            _, wants = heads.pop(0)
            line = self._lines[wants]
            number, job = line[0]
            if not self._try(self._demand(wants), number, job):
                if self.rules.queue is Queue.FIFO:
                    return
                continue
            line.popleft()
            self._waiting -= 1
            if line:
                heads.append((line[0][0], wants))
                heads.sort()
            else:
                del self._lines[wants]

    def _try(self, demand: Demand, number: int, job: Job) -> bool:
        plan = self._placer.place(demand)
        if not isinstance(plan, Plan):
            return False
        self._hold(plan)
        started = self.now + self.rules.create_ms
        self._accepted += 1
        if number >= self.rules.warm_up:
            self.tally.accepted(job.wants, started - job.at)
        if job.life != NEVER:
            heappush(self._ends, (started + job.life + self.rules.destroy_ms, number, plan.grants))
        return True

    def _demand(self, wants: Wants) -> Demand:
        demand = self._demands.get(wants)
        if demand is None:
            demand = self._demands[wants] = Demand(wants)
        return demand

    def _hold(self, plan: Plan) -> None:
        before = self._states(plan.grants)
        self._placer.commit(plan)
        self._note(before)

    def _release(self, grants: tuple[Grant, ...]) -> None:
        before = self._states(grants)
        self._placer.release(grants)
        self._ended += 1
        self._note(before)

    def _states(self, grants: tuple[Grant, ...]) -> list[tuple[int, int]]:
        fleet = self.fleet
        if len(grants) == 1:
            number = fleet.number(grants[0].gpu)
            return [(number, fleet.state_of[number])]
        return [(number, fleet.state_of[number]) for number in {fleet.number(grant.gpu) for grant in grants}]

    def _note(self, before: list[tuple[int, int]]) -> None:
        for number, state in before:
            self.occupancy.shift(self._geometry[number], state, self.fleet.state_of[number], self.now)

    def _sample(self, at: int) -> Sample:
        levels = self.occupancy.present(self._asked)
        return Sample(
            at=at,
            active=round(levels.active),
            used=round(levels.used),
            fragmentation=levels.fragmentation,
            running=self._accepted - self._ended,
            waiting=self._waiting,
            arrived=self._number,
            accepted=self._accepted,
            states=tuple(self.fleet.state_of[number] for number in self.shown),
        )
