"""Which of several models takes a profile that more than one offers."""

from dataclasses import replace
from random import Random

import pytest
from fleets import A100, spots

from instaslice.geometry import models
from instaslice.placement import Demand, Fleet, GpuId, NodeName, Placer, Plan, policies
from instaslice.placement.policy import FIRST_TUNING
from instaslice.placement.scarcity import Scarcity

H100, A30 = models.named("H100-80GB-SXM5"), models.named("A30")
ONLY_A100 = {"1g.5gb": 12.0, "3g.20gb": 2.0}
"""Beside 16 of 1g.10gb, which both models offer: the mix by which the smaller GPU first is the wrong rule."""


def mixed(**gpus):
    """A fleet of nodes by model; `Fleet.pools` has the one with least memory first."""
    made = Fleet()
    for name, (model, count) in gpus.items():
        for gpu in range(count):
            made.add_gpu(GpuId(f"{name}{gpu}"), NodeName(name), model)
    return made


def door(made, asked=None):
    policy = policies.named("adaptive", asked or {}, Random(1))
    if asked:
        policy.tune(made)
    return Placer(made, policy)


def put(placer, profile):
    plan = placer.place(Demand((profile,)))
    assert isinstance(plan, Plan), str(plan)
    placer.commit(plan)
    return plan.grants[0].node


def order(made, mix, profile):
    return [pool.model.name for pool in Scarcity(made.pools, mix).order(made.pools, profile)]


@pytest.mark.parametrize(
    "mix, profile, first",
    [
        pytest.param({"1g.10gb": 16, **ONLY_A100}, "1g.10gb", "H100-80GB-SXM5", id="to the one that no other needs"),
        pytest.param({"1g.10gb": 16, "7g.80gb": 4}, "1g.10gb", "A100-40GB", id="whichever that is"),
        pytest.param({"1g.10gb": 1}, "1g.10gb", "A100-40GB", id="to the one with least memory"),
        pytest.param({"1g.10gb": 8, "2g.10gb": 1, "7g.80gb": 9}, "1g.10gb", "A100-40GB", id="by how much is needed"),
        pytest.param({"1g.10gb": 8, "2g.10gb": 9, "7g.80gb": 1}, "1g.10gb", "H100-80GB-SXM5", id="the other way round"),
    ],
)  # fmt: skip
def test_which_model_is_tried_first(mix, profile, first):
    made = mixed(a=(A100, 4), b=(H100, 4))
    assert order(made, mix, profile)[0] == first


def test_a_profile_of_one_model_alone_is_tried_as_the_pools_come():
    made = mixed(a=(A100, 2), b=(H100, 2), c=(A30, 2))
    assert order(made, {"1g.10gb": 1, "3g.20gb": 1}, "3g.20gb") == ["A30", "A100-40GB", "H100-80GB-SXM5"]
    assert order(made, {"1g.10gb": 1}, "9g.99gb") == ["A30", "A100-40GB", "H100-80GB-SXM5"]


@pytest.mark.parametrize("arrived", [0, 1, 3])
def test_what_has_arrived_of_the_others_is_not_expected_again(arrived):
    """The more 3g.20gb run on the A100s, the fewer are still to come: the H100s take as many 1g.10gb as before."""
    made = mixed(a=(A100, 4), b=(H100, 2))
    placer = door(made, {"1g.10gb": 1000.0, "3g.20gb": 200.0})
    for _ in range(arrived):
        assert put(placer, "3g.20gb") == "a"
    assert [put(placer, "1g.10gb") for _ in range(10)] == ["b"] * 9 + ["a"]


def test_demand_is_divided_so_that_all_fill_up_evenly():
    made = mixed(a=(A100, 2), b=(H100, 2))
    divided = Scarcity(made.pools, {"1g.10gb": 8.0, "2g.10gb": 3.0}).divided
    assert divided["2g.10gb"] == {0: 3.0}
    # An A100 holds four 1g.10gb, an H100 seven: 3/3 + x/4 = (8 - x)/7.
    assert divided["1g.10gb"][0] == pytest.approx((8 / 7 - 1) / (1 / 4 + 1 / 7), abs=0.1)
    assert sum(divided["1g.10gb"].values()) == pytest.approx(8)


def test_the_fleet_of_two_models_that_the_smaller_first_rule_filled_badly():
    """16 × 1g.10gb, 12 × 1g.5gb and 2 × 3g.20gb fit four A100 and four H100, in whatever order they arrive."""
    wanted = ["1g.10gb"] * 16 + ["1g.5gb"] * 12 + ["3g.20gb"] * 2
    asked = {profile: 50.0 * wanted.count(profile) for profile in set(wanted)}
    policy = door(mixed(a=(A100, 4), b=(H100, 4)), asked).policy
    for seed in range(20):
        arriving = Random(seed).sample(wanted, len(wanted))
        placer = Placer(mixed(a=(A100, 4), b=(H100, 4)), policy)
        for profile in arriving:
            put(placer, profile)


@pytest.mark.parametrize("first, left", [(31, 10), (60, 6)])
def test_a_run_of_one_profile_leaves_room_on_the_model_that_another_needs(first, left):
    """Before and after it is no coincidence that all were of one profile; DAS leaves as much, DRA nothing."""
    made = mixed(a=(A100, 8), b=(H100, 8))
    placer = door(made)
    for arrived in range(1, first + 1):
        placer.arrived(Demand(("1g.10gb",)))
        if arrived == FIRST_TUNING:
            placer.policy.tune(made)
        put(placer, "1g.10gb")
    for _ in range(left):
        put(placer, "3g.20gb")
    assert not isinstance(placer.place(Demand(("3g.20gb",))), Plan)


def test_what_is_known_of_a_fleet_follows_its_gpus():
    made = mixed(a=(A100, 1), b=(H100, 1))
    placer = door(made, {"1g.10gb": 800, **ONLY_A100})
    assert put(placer, "1g.10gb") == "b"
    made.close(GpuId("b0"))
    assert put(placer, "1g.10gb") == "a"
    made.open(GpuId("b0"))
    assert put(placer, "1g.10gb") == "b"
    made.remove_gpu(GpuId("b0"))
    made.add_gpu(GpuId("c0"), NodeName("c"), models.named("A100-80GB"))
    assert put(placer, "1g.10gb") == "c", "another model in the same place"


def test_all_candidates_come_in_the_same_order():
    made = mixed(a=(A100, 1), b=(H100, 1))
    policy = policies.named("adaptive", {"1g.10gb": 800, **ONLY_A100})
    policy.tune(made)
    found = [made.node_of[each.gpu].name for each in policy.candidates(made, "1g.10gb")]
    assert found == ["b", "a"]
    assert spots(Placer(made, policy).place(Demand(("1g.10gb",))))[0][0] == "b0"


def test_a_profile_without_a_proper_name_stops_nobody():
    """What a node reports of its GPUs may be anything."""
    odd = replace(A100, name="odd", profiles=(replace(A100.profiles[0], name="1g.5gb-xyz"),))
    assert put(door(mixed(a=(A100, 1), b=(odd, 1))), "3g.20gb") == "a"
