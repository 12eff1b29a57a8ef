"""Where each policy puts the next slice."""

import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from fleets import A100, fleet, judged, place, placer, spots

from instaslice.errors import BadInput
from instaslice.geometry import models
from instaslice.placement import Demand, Fleet, GpuId, NodeName, Regime, policies
from instaslice.placement.portfolio import UNINFORMED


@pytest.mark.parametrize(
    "policy, held, wanted, spot",
    [
        pytest.param("first-fit", [], "3g.20gb", ("a0", 0), id="first fit takes the lowest start"),
        pytest.param("first-fit", [("a0", "1g.5gb", 0)], "1g.5gb", ("a0", 1), id="first fit takes the first GPU"),
        pytest.param("first-fit", [("a0", "7g.40gb", 0)], "1g.5gb", ("a1", 0), id="first fit goes on where it is full"),
        pytest.param("das", [("a0", "1g.5gb", 0)], "1g.5gb", ("b0", 0), id="DAS goes to the node with most free"),
        pytest.param("das", [], "1g.5gb", ("a0", 0), id="DAS takes the first node of those alike"),
        pytest.param("spread", [("a0", "1g.5gb", 0)], "1g.5gb", ("a1", 0), id="spread takes the emptiest GPU"),
        pytest.param("best-fit", [("a1", "4g.20gb", 0)], "3g.20gb", ("a1", 4), id="best fit fills the fullest"),
        pytest.param("best-fit", [], "1g.5gb", ("a0", 6), id="best fit starts where NVIDIA's driver would"),
        pytest.param("fgd", [("b0", "4g.20gb", 0)], "3g.20gb", ("b0", 4), id="FGD closes a gap that only few can use"),
        pytest.param("dp", [("b0", "4g.20gb", 0)], "3g.20gb", ("b0", 4), id="foresight fills beside a 4g"),
        pytest.param("adaptive", [], "3g.20gb", ("a0", 4), id="ours: first 3g goes right so that a 4g still fits left"),
        pytest.param("adaptive", [("a0", "3g.20gb", 4)], "4g.20gb", ("a0", 0), id="ours: 4g beside a 3g"),
        pytest.param("adaptive", [], "1g.10gb", ("a0", 6), id="ours: a double 1g goes where no 2g may start"),
        pytest.param("adaptive", [("b0", "1g.5gb", 0)], "7g.40gb", ("a0", 0), id="ours: a whole GPU"),
    ],
)
def test_where_the_next_slice_goes(policy, held, wanted, spot):
    gpus = ("a0", "a1", "b0") if policy != "das" else ("a0", "b0")
    assert spots(place(fleet(*gpus, held=held), wanted, policy=policy)) == [spot]


def test_dra_takes_the_first_gpu_and_start_of_a_node_that_chance_names():
    made = fleet("a0", "a1", "b0", "c0")
    dra = policies.named("dra", random=Random(1))
    found = [dra.first(made, "1g.5gb") for _ in range(200)]
    assert Counter(made.names[spot.gpu] for spot in found).keys() == {"a0", "b0", "c0"}


@pytest.mark.parametrize("name", policies.names())
def test_the_first_spot_is_the_first_of_all_spots_and_every_gpu_with_room_comes_once(name):
    held = [("a0", "4g.20gb", 0), ("b0", "7g.40gb", 0), ("c0", "1g.5gb", 0), ("c1", "2g.10gb", 4)]
    made = fleet("a0", "a1", "b0", "c0", "c1", held=held)
    for profile in A100.profiles:
        first = policies.named(name).first(made, profile.name)
        every = list(policies.named(name).candidates(made, profile.name))
        assert first == (every[0] if every else None)
        choices = made.pools[0].states.choices[made.pools[0].states.profile(profile.name)]
        roomy = [gpu for gpu in range(5) if choices[made.state_of[gpu]]]
        assert sorted(spot.gpu for spot in every) == roomy


