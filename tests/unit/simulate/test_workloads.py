"""Where jobs come from: repeatable, in order, and as many at once as the load says."""

from random import Random

import pytest
from small_runs import ONE_GPU, job

from instaslice.errors import BadInput
from instaslice.simulate import workloads
from instaslice.simulate.fleets import from_flags
from instaslice.simulate.jobs import NEVER
from instaslice.simulate.mixes import read

PLAN = from_flags(["13x8xA100-40GB"])
TRACE = [job(0, 3000, "7g.40gb"), job(9, 1000, "1g.5gb")]


@pytest.mark.parametrize("lives", list(workloads.LIVES))
def test_a_load_is_what_would_run_at_once_over_what_fits(lives):
    made = workloads.poisson(PLAN, read("7g.40gb", PLAN), 0.9, 60_000, 40_000, lives)
    jobs = list(made.jobs(Random(3)))
    running = sum(each.life for each in jobs) / jobs[-1].at
    assert running / PLAN.gpus == pytest.approx(0.9, rel=0.08)
    assert made.concurrent == pytest.approx(0.9 * PLAN.gpus)
    assert [each.at for each in jobs] == sorted(each.at for each in jobs)


def test_the_same_seed_makes_the_same_jobs_and_another_seed_others():
    made = workloads.poisson(PLAN, read("uniform", PLAN), 1.0, 60_000, 3000)
    assert list(made.jobs(Random(1))) == list(made.jobs(Random(1))) != list(made.jobs(Random(2)))
    assert len(list(made.jobs(Random(1)))) == 3000


def test_a_fill_up_brings_so_many_times_what_fits_and_nothing_ends():
    jobs = list(workloads.fill_up(PLAN, read("1g.5gb", PLAN), 1.05).jobs(Random(1)))
    assert len(jobs) == round(1.05 * 7 * 104)
    assert {each.life for each in jobs} == {NEVER}


def test_a_resampled_trace_keeps_lives_and_weighs_by_them():
    made = workloads.resampled(ONE_GPU, TRACE, 0.5, 5000)
    jobs = list(made.jobs(Random(1)))
    assert {(each.life, each.wants) for each in jobs} == {(each.life, each.wants) for each in TRACE}
    # Three of four that run at once are whole GPUs: (3/4 + 1/4 * 1/7) GPUs each, so 0.5 GPUs hold so many.
    assert made.concurrent == pytest.approx(0.5 / (3 / 4 + 1 / 28))


@pytest.mark.parametrize("lives", list(workloads.LIVES))
@pytest.mark.parametrize(("begin", "end"), [(0, 400), (100, 400), (800, 4000), (3000, 12_000)])
def test_the_load_that_is_met_is_what_runs_on_average_between_two_arrivals(lives, begin, end):
    made = workloads.poisson(PLAN, read("7g.40gb", PLAN), 0.9, 60_000, end, lives)
    met = []
    for seed in range(40):
        jobs = list(made.jobs(Random(seed)))
        since, until = jobs[begin].at, jobs[-1].at
        held = sum(max(min(each.at + each.life, until) - max(each.at, since), 0) for each in jobs)
        met.append(held / (until - since) / made.concurrent)
    assert made.load_met(begin, end) == pytest.approx(sum(met) / len(met), rel=0.1)


def test_the_load_that_a_resampled_trace_meets_goes_by_its_own_lives():
    """One pod in ten lives a hundred times as long as the others: after 10 of their lives it has hardly begun."""
    trace = [job(0, 1000, "1g.5gb")] * 9 + [job(0, 100_000, "1g.5gb")]
    made = workloads.resampled(ONE_GPU, trace, 0.5, 5000)
    at_once = made.concurrent * 1000 * 10 / 109_000  # so many arrive in a second
    begin, end = round(10 * at_once), round(11 * at_once)
    assert made.load_met(begin, end) == pytest.approx((9 * 1000 + 10_500) / 109_000, rel=0.05)
    assert made.load_met(round(101 * at_once), round(200 * at_once)) == pytest.approx(1.0, rel=0.05)


def test_as_many_pods_arrive_as_a_load_needs():
    few = workloads.poisson(PLAN, read("uniform", PLAN), 1.0, 60_000, 1)
    assert workloads.enough_pods(few, 0.2) == workloads.PODS
    large = workloads.poisson(from_flags(["1250x8xA100-40GB"]), read("uniform", PLAN), 1.0, 60_000, 1)
    count = workloads.enough_pods(large, 0.2)
    assert large.load_met(count // 5, count) >= 0.99 > large.load_met(count // 10, count // 2)
    assert workloads.enough_pods(large, 0.2, 50_000) == 50_000
    assert workloads.too_few_pods(large, 0) is not None
    assert workloads.too_few_pods(workloads.FillUp(read("uniform", PLAN), 1), 0) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: workloads.poisson(PLAN, read("uniform", PLAN), 0.0, 1000, 10),
        lambda: workloads.poisson(PLAN, read("uniform", PLAN), 1.0, -1, 10),
        lambda: workloads.poisson(PLAN, read("uniform", PLAN), float("nan"), 1000, 10),
        lambda: workloads.fill_up(PLAN, read("uniform", PLAN), -1),
        lambda: workloads.fill_up(from_flags(["100000x8xA100-40GB"]), read("1g.5gb", PLAN), 100),
        lambda: workloads.TraceReplay([]),
        lambda: workloads.resampled(ONE_GPU, [], 1.0, 10),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(BadInput):
        make()
