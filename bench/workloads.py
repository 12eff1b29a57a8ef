"""Mixes of profiles, how much of one a fleet can hold, and the three event loops over the real placer.

Shared by the benches of this folder; nothing here is tuned.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from instaslice.geometry import models
from instaslice.placement import Demand, Fleet, GpuId, Grant, NodeName, Placer, Plan, moves
from instaslice.placement.rehearsal import Arrival

MODEL = models.named("A100-40GB")
PROFILES = ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
SIZES = tuple(MODEL.profile(name).size for name in PROFILES)
DEMANDS = tuple(Demand((name,)) for name in PROFILES)
NODES, GPUS_PER_NODE = 13, 8
GPUS = NODES * GPUS_PER_NODE

Mix = tuple[float, ...]


def fleet(gpus: int = GPUS) -> Fleet:
    made = Fleet()
    for gpu in range(gpus):
        made.add_gpu(GpuId(f"gpu-{gpu:06}"), NodeName(f"node-{gpu // GPUS_PER_NODE:05}"), MODEL)
    return made


def mixes(seed: int, count: int) -> list[Mix]:
    """Random mixes, every one as likely (Dirichlet with all parameters 1)."""
    random = Random(seed)
    rows = [[random.expovariate(1.0) for _ in PROFILES] for _ in range(count)]
    return [tuple(value / sum(row) for value in row) for row in rows]


def history(mix: Mix, random: Random, count: int = 2000) -> dict[str, float]:
    """What a policy may know of a mix: the profiles of the last 2000 arrivals."""
    return dict(Counter(PROFILES[p] for p in random.choices(range(len(mix)), mix, k=count)))


def capacity(mix: Mix, gpus: int = GPUS) -> float:
    """How many slices of this mix a fleet holds at once when packed ideally, fractions allowed: load 1.0.

    A GPU has a left half (4g, 3g or two pairs) and a right half (3g, or a pair and the slot at 6, which also takes a
    1g.10gb); what fits follows from counting halves and pairs.
    """
    one, double, two, three, four, seven = mix

    def fits(total: float) -> bool:
        whole = gpus - total * seven
        right = max(0.0, whole - total * three)
        left = whole - total * four - max(0.0, total * three - whole)
        pairs = 2 * left + right - total * two - max(0.0, total * double - right)
        return min(whole, left, pairs) >= 0 and total * one <= 2 * pairs + max(0.0, right - total * double)

    low, high = 0.0, 8.0 * gpus
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class Outcome(NamedTuple):
    """The share of memory slices asked for that fitted at once, and moves made for each slice placed."""

    share: float
    moves: float


def loss(placer: Placer, jobs: Iterable[Arrival], warm_up: float, most_moves: int = 0) -> Outcome:
    """What does not fit is gone; jobs before `warm_up` do not count. Every slice may be moved, at no cost."""
    ends: list[tuple[float, int]] = []
    held: dict[int, Grant] = {}
    holder: dict[Grant, int] = {}
    asked = given = placed = moved = 0
    for number, (at, life, profile) in enumerate(jobs):
        while ends and ends[0][0] <= at:
            grant = held.pop(heappop(ends)[1])
            placer.release((grant,))
            del holder[grant]
        answer = placer.place(DEMANDS[profile])
        plan = answer if isinstance(answer, Plan) else None
        if plan is not None:
            placer.commit(plan)
        elif most_moves:
            found = moves.find(placer.fleet, placer.policy, DEMANDS[profile], lambda _: True, most=most_moves)
            if found is not None:
                placer.rearrange(found)
                plan = found.plan
                moved += len(found.moves)
                for new, owner in [(move.new, holder.pop(move.old)) for move in found.moves]:
                    held[owner] = new
                    holder[new] = owner
        if plan is not None:
            placed += 1
            held[number] = plan.grants[0]
            holder[plan.grants[0]] = number
            heappush(ends, (at + life, number))
        if at >= warm_up:
            asked += SIZES[profile]
            given += SIZES[profile] if plan is not None else 0
    return Outcome(given / asked, moved / placed)


def queue(placer: Placer, jobs: Sequence[Arrival], warm_up: float) -> float:
    """The mean wait, in mean lives, of jobs that come after `warm_up`: first come first served, smaller may pass."""
    ends: list[tuple[float, int]] = []
    held: dict[int, tuple[Grant, ...]] = {}
    waiting: list[deque[int]] = [deque() for _ in PROFILES]
    waits: list[float] = []

    def start(number: int, now: float) -> bool:
        answer = placer.place(DEMANDS[jobs[number].profile])
        if not isinstance(answer, Plan):
            return False
        placer.commit(answer)
        held[number] = answer.grants
        heappush(ends, (now + jobs[number].life, number))
        if jobs[number].at >= warm_up:
            waits.append(now - jobs[number].at)
        return True

    def finish_until(now: float) -> None:
        while ends and ends[0][0] <= now:
            then, number = heappop(ends)
            placer.release(held.pop(number))
            for queued in sorted((each for each in waiting if each), key=lambda each: each[0]):
                while queued and start(queued[0], then):
                    queued.popleft()

    for number, job in enumerate(jobs):
        finish_until(job.at)
        queued = waiting[job.profile]
        if queued or not start(number, job.at):
            queued.append(number)
    while any(waiting):
        finish_until(ends[0][0])
    return sum(waits) / len(waits)