@pytest.mark.parametrize("name", policies.names())
def test_only_admitted_nodes_are_used(name):
    made = fleet("a0", "b0", "c0")
    answer = place(made, "2g.10gb", policy=name, admits=lambda node: node == "c")
    assert [gpu for gpu, _ in spots(answer)] == ["c0"]


@pytest.mark.parametrize("name", policies.names())
def test_of_several_models_only_those_with_the_profile_are_used(name):
    made = fleet("a0")
    made.add_gpu(GpuId("b0"), NodeName("b"), models.named("H100-80GB-SXM5"))
    made.add_gpu(GpuId("c0"), NodeName("c"), models.named("Thor-iGPU"))
    assert [gpu for gpu, _ in spots(place(made, "3g.40gb", policy=name))] == ["b0"]


def test_a_profile_of_several_models_goes_to_the_one_with_least_memory():
    made = Fleet()
    made.add_gpu(GpuId("big"), NodeName("a"), models.named("H100-80GB-SXM5"))
    made.add_gpu(GpuId("small"), NodeName("b"), A100)
    assert [gpu for gpu, _ in spots(place(made, "1g.10gb"))] == ["small"]


def test_ours_gets_stuck_in_few_arrival_orders_of_a_layout():
    sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
    import orders

    every = [order for layout in orders.layouts() for order in orders.orders(layout)]
    assert len(every) == 657
    assert sum(orders.is_stuck(order, policies.named("first-fit")) for order in every) == 336
    assert len(every) - orders.most_finished(every) == 30, "the least that is possible"
    assert sum(orders.is_stuck(order, policies.named(policies.DEFAULT)) for order in every) <= 0.067 * len(every)


@pytest.mark.parametrize("regime", Regime)
def test_ours_learns_what_is_asked_for_and_repeats_from_a_seed(regime):
    def recipe(asked):
        made, policy = fleet(*(f"a{i}" for i in range(8))), policies.named("adaptive", asked, Random(5))
        assert policy.recipe(made.pools[0].kinds) == UNINFORMED
        policy.tune(made, regime)
        return policy.recipe(made.pools[0].kinds)

    asked = {"3g.20gb": 500, "4g.20gb": 500, "1g.5gb": 1000}
    learnt = recipe(asked)
    assert learnt != UNINFORMED
    assert judged(learnt, asked, regime, runs=40) > judged(UNINFORMED, asked, regime, runs=40) - 0.005
    assert recipe(asked) == learnt
    assert recipe({"1g.10gb": 600, "2g.10gb": 600, "4g.20gb": 300}) != learnt, "and not always the same"


def test_a_few_arrivals_are_no_reason_to_choose_another_table():
    made, policy = (
        fleet(*(f"a{i}" for i in range(8))),
        policies.named("adaptive", {"7g.40gb": 1, "1g.5gb": 2}, Random(5)),
    )
    policy.tune(made, Regime.LOSS)
    assert policy.recipe(made.pools[0].kinds) == UNINFORMED


def test_learning_nothing_changes_nothing():
    made, policy = fleet("a0", "a1"), policies.named("adaptive")
    policy.tune(made)
    assert policy.recipe(made.pools[0].kinds) == UNINFORMED
    assert policy.first(made, "3g.20gb") is not None


def _arriving(door, profile, count):
    for _ in range(count):
        door.arrived(Demand((profile,)))
        door.commit(door.place(Demand((profile,))))


@pytest.mark.parametrize("profile, full", [("1g.5gb", 7), ("1g.10gb", 4), ("2g.10gb", 3), ("3g.20gb", 2)])
def test_where_one_profile_alone_arrives_gpus_are_filled_one_after_the_other(profile, full):
    gpus = [f"{node}{i}" for node in "abcdefgh" for i in range(8)]
    door = placer(fleet(*gpus))
    _arriving(door, profile, 50)
    held = sorted((len(door.fleet.held(gpu)) for gpu in gpus), reverse=True)
    whole, rest = divmod(50, full)
    assert held[: whole + 1] == [full] * whole + [rest]


