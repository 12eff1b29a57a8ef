"""GPU memory in a pod: beside slices it follows from them, alone it is an ask for a slice that holds it."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slice_pods import container, mutated, patched, pod

from instaslice.api import names
from instaslice.api.errors import Rejected
from instaslice.api.largest_node import LargestNode
from instaslice.geometry import models
from instaslice.webhook.mutation import mutate, reapplied
from instaslice.webhook.review import AdmissionPod

FIVE, TEN = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
OURS_FIVE, MEM, ANY = "gpu.das.com/mig-1g.5gb", "gpu.das.com/mem", "gpu.das.com/mig-any"
FIT, FLOOR = "gpu.das.com/fit", "gpu.das.com/compute-slices"


@pytest.mark.parametrize(
    "limits, requests",
    [
        pytest.param({MEM: "8"}, None, id="limits only"),
        pytest.param(None, {MEM: "8"}, id="requests only"),
        pytest.param({MEM: 8}, {MEM: "8"}, id="both, one without quotes"),
        pytest.param({MEM: "8", "nvidia.com/gpu": "0"}, None, id="beside no whole GPU"),
    ],
)
def test_an_ask_by_memory_keeps_its_memory_and_gets_a_slice_of_no_profile(limits, requests):
    after = mutated(pod(container(limits=limits, requests=requests)))
    for field in ("limits", "requests"):
        resources = after["spec"]["containers"][0]["resources"][field]
        assert {name: text for name, text in resources.items() if "das" in name} == {MEM: "8", ANY: "1"}
    assert json.loads(after["metadata"]["annotations"][names.REQUESTED]) == {"main": {MEM: 8}}
    assert {"name": names.GATE} in after["spec"]["schedulingGates"]
    assert names.MANAGED in {each["key"] for each in after["spec"]["tolerations"]}


def test_containers_may_ask_each_in_its_own_way():
    asked = pod(
        container("a", limits={MEM: "8"}),
        container("b", limits={FIVE: "2"}),
        container("c", limits={MEM: "20"}),
        init=[container("i", limits={MEM: "3"})],
        annotations={FIT: "any", FLOOR: "2"},
    )
    after = mutated(asked)
    assert [each["resources"]["limits"] for each in after["spec"]["containers"]] == [
        {MEM: "8", ANY: "1"},
        {OURS_FIVE: "2", MEM: "10"},
        {MEM: "20", ANY: "1"},
    ]
    assert after["spec"]["initContainers"][0]["resources"]["limits"] == {MEM: "3", ANY: "1"}
    record = json.loads(after["metadata"]["annotations"][names.REQUESTED])
    assert record == {"a": {MEM: 8}, "b": {FIVE: 2}, "c": {MEM: 20}, "i": {MEM: 3}}


@given(st.lists(st.sampled_from([{MEM: "8"}, {FIVE: "1"}, {FIVE: "2", MEM: "10"}, {}]), min_size=1, max_size=4))
def test_of_a_pod_that_has_been_through_nothing_is_changed_again(asked):
    once = mutated(pod(*(container(f"c{n}", limits=dict(each)) for n, each in enumerate(asked))))
    assert mutate(msgspec.convert(once, AdmissionPod), LargestNode()) == []


def test_a_pod_that_is_applied_again_from_its_file_stays_as_it_is():
    before = mutated(pod(container(limits={MEM: "8"})))
    assert patched(before, msgspec.to_builtins(reapplied(msgspec.convert(before, AdmissionPod)))) == before


def test_a_container_that_another_webhook_adds_later_may_ask_by_memory():
    once = mutated(pod(container("main", limits={MEM: "8"})))
    once["spec"]["containers"].append(container("added", limits={MEM: "9"}))
    record = json.loads(mutated(once)["metadata"]["annotations"][names.REQUESTED])
    assert record == {"main": {MEM: 8}, "added": {MEM: 9}}


DOCS = Path(__file__).parents[3] / "docs" / "memory.md"


def documented():
    """What a container asks for → what it carries, by the table of the page."""
    rows = re.findall(
        r"^\| (`nvidia\.com/mig-[^|]+) \| `gpu\.das\.com/mem: \"(\d+)\"` \|$", DOCS.read_text(), re.MULTILINE
    )
    return [(dict(re.findall(r"`([^`:]+): \"(\d+)\"`", asked)), gb) for asked, gb in rows]


@pytest.mark.parametrize("asked, gb", documented())
def test_the_table_of_the_page_is_true(asked, gb):
    once = mutated(pod(container(limits=asked)))
    for after in (once, mutated(once)):
        resources = after["spec"]["containers"][0]["resources"]
        assert (resources["limits"][MEM], resources["requests"][MEM]) == (gb, gb)
        assert ANY not in resources["limits"]


def test_the_page_has_a_table():
    assert len(documented()) >= 6


GATED = {"schedulingGates": [{"name": names.GATE}]}


def recorded(**asked):
    return {"annotations": {names.REQUESTED: json.dumps({"main": asked})}, **GATED}


@pytest.mark.parametrize(
    "limits, more, message",
    [
        pytest.param({MEM: "0"}, {}, r"0 is not a number of GB; .* as in gpu.das.com/mem: \"8\"", id="zero"),
        pytest.param({MEM: "-1"}, {}, "-1 is not a number of GB", id="negative"),
        pytest.param({MEM: "1.5"}, {}, "1.5 is not a number of GB", id="a fraction"),
        pytest.param({MEM: "500m"}, {}, "500m is not a number of GB", id="thousandths"),
        pytest.param({MEM: "8Gi"}, {}, "8Gi is not a number of GB; give a whole number from 1 on, without", id="8Gi"),
        pytest.param({MEM: "eight"}, {}, "'eight' is not a quantity", id="no number"),
        pytest.param({"gpu.das.com/memory": "8"}, {}, "asked for by gpu.das.com/mem, in whole GB", id="another name"),
        pytest.param({"gpu.das.com/MEM": "8"}, {}, "asked for by gpu.das.com/mem, in whole GB", id="in capitals"),
        pytest.param(
            {MEM: "8", "nvidia.com/gpu": "1"}, {}, "and for nvidia.com/gpu, by which another device plugin", id="a GPU"
        ),
        pytest.param({ANY: "1"}, {}, "mig-any is what InstaSlice adds for gpu.das.com/mem", id="our resource"),
        pytest.param({ANY: "1", MEM: "8"}, {}, "mig-any is what InstaSlice adds", id="ours beside memory"),
        pytest.param({ANY: "1", FIVE: "1"}, {}, "mig-any is what InstaSlice adds", id="ours beside a slice"),
        pytest.param({ANY: "0", MEM: "8"}, {}, "mig-any is what InstaSlice adds", id="none of ours"),
        pytest.param(
            {FIVE: "2", MEM: "8"}, {}, r"mem is 8 and the slices beside it \(2 × 1g.5gb\) are 10 GB", id="disagrees"
        ),
        pytest.param({FIVE: "1", MEM: "5Gi"}, {}, "mem is 5Gi and the slices", id="disagrees by its unit"),
        pytest.param({MEM: "8"}, {"annotations": {FIT: "loose"}}, "'loose'; write tight .* or any", id="unknown fit"),
        pytest.param({MEM: "8"}, {"annotations": {FIT: ""}}, "''; write tight", id="an empty fit"),
        pytest.param({MEM: "8"}, {"annotations": {FLOOR: "2.5"}}, "'2.5', not a number of compute", id="a bad floor"),
        pytest.param({MEM: "8"}, {"annotations": {FLOOR: "0"}}, "'0', not a number of compute", id="no floor"),
        pytest.param(
            {MEM: "8"}, {"annotations": {FLOOR: "8"}}, "has 8 GB or more and 8 compute", id="a floor too high"
        ),
        pytest.param({FIVE: "1"}, {"annotations": {FIT: "any"}}, "no container asks so; leave it out", id="fit alone"),
        pytest.param({FIVE: "1"}, {"annotations": {FLOOR: "1"}}, "sets the annotation .*/compute-slices", id="floor"),
        pytest.param(
            {MEM: "5000"},
            {},
            "no slice of a known GPU has 5000 GB or more; ask for less .the largest is",
            id="too much",
        ),
        pytest.param({MEM: "8"}, {"annotations": {names.GIVEN: "{}"}}, "gpu.das.com/given, which is ours", id="given"),
        pytest.param({MEM: "9", ANY: "1"}, recorded(**{MEM: 8}), "requested, which is ours", id="another record"),
        pytest.param({MEM: "8", ANY: "1"}, {"annotations": recorded(**{MEM: 8})["annotations"]}, "ours", id="no gate"),
        pytest.param({FIVE: "1", MEM: "8"}, recorded(**{MEM: 8}), "mem alone and for .*; keep one", id="one added"),
    ],
)
def test_what_is_refused_and_how_it_would_be_right(limits, more, message):
    with pytest.raises(Rejected, match=message) as told:
        mutated(pod(container(limits=limits), **more))
    assert not re.search(r"\{|\}|None", str(told.value))


def test_different_memory_in_limits_and_requests_is_refused():
    with pytest.raises(Rejected, match="is 8 in limits and 9 in requests"):
        mutated(pod(container(limits={MEM: "8"}, requests={MEM: "9"})))


def test_the_container_is_named():
    with pytest.raises(Rejected, match=r"^container side: "):
        mutated(pod(container("main", limits={MEM: "8"}), container("side", limits={MEM: "0"})))


A100 = LargestNode((models.named("A100-40GB"),), 1)


@pytest.mark.parametrize(
    "limits, annotations, fits",
    [
        pytest.param([{MEM: "40"}], {}, True, id="all of a GPU"),
        pytest.param([{MEM: "41"}], {}, False, id="more than it has"),
        pytest.param([{MEM: "21"}], {FLOOR: "7"}, True, id="all of its compute"),
        pytest.param([{MEM: "5"}] * 7, {}, True, id="seven of seven"),
        pytest.param([{MEM: "5"}] * 8, {}, False, id="eight of seven"),
        pytest.param([{MEM: "20"}, {MEM: "20"}], {}, True, id="two halves"),
        pytest.param([{MEM: "20"}, {MEM: "20"}, {MEM: "1"}], {}, False, id="two halves and more"),
        pytest.param([{MEM: "20"}, {"nvidia.com/mig-4g.20gb": "1"}], {}, True, id="beside a profile"),
        pytest.param([{MEM: "20"}, {"nvidia.com/mig-7g.40gb": "1"}], {}, False, id="beside a whole GPU"),
    ],
)
def test_what_no_node_could_hold_is_refused(limits, annotations, fits):
    asked = pod(*(container(f"c{n}", limits=dict(each)) for n, each in enumerate(limits)), annotations=annotations)
    if fits:
        mutated(asked, A100)
    else:
        with pytest.raises(Rejected, match=r"no slice of a known GPU|more than any node|need at least"):
            mutated(asked, A100)
