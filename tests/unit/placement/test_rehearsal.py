"""The small model of a fleet on which tables are tried, on jobs whose outcome can be told by hand."""

from itertools import pairwise
from random import Random

import pytest
from fleets import A100, judged

from instaslice.geometry import States
from instaslice.placement import Regime, portfolio, rehearsal
from instaslice.placement.portfolio import RECIPES, UNINFORMED, Forecast, best_recipe, rankings
from instaslice.placement.rehearsal import Arrival, RehearsalPool
from instaslice.placement.value_tables import mix_of

KINDS = States.of(A100).kinds
SIZES = [profile.size for profile in A100.profiles]
WHOLE, THREE, FOUR = (KINDS.profile(name) for name in ("7g.40gb", "3g.20gb", "4g.20gb"))


def pool(gpus=1, recipe=UNINFORMED):
    return RehearsalPool(A100, rankings(KINDS, recipe, mix_of(KINDS, {})), gpus)


def test_what_finds_no_room_is_lost_by_memory():
    jobs = [Arrival(0, 10, WHOLE), Arrival(1, 1, THREE), Arrival(11, 1, THREE)]
    assert rehearsal.loss(pool(), jobs, SIZES) == 12 / 16


def test_jobs_before_the_warm_up_do_not_count():
    jobs = [Arrival(0, 10, WHOLE), Arrival(1, 1, THREE), Arrival(11, 1, THREE)]
    assert rehearsal.loss(pool(), jobs, SIZES, warm_up=5) == 1.0


def test_when_filling_up_nothing_ends():
    jobs = [Arrival(0, 1, FOUR), Arrival(5, 1, FOUR), Arrival(9, 1, THREE)]
    assert rehearsal.fill(pool(), jobs, SIZES) == 8 / 12


def test_of_far_less_than_one_arrival_a_mix_is_rehearsed_all_the_same():
    """As where a model takes a hundredth of what is imagined of a profile."""
    assert best_recipe(A100, 1, Forecast({"1g.5gb": 1e-4}), Random(1)) in RECIPES


@pytest.mark.parametrize(
    "jobs, wait",
    [
        pytest.param(
            [Arrival(0, 10, WHOLE), Arrival(4, 1, WHOLE), Arrival(20, 1, WHOLE)], 6 / 3, id="until the first has ended"
        ),
        pytest.param(
            [Arrival(0, 10, FOUR), Arrival(1, 1, WHOLE), Arrival(2, 1, THREE)],
            1 / 3,
            id="a smaller one passes; till the last comes",
        ),
        pytest.param(
            [Arrival(0, 2, WHOLE), Arrival(1, 5, WHOLE), Arrival(1.5, 1, WHOLE), Arrival(9, 1, THREE)],
            6.5 / 4,
            id="in turn",
        ),
    ],
)
def test_the_mean_wait(jobs, wait):
    assert rehearsal.queue(pool(), jobs) == pytest.approx(wait)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_places_whatever_fits(recipe):
    made = pool(gpus=2, recipe=recipe)
    for profile in (WHOLE, FOUR, THREE):
        assert made.place(profile) is not None
    assert made.place(THREE) is None


@pytest.mark.parametrize("regime", Regime)
def test_the_choice_repeats_from_a_seed(regime):
    forecast = Forecast({"1g.5gb": 5, "4g.20gb": 1, "7g.40gb": 2}, regime, concurrent=12)
    assert best_recipe(A100, 4, forecast, Random(3)) == best_recipe(A100, 4, forecast, Random(3))


@pytest.mark.parametrize("regime", Regime)
@pytest.mark.parametrize(
    "asked", [{"3g.20gb": 500, "4g.20gb": 500, "1g.5gb": 1000}, {"2g.10gb": 500, "3g.20gb": 500}], ids=str
)
def test_the_choice_is_near_the_best_on_jobs_that_it_has_not_seen(asked, regime):
    scores = {recipe: judged(recipe, asked, regime, runs=40) for recipe in RECIPES}
    best, worst = max(scores.values()), min(scores.values())
    chosen = scores[best_recipe(A100, 8, Forecast(asked, regime), Random(5))]
    assert chosen >= worst + 0.7 * (best - worst)