def test_when_another_profile_comes_room_is_kept_for_all_again():
    door = placer(fleet(*(f"a{i}" for i in range(9)), "b0"))
    _arriving(door, "1g.5gb", 40)
    door.arrived(Demand(("3g.20gb",)))
    fresh = placer(door.fleet)
    assert spots(door.place(Demand(("1g.5gb",)))) == spots(fresh.place(Demand(("1g.5gb",))))
    assert spots(door.place(Demand(("2g.10gb",)))) == spots(fresh.place(Demand(("2g.10gb",))))


def test_an_unknown_policy_is_answered_with_all():
    with pytest.raises(BadInput, match="no placement policy 'tetris'; there are first-fit, das, dra"):
        policies.named("tetris")


def test_a_closed_gpu_is_offered_by_nobody():
    for name in policies.names():
        made = fleet("a0", "b0")
        made.close("a0")
        assert [gpu for gpu, _ in spots(place(made, "1g.5gb", policy=name))] == ["b0"]
        made.open("a0")
        made.close("b0")
        assert [gpu for gpu, _ in spots(place(made, "1g.5gb", policy=name))] == ["a0"]


def test_the_placer_tells_the_policy_what_was_asked_for():
    door = placer(fleet("a0"))
    door.arrived(Demand(("1g.5gb", "1g.5gb", "3g.20gb")))
    door.policy.tune(door.fleet, Regime.FILL)
    assert door.policy.first(door.fleet, "1g.5gb") is not None


def test_a_pod_that_is_placed_while_the_policy_thinks_does_not_cost_what_it_learns():
    made = fleet(*(f"a{i}" for i in range(8)))
    quiet, busy = policies.named("adaptive"), policies.named("adaptive")
    for policy in (quiet, busy):
        for _ in range(200):
            for profile in ("3g.20gb", "4g.20gb", "1g.5gb", "1g.5gb"):
                policy.arrived(profile)
    quiet.tune(made, Regime.FILL)
    adopt = busy.tuning(made, Regime.FILL).run()
    busy.first(made, "4g.20gb")
    busy.arrived("1g.5gb")
    adopt()
    kinds = made.pools[0].kinds
    assert busy.recipe(kinds) == quiet.recipe(kinds) != UNINFORMED
    assert busy.table(kinds) == quiet.table(kinds)
    assert [busy.placement(made.pools[0].states, s, "3g.20gb") for s in range(50)] == [
        quiet.placement(made.pools[0].states, s, "3g.20gb") for s in range(50)
    ]


def test_what_is_learned_counts_from_the_next_decision_on():
    held = [("a0", "4g.20gb", 0), ("a1", "1g.5gb", 0), ("a2", "2g.10gb", 4), ("a3", "3g.20gb", 4)]
    made = fleet(*(f"a{i}" for i in range(8)), held=held)
    decided_before, fresh, untaught = (policies.named("adaptive") for _ in range(3))

    def decisions(policy):
        return [list(policy.candidates(made, profile.name)) for profile in A100.profiles]

    assert decisions(decided_before) == decisions(untaught)
    for policy in (decided_before, fresh):
        for profile, count in {"1g.10gb": 6, "2g.10gb": 6, "4g.20gb": 3}.items():
            for _ in range(count):
                policy.arrived(profile)
        policy.tune(made, Regime.FILL)
    assert decisions(decided_before) == decisions(fresh) != decisions(untaught)


def test_thinking_reads_nothing_that_changes_meanwhile():
    made, policy = fleet("a0"), policies.named("adaptive")
    policy.arrived("3g.20gb")
    tuning = policy.tuning(made)
    before = dict(tuning.asked), tuning.planned
    policy.arrived("1g.5gb")
    made.add_gpu("a1", "a", A100)
    made.add_gpu("h", "a", models.named("H200"))
    assert (dict(tuning.asked), tuning.planned) == before


