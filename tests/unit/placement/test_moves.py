"""Which running slices to move so that a refused one finds room."""

import pytest
from fleets import fleet, grant, picture, placer

from instaslice.placement import Demand, Share, moves


def anything(grant):
    return True


def find(made, profile, movable=anything, admits=None, **more):
    return moves.find(made, placer(made).policy, Demand((profile,), admits), movable, **more)


@pytest.mark.parametrize(
    "held, wanted, moved",
    [
        pytest.param(
            [("a0", "3g.20gb", 0), ("b0", "1g.5gb", 1)], "4g.20gb", ["1g.5gb"], id="the one with least memory"
        ),
        pytest.param(
            [("a0", "1g.5gb", 0), ("a0", "3g.20gb", 4), ("b0", "2g.10gb", 2), ("b0", "3g.20gb", 4)],
            "4g.20gb",
            ["1g.5gb"],
            id="one where one is enough",
        ),
        pytest.param(
            [("a0", "1g.5gb", 0), ("a0", "1g.5gb", 2), ("a0", "3g.20gb", 4)]
            + [("b0", "1g.5gb", start) for start in (0, 1, 2, 3)],
            "4g.20gb",
            ["1g.5gb", "1g.5gb"],
            id="two where one is not",
        ),
    ],
)
def test_the_smallest_set_is_found(held, wanted, moved):
    made = fleet("a0", "b0", held=held)
    assert [move.old.want for move in find(made, wanted).moves] == moved


@pytest.mark.parametrize(
    "held, wanted, options",
    [
        pytest.param(
            [("a0", "1g.5gb", 0), ("b0", "7g.40gb", 0)], "4g.20gb", {"movable": lambda g: False}, id="nothing may move"
        ),
        pytest.param([("a0", "7g.40gb", 0), ("b0", "7g.40gb", 0)], "1g.5gb", {}, id="there is nowhere to go"),
        pytest.param(
            [("a0", "1g.5gb", s) for s in (0, 1, 2)] + [("b0", "7g.40gb", 0)], "4g.20gb", {}, id="it takes three"
        ),
        pytest.param(
            [("a0", "1g.5gb", 0), ("b0", "4g.20gb", 0)],
            "4g.20gb",
            {"admits": lambda node: node == "b"},
            id="the pod may not go where a move would help",
        ),
    ],
)
def test_no_moves_are_found_where(held, wanted, options):
    made = fleet("a0", "b0", held=held)
    before = picture(made)
    assert find(made, wanted, **options) is None
    assert picture(made) == before


def test_finding_changes_nothing_and_rearranging_does_what_was_found():
    made = fleet("a0", "b0", held=[(gpu, "1g.5gb", start) for gpu in ("a0", "b0") for start in (0, 4)])
    before = picture(made)
    found = find(made, "3g.20gb")
    assert picture(made) == before
    door = placer(made)
    door.rearrange(found)
    held = [k.profile for placements in picture(made).values() for k in placements]
    assert sorted(held) == ["1g.5gb"] * 4 + ["3g.20gb"]


def test_only_slices_marked_as_movable_are_moved():
    made = fleet("a0", "b0", held=[("a0", "1g.5gb", 0), ("b0", "2g.10gb", 0)])
    found = find(made, "7g.40gb", movable=lambda grant: grant.gpu == "b0")
    assert [move.old.gpu for move in found.moves] == ["b0"]


def test_the_number_of_moves_is_limited():
    made = fleet("a0", "b0", held=[("a0", "1g.5gb", 0), ("a0", "1g.5gb", 2), ("b0", "4g.20gb", 0), ("b0", "1g.5gb", 4)])
    assert len(find(made, "7g.40gb", most=2).moves) == 2
    assert find(made, "7g.40gb", most=1) is None


def test_a_demand_of_several_slices_is_helped_too():
    made = fleet("a0", "a1", "b0", held=[("a0", "1g.5gb", 0), ("a1", "3g.20gb", 4)])
    demand = Demand(("7g.40gb", "4g.20gb"))
    assert str(placer(made).place(demand)).endswith("for all at once; 1 move would free it")
    found = moves.find(made, placer(made).policy, demand, anything)
    assert [move.old for move in found.moves] == [grant("a0", "1g.5gb", 0)]
    assert [each.want for each in found.plan.grants] == ["7g.40gb", "4g.20gb"]
    placer(made).rearrange(found)


@pytest.mark.parametrize("policy, start", [("first-fit", 4), ("best-fit", 6)])
def test_in_the_room_that_is_made_the_policy_chooses_the_start(policy, start):
    made = fleet("a0", "b0", held=[("a0", "2g.10gb", 0), ("a0", "2g.10gb", 2), ("a0", "3g.20gb", 4)])
    demand = Demand(("1g.10gb",), lambda node: node == "a")
    found = moves.find(made, placer(made, policy).policy, demand, lambda held: held.want == "3g.20gb")
    assert [move.old.want for move in found.moves] == ["3g.20gb"]
    assert [each.start for each in found.plan.grants] == [start]


def test_shares_are_not_moved():
    made = fleet("a0")
    assert moves.find(made, placer(made).policy, Demand((Share(10),)), anything) is None