def test_without_gpus_there_is_nothing_to_rehearse():
    assert best_recipe(A100, 0, Forecast({"1g.5gb": 1}), Random(0)) == UNINFORMED


def test_jobs_come_by_the_mix_at_the_rate_and_stay_for_one_life_on_average():
    made = rehearsal.poisson_arrivals([0.75, 0.0, 0.25], 4.0, 20_000, Random(1))
    assert len(made) == 20_000
    assert all(before.at < after.at for before, after in pairwise(made))
    assert made[-1].at == pytest.approx(20_000 / 4, rel=0.05)
    assert sum(job.life for job in made) / len(made) == pytest.approx(1, rel=0.05)
    assert {job.profile for job in made} == {0, 2}
    assert sum(job.profile == 0 for job in made) / len(made) == pytest.approx(0.75, rel=0.05)


def test_of_no_jobs_nothing_is_lost_and_none_waits():
    assert rehearsal.loss(pool(), [], SIZES) == 1.0
    assert rehearsal.queue(pool(), []) == 0.0


@pytest.mark.parametrize(
    "warm_up, wait",
    [
        pytest.param(0, 6 / 3, id="all count"),
        pytest.param(4, 6 / 2, id="one that comes just then does"),
        pytest.param(5, 0, id="one that came before does not"),
        pytest.param(30, 0, id="nobody comes any more"),
    ],
)
def test_of_whose_waits_the_mean_is_taken(warm_up, wait):
    jobs = [Arrival(0, 10, WHOLE), Arrival(4, 1, WHOLE), Arrival(20, 1, WHOLE)]
    assert rehearsal.queue(pool(), jobs, warm_up) == pytest.approx(wait)


@pytest.mark.parametrize("warm_up, wait", [(0, 9 / 3), (1, 9 / 2), (2, 0)])
def test_what_still_waits_at_the_end_counts_till_then(warm_up, wait):
    jobs = [Arrival(0, 99, WHOLE), Arrival(1, 1, WHOLE), Arrival(10, 1, WHOLE)]
    assert rehearsal.queue(pool(), jobs, warm_up) == pytest.approx(wait)


@pytest.mark.parametrize("end, room", [(9.99, False), (10, True)])
def test_a_slice_that_ends_makes_room_at_that_moment(end, room):
    assert rehearsal.loss(pool(), [Arrival(0, 10, WHOLE), Arrival(end, 1, WHOLE)], SIZES) == (1.0 if room else 0.5)


@pytest.mark.parametrize(
    "gpus, concurrent, regime, rate, count",
    [
        pytest.param(4, None, Regime.QUEUE, 4, 48, id="as many as fill the fleet, for twelve lives"),
        pytest.param(4, None, Regime.FILL, 4, 4, id="once, where nothing ends"),
        pytest.param(4, 3, Regime.LOSS, 3, 36, id="as many as are expected"),
        pytest.param(4, 100, Regime.LOSS, 8, 96, id="not beyond twice what there is"),
        pytest.param(208, 100, Regime.LOSS, 50, 600, id="a large fleet is played at half its size"),
    ],
)
def test_how_much_demand_is_rehearsed(monkeypatch, gpus, concurrent, regime, rate, count):
    played = []

    def made(mix, rate, count, random):
        played.append((rate, count))
        return rehearsal.poisson_arrivals(mix, rate, 1, random)

    monkeypatch.setattr(portfolio, "poisson_arrivals", made)
    best_recipe(A100, gpus, Forecast({"7g.40gb": 1}, regime, concurrent), Random(1))
    assert set(played) == {(rate, count)}