def test_what_arrived_long_ago_weighs_less():
    made, policy = fleet("a0"), policies.named("adaptive", {"3g.20gb": 1000})

    def mix_after(count):
        for _ in range(count):
            policy.arrived("1g.5gb")
        return dict(policy.tuning(made).asked)

    assert mix_after(3000) == {"3g.20gb": 1000, "1g.5gb": 3000}
    assert mix_after(1) == {"3g.20gb": 500, "1g.5gb": 1500.5}
    assert mix_after(1999) == {"3g.20gb": 500, "1g.5gb": 3499.5}
    assert mix_after(1) == {"3g.20gb": 250, "1g.5gb": 1750.25}


def test_by_chance_the_first_few_slices_may_be_of_one_profile():
    made, policy = fleet("a0"), policies.named("adaptive")
    kinds = made.pools[0].kinds
    informed = policies.named("adaptive").table(kinds)
    for _ in range(31):
        policy.arrived("1g.5gb")
    assert policy.table(kinds) == informed
    policy.arrived("1g.5gb")
    assert policy.table(kinds) != informed


@pytest.mark.parametrize(
    "concurrent, parts", [pytest.param(35, [10, 25], id="by profiles"), pytest.param(None, [None, None], id="unknown")]
)
def test_a_kind_of_gpu_is_expected_to_take_what_it_offers_of_the_demand(concurrent, parts):
    """Of nine profiles the A30 offers three; each is imagined to arrive as often, and 1g.5gb did once more."""
    made = fleet("a0", "a1")
    for gpu in ("b0", "b1"):
        made.add_gpu(GpuId(gpu), NodeName("b"), models.named("A30"))
    policy = policies.named("adaptive", {"1g.5gb": 1})
    tuning = policy.tuning(made, Regime.LOSS, concurrent)
    planned = sorted(tuning.planned, key=lambda each: each.model.memory_slices)
    assert [(each.model.memory_slices, each.gpus) for each in planned] == [(4, 2), (8, 2)]
    assert [each.forecast.concurrent and round(each.forecast.concurrent, 6) for each in planned] == parts
    assert {each.forecast.regime for each in planned} == {Regime.LOSS}


def test_without_demand_there_is_nothing_to_plan():
    assert policies.named("adaptive").tuning(fleet("a0")).planned == ()


def test_while_every_gpu_is_closed_no_demand_is_expected_on_any():
    made = fleet("a0")
    made.close("a0")
    assert policies.named("adaptive", {"1g.5gb": 1}).tuning(made, concurrent=30).planned == ()


def test_what_is_recalled_counts_as_if_it_had_arrived():
    made, policy, recalled = fleet("a0", "a1"), policies.named("adaptive"), policies.named("adaptive")
    for _ in range(40):
        policy.arrived("1g.5gb")
    recalled.recall(policy.asked)
    assert recalled.asked == policy.asked == {"1g.5gb": 40}
    for profile in A100.profiles:
        assert list(recalled.candidates(made, profile.name)) == list(policy.candidates(made, profile.name))
    recalled.recall({"1g.5gb": 1e12, "2g.10gb": 1e12})
    assert 1000 < sum(recalled.asked.values()) <= 4000, "what comes next still counts"
    recalled.recall({"1g.5gb": 20, **{f"{n}g.1gb": 1 for n in range(3990)}})
    assert recalled.asked == {"1g.5gb": 10}
    recalled.arrived("2g.10gb")
    assert sum(recalled.asked.values()) == 11, "what was forgotten does not count"


@pytest.mark.parametrize("name", policies.names())
def test_every_policy_can_be_told_what_arrived_before(name):
    policy = policies.named(name)
    policy.recall({"1g.5gb": 3})
    assert policy.asked == ({"1g.5gb": 3} if name == "adaptive" else {})
