"""Profile names: what is read, what is printed, and the number before `gb`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instaslice.geometry import ProfileName, UnknownProfile, models
from instaslice.geometry.names import label_gb

GIB = 1 << 30


@pytest.mark.parametrize(
    "text, name",
    [
        pytest.param("1g.5gb", ProfileName(1, 5), id="plain"),
        pytest.param("1g.5gb+me", ProfileName(1, 5, "+me"), id="as NVIDIA writes it"),
        pytest.param("1g.5gb.me", ProfileName(1, 5, "+me"), id="as a resource name writes it"),
        pytest.param("nvidia.com/mig-1g.5gb.me", ProfileName(1, 5, "+me"), id="a whole resource name"),
        pytest.param("mig-7g.141gb", ProfileName(7, 141), id="without the domain"),
        pytest.param("1g.24gb-me", ProfileName(1, 24, "-me"), id="without media engines"),
        pytest.param("nvidia.com/mig-1g.24gb.me.all", ProfileName(1, 24, "+me.all"), id="all media engines"),
        pytest.param("2g.48gb+gfx", ProfileName(2, 48, "+gfx"), id="with graphics"),
    ],
)
def test_reading(text, name):
    assert ProfileName.parse(text) == name


@pytest.mark.parametrize("text", ["", "1g", "0g.5gb", "1g.5gb+xx", "1c.3g.20gb", "1g.5gb me", "gpu", "١g.5gb"])
def test_what_is_no_profile_name_is_refused_with_examples(text):
    with pytest.raises(UnknownProfile, match=r"3g\.20gb"):
        ProfileName.parse(text)


@given(st.integers(1, 99), st.integers(0, 999), st.sampled_from(["", "+me", "+me.all", "+gfx", "-me"]))
def test_a_printed_name_reads_back_also_as_a_resource(compute, gb, extra):
    name = ProfileName(compute, gb, extra)
    assert ProfileName.parse(str(name)) == name
    assert ProfileName.parse(f"gpu.das.com/{name.resource}") == name
    assert "+" not in name.resource


@pytest.mark.parametrize(
    "slice_mib, gpu_bytes, gb",
    [
        pytest.param(71168, 143771 << 20, 71, id="H200's half is 70.5: a half is rounded up"),
        pytest.param(20992, 183359 << 20, 23, id="B200's eighth is 22.5"),
        pytest.param(4864, 40 * GIB, 5, id="A100-40GB: less than an eighth is an eighth"),
        pytest.param(24192, 97887 << 20, 24, id="RTX PRO 6000: a quarter, though it has twelve slices"),
        pytest.param(143360, 143771 << 20, 141, id="the whole GPU"),
    ],
)
def test_labels_are_rounded_as_nvidia_rounds_them(slice_mib, gpu_bytes, gb):
    assert label_gb(slice_mib, gpu_bytes) == gb


@pytest.mark.parametrize("model", models.known(), ids=lambda model: model.name)
def test_every_profile_of_the_table_is_named_as_it_parses(model):
    for profile in model.profiles:
        name = ProfileName.parse(profile.name)
        assert (str(name), name.compute, name.gb) == (profile.name, profile.compute, profile.gb)
