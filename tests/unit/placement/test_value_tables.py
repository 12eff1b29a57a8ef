"""What a kind of GPU is worth, told by hand for two profiles: halves and wholes of an A100."""

import pytest
from fleets import A100

from instaslice.geometry import States
from instaslice.placement import Share
from instaslice.placement.ranked import Ranking
from instaslice.placement.value_tables import (
    by_size,
    fragmentation,
    fullness,
    future,
    mix_of,
    most_packable,
    nvidia_order,
    plus,
)

KINDS = States.of(A100.only(["3g.20gb", "7g.40gb"])).kinds
MIX = (0.75, 0.25)
"""Three halves for each whole."""


def by_used(table):
    """Memory slices in use → what such a GPU is worth: both that hold one half are worth the same."""
    found = {}
    for used, worth in zip(KINDS.used, table, strict=True):
        assert found.setdefault(used, worth) == worth
    return found


@pytest.mark.parametrize(
    "asked, mix",
    [
        pytest.param({"3g.20gb": 3, "7g.40gb": 1}, (0.75, 0.25), id="by what was asked for"),
        pytest.param({"3g.20gb": 0.5, "1g.5gb": 9}, (1.0, 0.0), id="of the profiles that there are"),
        pytest.param({"1g.5gb": 9}, (0.5, 0.5), id="equal where none of them was"),
        pytest.param({}, (0.5, 0.5), id="equal where nothing was"),
    ],
)
def test_the_mix_of_a_geometry(asked, mix):
    assert mix_of(KINDS, asked) == mix


def test_of_a_gpu_without_profiles_there_is_no_mix():
    assert mix_of(States.of(A100.only([])).kinds, {"1g.5gb": 1}) == ()


def test_by_size_a_whole_counts_twice_a_half():
    assert by_size(KINDS, MIX) == pytest.approx((0.6, 0.4))
    assert by_size(KINDS, (0.0, 0.0)) == (0.0, 0.0)


def test_fragmentation_is_free_memory_that_part_of_the_demand_cannot_use():
    assert by_used(fragmentation(KINDS, MIX)) == {0: 0, 4: -4 * 0.25, 8: 0}


@pytest.mark.parametrize(
    "patience, empty, half",
    [
        pytest.param(0, 0.75 * (4 + 3) + 0.25 * 8, 0.75 * 4, id="the first that does not fit ends it"),
        pytest.param(0.5, 0.75 * (4 + 3 / 0.875) + 0.25 * 8, 3 / 0.875, id="half of those that do not fit end it"),
        pytest.param(1, 8, 4, id="it waits for one that fits"),
    ],
)
def test_the_future_is_what_will_still_be_placed(patience, empty, half):
    assert by_used(future(KINDS, MIX, patience)) == pytest.approx({0: empty, 4: half, 8: 0})


def test_what_nobody_asks_for_has_no_future():
    assert by_used(future(KINDS, (0.0, 1.0), 0.5)) == {0: 8, 4: 0, 8: 0}


def test_fullness_is_the_square_of_the_used_part():
    assert by_used(fullness(KINDS, 2.0)) == {0: 0, 4: 0.5, 8: 2}


def test_what_could_still_be_packed_is_free_of_demand():
    assert by_used(most_packable(KINDS, 0.5)) == {0: 4, 4: 2, 8: 0}


def test_tables_are_added_kind_by_kind():
    assert plus([1, 2], [10, 20], [0.5, 0]) == [11.5, 22]


@pytest.mark.parametrize(
    "profile, order",
    [
        ("1g.5gb", (6, 4, 5, 0, 1, 2, 3)),
        ("1g.10gb", (6, 4, 0, 2)),
        ("2g.10gb", (4, 0, 2)),
        ("3g.20gb", (4, 0)),
        ("7g.40gb", (0,)),
    ],
)
def test_the_starts_that_nvidia_s_driver_prefers(profile, order):
    assert nvidia_order(A100.profile(profile)) == order


def test_a_ranking_has_the_best_kinds_in_its_first_tier_and_those_alike_in_one():
    half = Ranking(KINDS, 0, lambda before, _: KINDS.used[before])
    used = [{KINDS.used[kind] for kind in range(len(KINDS)) if tier >> kind & 1} for tier in half.tiers]
    assert used == [{4}, {0}]
    assert [kind for kind in range(len(KINDS)) if not half.fits >> kind & 1] == [KINDS.used.index(8)]
    assert half.best[KINDS.used.index(8)] == -1
    assert KINDS.placements[half.best[0]].start == 0, "of starts as good as each other the lowest"


def test_scores_that_differ_by_rounding_alone_are_the_same():
    half = Ranking(KINDS, 0, lambda before, _: 1 / 3 + KINDS.used[before] * 1e-13)
    assert len(half.tiers) == 1


@pytest.mark.parametrize(
    "share, mib",
    [
        pytest.param(Share(100), 100, id="so many MiB"),
        pytest.param(Share(fraction=0.5), 501, id="a fraction is rounded up"),
        pytest.param(Share(600, 0.5), 600, id="both: whichever is more"),
        pytest.param(Share(), 1, id="nothing is not nothing"),
    ],
)
def test_what_a_share_takes_of_a_gpu(share, mib):
    assert share.of(1001) == mib


@pytest.mark.parametrize(
    "share, said", [(Share(100), "100 MiB of a shared GPU"), (Share(fraction=0.5), "0.5 of a shared GPU")]
)
def test_a_share_in_words(share, said):
    assert str(share) == said
