"""What Kueue charges by the configuration that is generated: computed here as Kueue does it, from the resources of a
template or of a stored pod."""

import itertools

import pytest

from instaslice.api import names
from instaslice.errors import BadInput
from instaslice.geometry import ProfileName, models
from instaslice.kueue.configuration import charged_gb, charging, configuration, merged


def charge(requests, rules=None):
    """By resource, as Kueue 0.18 does it: what is excluded is left out, what has a rule is replaced and added to the
    sum, and what has none is written over it."""
    rules = rules or charging()
    by_input = {each["input"]: each for each in rules["transformations"]}
    charged = {}
    for name, count in requests.items():
        if name.startswith(tuple(rules["excludeResourcePrefixes"])):
            continue
        rule = by_input.get(name)
        for output, factor in (rule or {}).get("outputs", {}).items():
            charged[output] = charged.get(output, 0) + count * int(factor)
        if rule is None or rule["strategy"] == "Retain":
            charged[name] = count
    return charged


@pytest.mark.parametrize(
    "requests, gb",
    [
        pytest.param({"nvidia.com/mig-1g.5gb": 1}, 5, id="template of a Job"),
        pytest.param({"gpu.das.com/mig-1g.5gb": 1, "gpu.das.com/mem": 5}, 5, id="the same as a stored pod"),
        pytest.param({"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-3g.20gb": 1}, 30, id="template with two profiles"),
        pytest.param(
            {"gpu.das.com/mig-1g.5gb": 2, "gpu.das.com/mig-3g.20gb": 1, "gpu.das.com/mem": 30}, 30, id="its stored pod"
        ),
        pytest.param({"gpu.das.com/mem": 8}, 8, id="template by memory alone"),
        pytest.param({"gpu.das.com/mig-any": 1, "gpu.das.com/mem": 8}, 8, id="its stored pod, any profile"),
        pytest.param({"nvidia.com/mig-1g.5gb": 1, "gpu.das.com/mem": 8}, 13, id="one container each"),
        pytest.param({"nvidia.com/mig-1g.5gb.me": 1}, 5, id="with media engines"),
        pytest.param({"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-1g.5gb.me": 1}, 10, id="with and without"),
    ],
)
def test_a_slice_is_charged_once_whoever_asks(requests, gb):
    for order in itertools.permutations(requests.items()):  # Kueue has them in none of its own
        assert charge(dict(order)) == {"gpu.das.com/mem": gb}


def test_what_is_not_ours_is_charged_as_it_is():
    assert charge({"cpu": 2, "nvidia.com/gpu": 1}) == {"cpu": 2, "nvidia.com/gpu": 1}


@pytest.mark.parametrize("model", models.known(), ids=lambda model: model.name)
def test_every_profile_of_every_model_is_charged_what_its_pod_is(model):
    for profile in model.profiles:
        name = ProfileName.parse(profile.name)
        template = {names.nvidia_resource_name(name): 1}
        pod = {names.resource_name(name): 1, names.MEMORY: name.gb}
        assert charge(template) == charge(pod), profile.name


def test_no_name_is_replaced_twice():
    """Kueue does not start with such a configuration."""
    inputs = [each["input"] for each in charging()["transformations"]]
    assert len(inputs) == len(set(inputs))


def test_models_can_be_chosen():
    assert charged_gb([models.named("A30")]) == {
        "nvidia.com/mig-1g.6gb": 6,
        "nvidia.com/mig-1g.6gb.me": 6,
        "nvidia.com/mig-2g.12gb": 12,
        "nvidia.com/mig-2g.12gb.me": 12,
        "nvidia.com/mig-4g.24gb": 24,
    }


OTHERS = {"input": "example.com/fpga", "strategy": "Retain", "outputs": {"example.com/credits": 3}}


def test_another_configuration_keeps_what_it_has():
    before = {
        "kind": "Configuration",
        "manageJobsWithoutQueueName": True,
        "resources": {"excludeResourcePrefixes": ["example.com/"], "transformations": [OTHERS]},
    }
    after = merged(before)
    assert after["manageJobsWithoutQueueName"] is True
    assert after["resources"]["excludeResourcePrefixes"] == ["example.com/", names.RESOURCE]
    assert after["resources"]["transformations"] == [OTHERS, *charging()["transformations"]]
    assert merged(after) == after


def test_an_empty_one_becomes_ours():
    assert merged({"kind": "Configuration"})["resources"] == configuration()["resources"]


@pytest.mark.parametrize(
    "resources, told",
    [
        pytest.param(
            {"transformations": [{"input": "nvidia.com/mig-1g.5gb", "outputs": {"example.com/gpu": 1}}]},
            "has nvidia.com/mig-1g.5gb already, with another outcome (Retain example.com/gpu: 1); remove it",
            id="another outcome for a profile",
        ),
        pytest.param({"quotaCheckStrategy": "IgnoreUndeclared"}, "remove it", id="a strategy that excludes prefixes"),
        pytest.param([], None, id="nothing there"),
        pytest.param("none", "resources is 'none'; it must be a map", id="no map"),
        pytest.param(
            {"transformations": {"a": "b"}}, "must be a list of maps with input", id="a map of transformations"
        ),
        pytest.param({"transformations": ["a"]}, "must be a list of maps with input", id="names of transformations"),
        pytest.param(
            {"transformations": [{"input": "nvidia.com/mig-1g.5gb", "outputs": ["a"]}]},
            "the outputs of nvidia.com/mig-1g.5gb are ['a']; they must be a map",
            id="a list of outputs",
        ),
        pytest.param({"excludeResourcePrefixes": "a/"}, "must be a list of names", id="one prefix"),
    ],
)
def test_what_cannot_be_merged_is_refused_with_the_remedy(resources, told):
    present = {"kind": "Configuration", "resources": resources}
    if told is None:
        assert merged(present)["resources"] == charging()
        return
    with pytest.raises(BadInput) as refused:
        merged(present)
    assert told in str(refused.value)
