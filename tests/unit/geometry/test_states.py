"""Every state of a GPU: the counts that are published, and what must hold for any model."""

from dataclasses import replace

import pytest

from instaslice.geometry import States, TooManyLayouts, models
from instaslice.geometry.profiles import NO_ENGINES
from instaslice.geometry.states import MOST_ENTRIES

ALL = [model for model in models.known() if model.provenance != "unknown"]


def plain(model):
    return model.only(p.name for p in model.profiles if "+" not in p.name and "-" not in p.name)


def without_double(model):
    base = plain(model)
    return base.only(p.name for p in base.profiles if (p.compute, p.size) != (1, 2))


A100, A30 = models.named("A100-40GB"), models.named("A30")
RTX = models.named("RTX-PRO-6000-Blackwell-96GB")


@pytest.mark.parametrize(
    "model, placements, states, masks, residuals, maximal, multisets",
    [
        pytest.param(plain(A100), 18, 723, 192, 128, 78, 78, id="seven slices"),
        pytest.param(A100, 25, 2319, 192, 254, 239, 128, id="with +me, one a GPU"),
        pytest.param(without_double(A100), 14, 298, 144, 128, 19, 38, id="without double-memory 1g: NVIDIA's 19"),
        pytest.param(plain(A30), 7, 26, 16, 16, 5, 10, id="A30"),
        pytest.param(A30, 13, 76, 16, 30, 17, 20, id="A30 with +me, one in total"),
        pytest.param(plain(RTX), 7, 26, 16, 16, 5, 10, id="RTX PRO 6000 base profiles: twelve slices"),
    ],
)
def test_counts_are_those_that_are_published(model, placements, states, masks, residuals, maximal, multisets):
    found = States.of(model)
    every = range(len(found))
    assert len(found.placements) == placements
    assert len(found) == states
    assert len({found.mask(s) for s in every}) == masks
    assert len({tuple(to >= 0 for to in found.after[s]) for s in every}) == residuals
    assert len(found.maximal()) == maximal
    assert len({tuple(sorted(k.profile for k in found.held(s))) for s in every}) == multisets


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.name)
def test_the_most_that_a_gpu_holds_of_a_profile_is_what_some_layout_holds(model):
    found = States.of(model)
    for p, profile in enumerate(found.profiles):
        counts = [[k.profile for k in found.held(s)].count(profile.name) for s in range(len(found))]
        most = found.kinds.most(p)
        assert most[0] == max(counts) == profile.limit
        assert all(most[found.kinds.of[s]] == 0 for s in found.maximal())


@pytest.mark.parametrize("model", [m for m in ALL if m.memory_slices == 8], ids=lambda model: model.name)
def test_all_models_of_eight_memory_slices_have_the_same_states(model):
    assert len(States.of(plain(model))) == 723
    assert len(States.of(model)) == 2319
    assert len(States.of(model).kinds) == 380


def test_the_published_count_of_the_rtx_pro_6000_is_by_caps_alone():
    """Media engines forbid nearly half of them; NVIDIA's guide says so, and the published count leaves it aside."""
    bare = tuple(replace(profile, engines=NO_ENGINES) for profile in RTX.profiles)
    by_caps = States.of(replace(RTX, profiles=bare))
    assert (len(by_caps.placements), len(by_caps), len({by_caps.mask(s) for s in range(len(by_caps))})) == (
        30,
        1249,
        16,
    )
    assert len(States.of(RTX)) == 717


def test_media_engines_make_all_exclude_what_nvidia_says_it_excludes():
    states = States.of(RTX)
    beside = {k.profile for s in range(len(states)) for k in states.held(s) if holds(states, s, "1g.24gb+me.all")}
    assert beside == {"1g.24gb+me.all", "1g.24gb-me", "2g.48gb-me"}


def holds(states, state, profile):
    return any(k.profile == profile for k in states.held(state))


@pytest.mark.parametrize(
    "name, gb",
    [
        pytest.param("A30", 24, id="as much as it has"),
        pytest.param("A100-40GB", 40, id="as much as it has, seven slices"),
        pytest.param("RTX-PRO-6000-Blackwell-96GB", 96, id="as much as it has, twelve slices"),
        pytest.param("H100-NVL-94GB", 96, id="more than it has: H100 NVL"),
        pytest.param("H200-141GB", 143, id="more than it has: H200"),
        pytest.param("B200-180GB", 183, id="more than it has: B200"),
        pytest.param("GB200-186GB", 188, id="more than it has: GB200"),
        pytest.param("B300-269GB", 271, id="more than it has: B300"),
        pytest.param("GB300-278GB", 280, id="more than it has: GB300"),
    ],
)
def test_the_largest_sum_of_labels(name, gb):
    assert States.of(models.named(name)).most_label_gb() == gb


