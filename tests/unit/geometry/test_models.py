"""The models in the package, and models made from what a driver reports."""

from dataclasses import replace

import pytest

from instaslice.geometry import Engines, States, UnknownModel, UnknownProfile, models
from instaslice.geometry.discovered import ProfileReport
from instaslice.geometry.discovered import model as discovered

A100 = models.named("A100-40GB")


@pytest.mark.parametrize(
    "name, found",
    [
        pytest.param("A100-40GB", "A100-40GB", id="by name"),
        pytest.param("a100-40gb", "A100-40GB", id="in lower case"),
        pytest.param("NVIDIA A100-SXM4-40GB", "A100-40GB", id="by product name"),
        pytest.param("0x233510DE", "H200-141GB", id="by PCI id"),
        pytest.param("GH200-96GB", "H100-96GB", id="by the name of its twin"),
    ],
)
def test_a_model_is_found(name, found):
    assert models.named(name).name == found


def test_an_unknown_model_is_answered_with_the_nearest_names():
    with pytest.raises(UnknownModel, match="no GPU model 'A100'; did you mean A100-40GB, A100-80GB") as caught:
        models.named("A100")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "written, meant",
    [
        pytest.param("H300", "H200-141GB, H100-80GB-SXM5", id="H300"),
        pytest.param("h150-80gb", "H100-80GB-SXM5, H100-80GB-PCIe", id="a size is no family"),
        pytest.param("A100-60GB", "A100-40GB, A100-80GB?", id="another size of the same family"),
        pytest.param("A40", "A30, A100-40GB?", id="a short name"),
    ],
)
def test_models_of_a_similar_family_are_suggested_before_names_with_similar_letters(written, meant):
    with pytest.raises(UnknownModel) as caught:
        models.placeable(written)
    assert f"did you mean {meant}" in str(caught.value)


def test_a_name_like_no_other_is_answered_with_all_names():
    with pytest.raises(UnknownModel) as caught:
        models.named("zzzzzz")
    assert all(name in str(caught.value) for name in models.names())


def test_there_are_eighteen_models_with_sources():
    assert len(models.names()) == len(set(models.names())) == 18
    assert all(model.sources and model.profiles and model.provenance != "discovered" for model in models.known())


def test_inferred_and_unknown_placements_say_so():
    told = {model.name: model.provenance for model in models.known()}
    assert told["GB300-278GB"] == "inferred"
    assert told["Thor-iGPU"] == "unknown"
    assert told["H200-141GB"] == told["RTX-PRO-6000-Blackwell-96GB"] == "measured"


@pytest.mark.parametrize("model", models.known(), ids=lambda model: model.name)
def test_placements_lie_on_the_gpu_and_reach_the_stated_maximum(model):
    for profile in model.profiles:
        assert bool(profile.starts) == (model.provenance != "unknown")
        assert all(0 <= start <= model.memory_slices - profile.size for start in profile.starts)
        if profile.starts and not any(profile.engines.media[k] for k in range(4)):
            alone = States.of(model.only([profile.name]))
            assert max(map(len, alone.layouts)) == profile.limit


def test_a_profile_the_model_has_not_is_answered_with_those_it_has():
    with pytest.raises(UnknownProfile, match=r"3g\.40gb does not exist on A100-40GB \(it has 1g\.5gb, 1g\.5gb\+me"):
        A100.profile("3g.40gb")


def test_a_start_that_is_not_legal_is_answered_with_those_that_are():
    with pytest.raises(UnknownProfile, match=r"3g\.20gb cannot start at 2 on A100-40GB \(it starts at 0, 4\)"):
        A100.placement("3g.20gb", 2)


def reports(model):
    """What a driver would report of a model."""
    return [
        ProfileReport(
            nvml_enum=p.nvml_enum,
            gi_id=p.gi_id,
            compute=p.compute,
            memory_mib=p.memory_mib,
            limit=p.limit,
            sms=p.sms or 0,
            placements=tuple((start, p.size) for start in p.starts),
            engines=p.engines,
        )
        for p in model.profiles
    ]


@pytest.mark.parametrize("name", ["A30", "A100-40GB", "H200-141GB", "B200-180GB", "RTX-PRO-6000-Blackwell-96GB"])
def test_a_discovered_model_has_the_names_and_states_of_the_known_one(name):
    known = models.named(name)
    found = discovered("some product", known.memory_gb << 30, reports(known))
    assert {p.name for p in found.profiles} == {p.name for p in known.profiles}
    assert (found.memory_slices, found.compute_slices) == (known.memory_slices, known.compute_slices)
    assert len(States.of(found)) == len(States.of(known))


def test_the_drivers_own_name_wins():
    report = replace(reports(A100)[0], name="MIG 1g.6gb+gfx")
    assert [p.name for p in discovered("x", 40 << 30, [report]).profiles] == ["1g.6gb+gfx"]


def test_a_geometry_nobody_has_seen_works():
    odd = [
        ProfileReport(0, 1, 1, 1000, 5, 8, ((0, 2), (2, 2), (4, 2), (6, 2), (8, 2)), Engines(jpeg=1)),
        ProfileReport(1, 2, 5, 5000, 1, 40, ((0, 11),), Engines(jpeg=5)),
        ProfileReport(2, 3, 2, 2000, 1, 16, ()),
    ]
    model = discovered("Elevenslicer", 5 << 30, odd)
    assert model.memory_slices == 11
    assert len(model.profiles) == 2, "a profile without placements is left out"
    assert len(States.of(model)) == 2**5 + 1


@pytest.mark.parametrize(
    "written, name",
    [
        pytest.param("H200", "H200-141GB", id="a beginning that only one model has"),
        pytest.param("b200", "B200-180GB", id="in small letters"),
        pytest.param("A30", "A30", id="a whole name"),
    ],
)
def test_a_model_by_the_beginning_of_its_name(written, name):
    assert models.named(written).name == name


def test_short_names_are_understood():
    short = models.short_names()
    assert {name: models.named(name) for name in short} == short
    assert short["H200"].name == "H200-141GB"
    assert not {"A100", "H100", "A30", "H200-141GB"} & short.keys()


@pytest.mark.parametrize("written", ["A100", "H100-80GB", "", "H"])
def test_a_beginning_that_several_models_have_is_no_name(written):
    with pytest.raises(UnknownModel):
        models.named(written)


def test_only_models_with_published_placements_are_offered_where_no_driver_can_be_asked():
    with pytest.raises(
        UnknownModel, match=r"the placements of Thor-iGPU are not published; .* of A30, A100-40GB"
    ) as known:
        models.placeable("thor-igpu")
    with pytest.raises(UnknownModel, match="no GPU model 'A100'; did you mean A100-40GB") as unknown:
        models.placeable("A100")
    assert not any("Thor" in str(each.value).partition("Known are")[2] for each in (known, unknown))
    assert models.placeable("H200").name == "H200-141GB"
    assert models.named("Thor-iGPU").name == "Thor-iGPU", "a driver tells where its slices go"
