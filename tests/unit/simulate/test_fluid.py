"""How much fits when packing is ideal: worked out by hand, and the prices that say why."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from instaslice.geometry import States, models
from instaslice.simulate.errors import BadWorkload
from instaslice.simulate.fluid import Fluid, maximise_first

A100, A30 = models.named("A100-40GB"), models.named("A30")
PROFILES = ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


@pytest.mark.parametrize(
    ("demand", "most"),
    [
        pytest.param({"7g.40gb": 1.0}, 10.0, id="one whole GPU each"),
        pytest.param({"1g.5gb": 1.0}, 70.0, id="seven of the smallest: the eighth slice has no compute"),
        pytest.param({"1g.10gb": 1.0}, 40.0, id="four with double memory"),
        pytest.param({"2g.10gb": 1.0}, 30.0, id="three, at 0, 2 and 4"),
        pytest.param({"4g.20gb": 1.0}, 10.0, id="4g starts at 0 only"),
        pytest.param({"3g.20gb": 1.0, "4g.20gb": 1.0}, 10.0, id="a 4g and a 3g fill one GPU"),
        pytest.param({"1g.5gb": 7.0, "7g.40gb": 1.0}, 5.0, id="half the GPUs for each"),
    ],
)
def test_what_ten_gpus_hold(demand, most):
    assert Fluid({A100: 10}, tuple(demand)).capacity(demand).most == pytest.approx(most)


def test_a_mixed_fleet_holds_what_its_parts_hold():
    assert Fluid({A100: 2, A30: 3}, ("7g.40gb", "4g.24gb")).capacity(
        {"7g.40gb": 2, "4g.24gb": 3}
    ).most == pytest.approx(1)


def test_what_no_gpu_has_is_refused():
    with pytest.raises(BadWorkload, match=r"1g\.6gb"):
        Fluid({A100: 1}, ("1g.6gb",))


@pytest.mark.parametrize("demand", [{}, {"1g.5gb": 0.0}, {"1g.5gb": -1.0}])
def test_a_demand_for_nothing_is_refused(demand):
    with pytest.raises(BadWorkload):
        Fluid({A100: 1}, PROFILES).capacity(demand)


@given(st.lists(st.floats(0.01, 1.0), min_size=6, max_size=6))
def test_no_layout_is_worth_more_than_the_limit(shares):
    found = Fluid({A100: 3}, PROFILES).capacity(dict(zip(PROFILES, shares, strict=True)))
    states = States.of(A100.only(PROFILES))
    worth = max(sum(found.prices[k.profile] for k in states.held(s)) for s in range(len(states)))
    assert 3 * worth <= found.limit + 1e-9
    assert found.most == pytest.approx(found.limit)
    assert sum(found.prices[p] * share for p, share in zip(PROFILES, shares, strict=True)) == pytest.approx(1.0)


LIMITS = st.one_of(st.just(0.0), st.integers(1, 200).map(float))
ROWS = st.lists(
    st.tuples(LIMITS, st.lists(st.integers(-7, 7).map(float), min_size=4, max_size=4)), min_size=1, max_size=6
)


@given(ROWS, st.integers(1, 100))
@settings(max_examples=300, deadline=None)
def test_the_optimum_is_the_one_that_scipy_finds(bounded, most):
    """scipy would nearly triple the size of an installation, so it is only an extra; its answer is the same."""
    rows = [row for _, row in bounded] + [[1.0, 0.0, 0.0, 0.0]]
    limits = [limit for limit, _ in bounded] + [float(most)]
    found = linprog([-1.0, 0.0, 0.0, 0.0], A_ub=rows, b_ub=limits)
    assert maximise_first(rows, limits)[0] == pytest.approx(-found.fun, abs=1e-6)