@pytest.mark.parametrize("model", [A30, A100, models.named("H200-141GB"), RTX], ids=lambda model: model.name)
class TestEveryState:
    def test_holds_no_overlap_and_nothing_outside_a_legal_start(self, model):
        states = States.of(model)
        for s in range(len(states)):
            held = states.held(s)
            assert sum(k.size for k in held) == states.mask(s).bit_count() == states.used[s]
            assert all(k.start in model.profile(k.profile).starts for k in held)
            assert sum(model.profile(k.profile).compute for k in held) <= model.compute_slices

    def test_leads_back_by_removing_what_was_placed(self, model):
        states = States.of(model)
        for s, row in enumerate(states.after):
            for k, to in enumerate(row):
                if to >= 0:
                    assert states.before[to][k] == s
                    assert states.state([*states.layouts[s], k]) == to

    def test_can_lose_any_slice_that_it_holds(self, model):
        states = States.of(model)
        for s, layout in enumerate(states.layouts):
            assert {k for k, to in enumerate(states.before[s]) if to >= 0} == set(layout)

    def test_is_of_one_kind_with_those_that_have_the_same_future(self, model):
        states = States.of(model)
        kinds = states.kinds
        for s, row in enumerate(states.after):
            kind = kinds.of[s]
            assert kinds.used[kind] == states.used[s]
            assert [kinds.of[to] if to >= 0 else to for to in row] == kinds.after[kind]

    def test_compute_never_binds_before_memory_on_seven_slices(self, model):
        if model.memory_slices == 8:
            states = States.of(plain(model))
            assert len(states) == len(States(replace(plain(model), compute_slices=99)))


def test_a_model_whose_placements_are_unknown_has_only_the_empty_state():
    assert len(States.of(models.named("Thor-iGPU"))) == 1


def test_models_of_one_geometry_share_their_states():
    assert States.of(models.named("H100-80GB-SXM5")) is States.of(models.named("H100-80GB-SXM5"))
    assert States.of(models.named("H200-141GB")) is not States.of(A100), "profile names differ"


def test_a_geometry_that_nobody_could_list_is_refused_at_once():
    anywhere = replace(A100.profiles[0], starts=tuple(range(64)), limit=64, compute=0)
    with pytest.raises(TooManyLayouts, match=r"in 2e\+19 ways on one GPU"):
        States.of(replace(A100, memory_slices=64, profiles=(anywhere,)))


def test_few_layouts_of_very_many_placements_are_refused_at_once():
    """Each layout has an entry for each placement, and 20 KB of a status can list four thousand."""
    one = replace(A100.profiles[0], name="1g.1gb", starts=(0, 1, 2), limit=3, compute=0)
    large = [replace(one, name=f"{n}g.65gb", size=65, starts=tuple(range(3, 64)), limit=1) for n in range(1, 63)]
    with pytest.raises(TooManyLayouts, match=r"its 3785 placements can lie in 3e\+04 ways"):
        States.of(replace(A100, memory_slices=128, profiles=(one, *large)))


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.name)
def test_every_known_model_is_far_from_that(model):
    states = States.of(model)
    assert len(states) * len(states.placements) * 10 < MOST_ENTRIES


@pytest.mark.parametrize(
    "model, held, largest, unusable",
    [
        pytest.param(A100, [], "7g.40gb", 0, id="an empty GPU"),
        pytest.param(A100, [("4g.20gb", 0)], "3g.20gb", 0, id="no second 4g: it only starts at 0"),
        pytest.param(A100, [("1g.5gb", 6)], "4g.20gb", 1, id="a 1g at 6 makes the last memory slice useless"),
        pytest.param(A100, [("1g.5gb", at) for at in range(7)], None, 1, id="seven 1g"),
        pytest.param(A100, [("7g.40gb", 0)], None, 0, id="full"),
        pytest.param(RTX, [], "4g.96gb", 0, id="the plain one of several that are as large"),
    ],
)
def test_what_still_fits_and_what_nothing_can_use(model, held, largest, unusable):
    states = States.of(model)
    state = states.state(states.placement(*each) for each in held)
    fits = states.largest_fit(state)
    assert (fits and fits.name, states.unusable(state)) == (largest, unusable)
