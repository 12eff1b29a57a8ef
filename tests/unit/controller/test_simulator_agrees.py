"""The simulator predicts the controller: the same pods start at the same times, also where GPUs are reserved."""

from heapq import heappop, heappush

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from world import World

from instaslice.placement import policies
from instaslice.simulate.fleets import from_flags
from instaslice.simulate.jobs import Job
from instaslice.simulate.simulation import QueueDiscipline, Rules, Simulation

FLEET = {"node-00000": 1, "node-00001": 2}
PLAN = from_flags(["1x1xA100-40GB", "1x2xA100-40GB"])
UNIT = 256


class Recording(Simulation):
    """Notes when which pod was placed, in seconds."""

    def __init__(self, *args):
        super().__init__(*args)
        self.starts = []

    def _hold(self, number, running):
        self.starts.append((self.now / 1000, number))
        super()._hold(number, running)


def starts_in_the_simulator(jobs, patience, policy):
    rules = Rules(QueueDiscipline.BACKFILL, patience_ms=1000 * patience)
    run = Recording(PLAN, policies.named(policy), rules, {})
    run.run(Job(1000 * at, 1000 * life, wants) for at, life, wants in jobs)
    return sorted(run.starts)


def starts_under_the_controller(jobs, patience, policy):
    world = World(patience=patience, policy=policy)
    for name, gpus in FLEET.items():
        world.add_node(name, gpus=gpus)
    world.settle()
    numbers, ends, starts, arriving = {}, [], {}, list(enumerate(jobs))
    while arriving or ends:
        times = [arriving[0][1][0]] if arriving else []
        times += [ends[0][0]] if ends else []
        due = world.dispatcher.longest_waiting.due
        world.wait(max(min(times if due is None else [*times, due]) - world.now, 0))
        while ends and ends[0][0] <= world.now:
            world.end_pod(heappop(ends)[1])
        world.settle(but="decide")  # the simulator has all slices of a pod destroyed at the same time
        world.settle()
        while arriving and arriving[0][1][0] <= world.now:
            number, (_, _, wants) = arriving.pop(0)
            numbers[world.add_pod(*wants)] = number
            world.settle()
        for uid in world.dispatcher.state.ledger.reservations:
            if (number := numbers[uid]) not in starts:
                starts[number] = world.now
                heappush(ends, (world.now + jobs[number][1], uid))
    return sorted((round(at, 6), number) for number, at in starts.items())


PODS = st.sampled_from(
    [("1g.5gb",), ("2g.10gb",), ("3g.20gb",), ("4g.20gb",), ("7g.40gb",), ("7g.40gb", "7g.40gb"), ("1g.5gb", "3g.20gb")]
)


@st.composite
def arrivals(draw):
    """Pods with their arrival and life. No two end at the same time, as the controller could learn of them in any
    order: each life has a bit of its own."""
    lives = draw(st.lists(st.integers(0, 7), min_size=1, max_size=8))
    at, jobs = 0, []
    for number, life in enumerate(lives):
        at += UNIT * draw(st.integers(0, 2))
        jobs.append((at, UNIT * life + 2**number, draw(PODS)))
    return jobs


A_SMALLER_ONE_WANTS_TO_PASS = [
    (0, 1028, ("4g.20gb",)),
    (0, 1800, ("3g.20gb",)),
    *[(0, 8000 + 2**number, (profile,)) for number, profile in enumerate(["4g.20gb", "3g.20gb"] * 2)],
    (UNIT, 16, ("7g.40gb",)),
    (2 * UNIT, 4064, ("4g.20gb",)),
]
"""The first GPU is full until 1028 and 1800, the others longer; number 6 waits for it, 7 for half of it."""


@settings(max_examples=40, deadline=None)
@given(arrivals(), st.sampled_from([0, UNIT, 2 * UNIT, 100 * UNIT]), st.sampled_from(["first-fit", "fgd"]))
@example(A_SMALLER_ONE_WANTS_TO_PASS, UNIT, "first-fit")
def test_pods_start_when_they_would_under_the_controller(jobs, patience, policy):
    expected = starts_under_the_controller(jobs, patience, policy)
    assert len(expected) == len(jobs)
    assert starts_in_the_simulator(jobs, patience, policy) == expected


@pytest.mark.parametrize(
    ("patience", "large", "smaller"),
    [
        pytest.param(UNIT, 1800, 1816, id="the GPU is reserved before half of it becomes free"),
        pytest.param(100 * UNIT, 1028 + 4064, 1028, id="the smaller pod passes"),
    ],
)
def test_patience_decides_who_starts_first(patience, large, smaller):
    starts = {number: at for at, number in starts_in_the_simulator(A_SMALLER_ONE_WANTS_TO_PASS, patience, "first-fit")}
    assert (starts[6], starts[7]) == (large, smaller)
