"""What is measured in bounded memory is what would be measured without a bound."""

from hypothesis import given
from hypothesis import strategies as st

from instaslice.simulate.histogram import Histogram
from instaslice.simulate.outcome import estimate
from instaslice.simulate.samples import Samples


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_right_to_a_thousandth(values, part):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = next(v for i, v in enumerate(sorted(values), 1) if i >= part * len(values))
    assert abs(histogram.quantile(part) - exact) <= exact / 1000
    assert histogram.mean == sum(values) / len(values)


def test_no_waits_have_no_quantiles():
    assert Histogram().quantile(0.99) == 0.0
    assert Histogram().mean == 0.0


def test_samples_thin_out_and_stay_evenly_spaced():
    samples = Samples(lambda at: at, most=8)
    for now in range(0, 10_000_000, 700):
        samples.reach(now)
    assert len(samples.taken) < 8
    assert samples.taken == [n * samples.step for n in range(len(samples.taken))]
    assert samples.due >= 10_000_000 - 700


def test_a_single_seed_has_no_interval():
    assert estimate([0.5]).plus_minus == 0.0
    assert abs(estimate([0.4, 0.6]).plus_minus - 12.71 * 0.1) < 1e-9
