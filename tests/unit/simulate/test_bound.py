"""The bound: at least what the best choice of jobs gives when slices may move freely, and tight where it is whole."""

import sys
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import ONE_GPU, TWO_GPUS, came_to, job

from instaslice.geometry import States
from instaslice.placement import policies
from instaslice.simulate.bound import check, most_slices
from instaslice.simulate.errors import BadWorkload, MissingExtra
from instaslice.simulate.simulation import QueueDiscipline, Rules

A100 = ONE_GPU.main_model
STATES = States.of(A100)
LAYOUTS = {tuple(sorted(k.profile for k in STATES.held(s))) for s in range(len(STATES))}
PLAIN = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]


def best_choice(jobs):
    """By trying every subset on one GPU."""
    most = 0
    for count in range(len(jobs) + 1):
        for chosen in combinations(jobs, count):
            moments = ([w for o in chosen if o.at <= each.at < o.at + o.life for w in o.wants] for each in chosen)
            if all(tuple(sorted(held)) in LAYOUTS for held in moments):
                most = max(most, sum(ONE_GPU.sizes[w] for each in chosen for w in each.wants))
    return most


@settings(max_examples=25, deadline=None)
@given(st.lists(st.builds(job, st.integers(0, 20), st.integers(1, 20), st.sampled_from(PLAIN)), min_size=1, max_size=7))
def test_no_choice_of_jobs_exceeds_it(jobs):
    jobs.sort(key=lambda each: each.at)
    assert best_choice(jobs) <= most_slices(ONE_GPU, jobs, Rules()) + 1e-6


@pytest.mark.parametrize(
    ("jobs", "most"),
    [
        pytest.param([job(0, 9, "7g.40gb"), job(1, 9, "7g.40gb")], 8, id="one of two that overlap"),
        pytest.param([job(0, 9, "7g.40gb"), job(9, 9, "7g.40gb")], 16, id="both when one ends as the other comes"),
        pytest.param([job(0, 9, "4g.20gb"), job(1, 9, "3g.20gb")], 8, id="both halves"),
        pytest.param([job(0, 9, "4g.20gb"), job(1, 9, "4g.20gb")], 4, id="one left half only"),
        pytest.param([job(0, -1, "1g.5gb")] * 9, 7, id="seven that never end"),
    ],
)
def test_small_cases(jobs, most):
    assert most_slices(ONE_GPU, jobs, Rules()) == pytest.approx(most)


def test_no_policy_exceeds_it():
    jobs = [job(3 * n, 40 + 7 * n % 50, PLAIN[n * n % 5]) for n in range(120)]
    bound = most_slices(TWO_GPUS, jobs, Rules())
    assert all(came_to(TWO_GPUS, jobs, policy=name).slices_given <= bound for name in policies.names())


def test_it_needs_scipy_and_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match=r"pip install 'instaslice\[bound\]'"):
        check(1, Rules())


@pytest.mark.parametrize(("jobs", "rules"), [(1, Rules(QueueDiscipline.FIFO)), (10**6, Rules())])
def test_where_there_is_no_bound_it_says_so_before_the_runs(jobs, rules):
    with pytest.raises(BadWorkload):
        check(jobs, rules)
