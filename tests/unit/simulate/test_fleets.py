"""Fleets and mixes from what a user types: what they become, and what is said about nonsense."""

import pytest
from small_runs import ONE_GPU, TWO_GPUS

from instaslice.errors import BadInput
from instaslice.simulate import fleets, mixes


def test_flags_name_nodes_in_the_order_they_are_added():
    plan = fleets.from_flags(["2x2xA100-40GB", "1x1xA30"])
    fleet = plan.build()
    assert (plan.gpus, plan.slices, len(fleet)) == (5, 36, 5)
    assert list(fleet.nodes) == sorted(fleet.nodes) == ["node-00000", "node-00001", "node-00002"]
    assert plan.main_model.name == "A100-40GB"


def test_a_file_may_name_nodes_and_allow_profiles(tmp_path):
    path = tmp_path / "fleet.json"
    path.write_text('{"nodes": [{"count": 2, "gpus": 1, "model": "A100-40GB", "name": "a", "profiles": ["1g.5gb"]}]}')
    plan = fleets.from_file(path)
    assert list(plan.build().nodes) == ["a-00000", "a-00001"]
    assert plan.sizes == {"1g.5gb": 1}


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("A100-40GB", "write NODESxGPUSxMODEL, like 13x8xA100-40GB"),
        ("0x8xA100-40GB", "both must be at least 1"),
        ("2x8xA1000", "no GPU model 'A1000'"),
        ("99999x99999xA30", "between 1 and 1000000"),
        ("1x1xRTX-PRO-5000-Blackwell-48GB", "are not published"),
    ],
)
def test_what_is_said_about_a_nonsense_fleet(flag, said):
    with pytest.raises(BadInput, match=said):
        fleets.from_flags([flag])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "fleet.json cannot be read"),
        ('{"nodes": []}', "fleet.json: a fleet of 0 GPUs"),
        ('{"nodes": [{"gpus": 8, "model": "A30", "profiles": []}]}', "node entry 1: profiles is empty; name those"),
        ('{"nodes": [{"gpus": 8, "model": "A30", "gpu": 1}]}', "unknown field `gpu`"),
        ('{"nodes": [{"gpus": -8, "model": "A30"}]}', r"node entry 1: 1 nodes of -8 GPUs"),
        ('{"nodes": [{"gpus": 8, "model": "B9"}]}', "node entry 1: no GPU model"),
        ('{"nodes": [{"gpus": 8, "model": "A30", "profiles": ["7g.40gb"]}]}', "node entry 1: profile 7g.40gb"),
    ],
)
def test_what_is_said_about_a_nonsense_file(tmp_path, text, said):
    path = tmp_path / "fleet.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=said):
        fleets.from_file(path)


def test_what_an_empty_node_can_hold_is_known_before_it_waits_for_ever():
    assert TWO_GPUS.can_ever_hold(("7g.40gb", "7g.40gb"))
    assert not ONE_GPU.can_ever_hold(("7g.40gb", "1g.5gb"))


def test_a_mix_counts_slices_of_pods_with_several():
    mix = mixes.read("1g.5gb=3, 2x2g.10gb/1g.5gb=1", ONE_GPU)
    assert mix.pods == (("1g.5gb",), ("2g.10gb", "2g.10gb", "1g.5gb"))
    assert mix.slices() == {"1g.5gb": 1.0, "2g.10gb": 0.5}


def test_named_mixes_are_over_plain_profiles():
    assert set(mixes.read("uniform", ONE_GPU).slices()) == {
        "1g.5gb",
        "1g.10gb",
        "2g.10gb",
        "3g.20gb",
        "4g.20gb",
        "7g.40gb",
    }
    assert set(mixes.read("bimodal", ONE_GPU).slices()) == {"1g.5gb", "7g.40gb"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("skewed", "'skewed' is no profile; write 1g.5gb=4,2x2g.10gb=1 or one of uniform"),
        ("1g.6gb=1", "profile 1g.6gb does not exist in this fleet"),
        ("1g.5gb=many", "share 'many' is not a number"),
        ("1g.5gb=-1", "below 0"),
        ("1g.5gb=nan", "not finite"),
        ("1g.5gb=0", "every share is 0"),
        ("0x1g.5gb=1", "a pod of 0 slices"),
        ("99x1g.5gb=1", "a pod of 99 slices"),
    ],
)
def test_what_is_said_about_a_nonsense_mix(text, said):
    with pytest.raises(BadInput, match=said):
        mixes.read(text, ONE_GPU)
