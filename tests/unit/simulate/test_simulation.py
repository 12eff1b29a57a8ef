"""The events: small cases worked out by hand, and what holds for every run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import ONE_GPU, TWO_GPUS, came_to, job, played

from instaslice.placement import policies
from instaslice.simulate.fleets import from_flags
from instaslice.simulate.jobs import NEVER
from instaslice.simulate.outcome import outcome
from instaslice.simulate.simulation import QueueDiscipline, Rules

WHOLE = "7g.40gb"


@pytest.mark.parametrize(
    ("second", "accepted"),
    [
        pytest.param(9_999, 1, id="a taken GPU refuses until the last millisecond"),
        pytest.param(10_000, 2, id="an end comes before an arrival of the same instant"),
    ],
)
def test_a_pod_without_room_goes_away(second, accepted):
    came = came_to(ONE_GPU, [job(0, 10_000, WHOLE), job(second, 5, WHOLE)])
    assert (came.accepted, came.rejected) == (accepted, 2 - accepted)
    assert came.by_slices == accepted / 2


@pytest.mark.parametrize(
    ("queue", "waits", "makespan"),
    [
        # 4g runs 0-10 s; 7g comes at 1 s; 3g comes at 2 s and would fit beside the 4g for 20 s.
        pytest.param(
            QueueDiscipline.BACKFILL, 0 + 21_000 + 0, 27_000, id="the 3g passes, the 7g starts when it ends at 22 s"
        ),
        pytest.param(
            QueueDiscipline.FIFO, 0 + 9_000 + 13_000, 35_000, id="the 3g stays behind the 7g, which ends at 15 s"
        ),
    ],
)
def test_who_waits_for_whom(queue, waits, makespan):
    jobs = [job(0, 10_000, "4g.20gb"), job(1_000, 5_000, WHOLE), job(2_000, 20_000, "3g.20gb")]
    came = came_to(ONE_GPU, jobs, Rules(queue))
    assert came.accepted == 3
    assert came.wait_mean_ms == waits / 3
    assert came.makespan_ms == makespan


def test_a_slice_is_held_while_it_is_created_and_destroyed():
    jobs = [job(0, 1000, WHOLE), job(0, 1000, WHOLE)]
    came = came_to(ONE_GPU, jobs, Rules(QueueDiscipline.BACKFILL, create_ms=250, destroy_ms=100))
    # The first runs 250 to 1250 and is gone at 1350; the second runs 1600 to 2600 and is gone at 2700.
    assert came.wait_mean_ms == (250 + 1600) / 2
    assert came.makespan_ms == 2700


def test_pods_of_one_kind_start_in_the_order_they_came():
    jobs = [job(0, 10, WHOLE), job(1, 10, WHOLE), job(2, 10, WHOLE)]
    came = came_to(ONE_GPU, jobs, Rules(QueueDiscipline.BACKFILL))
    assert came.wait_mean_ms == (0 + 9 + 18) / 3
    assert came.wait_p99_ms == 18


def test_several_slices_come_together_or_not_at_all():
    came = came_to(TWO_GPUS, [job(0, 10_000, "1g.5gb"), job(1, 10, WHOLE, WHOLE), job(2, 10, WHOLE)])
    assert (came.accepted, came.rejected) == (2, 1)
    assert came.profiles[WHOLE].asked == 3
    assert came.profiles[WHOLE].given == 1


def test_a_pod_that_fits_no_empty_node_is_turned_away_and_does_not_wait():
    came = came_to(TWO_GPUS, [job(0, 10, WHOLE, WHOLE, WHOLE), job(1, 10, WHOLE)], Rules(QueueDiscipline.FIFO))
    assert (came.accepted, came.rejected, came.waiting, came.impossible) == (1, 1, 0, 1)


def test_what_waits_for_what_never_ends_is_neither_accepted_nor_rejected():
    jobs = [job(0, NEVER, WHOLE), job(1, 5, WHOLE), job(2, 5, "1g.5gb")]
    run = played(ONE_GPU, jobs, Rules(QueueDiscipline.BACKFILL))
    came = outcome(run, seed=0)
    assert (came.arrived, came.accepted, came.rejected, came.waiting, run.waiting) == (3, 1, 0, 2, 2)


def test_room_in_pieces_is_told_from_no_room():
    # Two 1g at 0 and 1 leave six slices of eight: enough for a 4g, which may start at 0 only.
    jobs = [job(0, NEVER, "1g.5gb"), job(1, NEVER, "1g.5gb"), job(2, 1, "4g.20gb"), job(3, 1, WHOLE)]
    assert came_to(ONE_GPU, jobs).room_in_pieces == 1


def test_what_is_reserved_for_another_pod_is_no_room_in_pieces():
    # The second GPU holds one small slice and is reserved at 2 s for the 7g that came at 1 s; the 3g waits beside it.
    jobs = [job(0, 90_000, WHOLE), job(0, 50_000, "1g.5gb"), job(1000, 5, WHOLE), job(3000, 5, "3g.20gb")]
    came = came_to(TWO_GPUS, jobs, Rules(QueueDiscipline.BACKFILL, patience_ms=1000))
    assert (came.queued, came.room_in_pieces) == (2, 0)
    assert came.profiles["3g.20gb"].wait_mean_ms == 47_005


def test_averages_are_over_the_time_until_the_last_arrival():
    came = came_to(TWO_GPUS, [job(0, 5_000, WHOLE), job(10_000, 5_000, "1g.5gb")])
    assert came.gpus_active == 0.5
    assert came.slices_used == 4.0


def test_what_warms_up_is_not_counted():
    jobs = [job(0, NEVER, WHOLE), job(10, 5, WHOLE), job(20, 5, WHOLE)]
    came = came_to(ONE_GPU, jobs, Rules(warm_up=1))
    assert (came.arrived, came.accepted, came.rejected) == (2, 0, 2)
    assert came.gpus_active == 1.0


@pytest.mark.parametrize(
    ("rules", "accepted", "moves", "makespan"),
    [
        pytest.param(Rules(), 2, 0, 3, id="no moves: the 7g finds no empty GPU"),
        pytest.param(Rules(moves=1), 3, 1, 3, id="one move empties a GPU"),
        pytest.param(Rules(moves=1, movable=0.0), 2, 0, 3, id="nobody lets itself be moved"),
        pytest.param(
            Rules(QueueDiscipline.FIFO, create_ms=7, destroy_ms=5, moves=1),
            3,
            1,
            1001 + 12 + 12,
            id="a moved pod runs longer",
        ),
    ],
)
def test_moves_make_room(rules, accepted, moves, makespan):
    jobs = [job(1, 1000, "1g.5gb"), job(2, 1000, "1g.5gb"), job(3, 5, WHOLE)]
    came = came_to(TWO_GPUS, jobs, rules, policy="spread")
    assert (came.accepted, came.moves, came.makespan_ms) == (accepted, moves, makespan)


JOBS = st.lists(
    st.builds(
        job,
        st.integers(0, 200),
        st.integers(0, 60),
        st.sampled_from(["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]),
    )
    | st.builds(
        job, st.integers(0, 200), st.integers(0, 60), st.just("3g.20gb"), st.sampled_from(["1g.5gb", "7g.40gb"])
    ),
    min_size=1,
    max_size=40,
).map(lambda jobs: sorted(jobs, key=lambda each: each.at))


@settings(max_examples=60, deadline=None)
@given(
    JOBS,
    st.sampled_from(list(QueueDiscipline)),
    st.sampled_from(policies.names()),
    st.integers(0, 2),
    st.integers(0, 9),
)
def test_nothing_is_lost_whatever_happens(jobs, queue, policy, moves, latency):
    run = played(TWO_GPUS, jobs, Rules(queue, latency, latency, moves=moves), policy)
    came = came_to(TWO_GPUS, jobs, Rules(queue, latency, latency, moves=moves), policy)
    assert came.arrived == len(jobs) == came.accepted + came.rejected + came.waiting
    assert came.waiting == run.waiting == 0
    if queue is not QueueDiscipline.NONE:
        assert run.occupancy.used == 0, "when all have ended the fleet is empty"
        assert all(not run.fleet.held(gpu) for gpu in run.fleet.names)
        assert came.accepted == len(jobs), "every one of these fits an empty node"
    held = sum(placement.size for gpu in run.fleet.names for placement in run.fleet.held(gpu))
    assert run.occupancy.used == held


def test_a_mixed_fleet_takes_what_only_one_model_has():
    plan = from_flags(["1x1xA30", "1x1xA100-40GB"])
    came = came_to(plan, [job(0, 9, "1g.6gb"), job(0, 9, WHOLE), job(1, 9, "4g.24gb"), job(2, 9, WHOLE)])
    assert {name: of.given for name, of in came.profiles.items()} == {"1g.6gb": 1, "4g.24gb": 0, WHOLE: 1}
