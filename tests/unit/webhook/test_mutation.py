"""What a pod that asks for slices is turned into."""

import copy
import json

import msgspec
import pytest
import slice_pods
from hypothesis import given
from hypothesis import strategies as st
from slice_pods import container, mutated, patched, pod

from instaslice.api import names
from instaslice.api.largest_node import LargestNode
from instaslice.geometry.models import known
from instaslice.geometry.names import ProfileName
from instaslice.webhook.mutation import mutate, reapplied
from instaslice.webhook.review import AdmissionPod

LARGEST = LargestNode()
FIVE, TEN = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
OURS_FIVE, OURS_TEN, MEM = "gpu.das.com/mig-1g.5gb", "gpu.das.com/mig-2g.10gb", "gpu.das.com/mem"


@pytest.mark.parametrize(
    "limits, requests, expected",
    [
        pytest.param({FIVE: "1"}, {FIVE: "1"}, {OURS_FIVE: "1", MEM: "5"}, id="limits and requests"),
        pytest.param({FIVE: "1"}, None, {OURS_FIVE: "1", MEM: "5"}, id="limits only"),
        pytest.param(None, {FIVE: "1"}, {OURS_FIVE: "1", MEM: "5"}, id="requests only"),
        pytest.param({FIVE: 1}, None, {OURS_FIVE: "1", MEM: "5"}, id="a number without quotes"),
        pytest.param({OURS_FIVE: "+1"}, {OURS_FIVE: "1e0"}, {OURS_FIVE: "1", MEM: "5"}, id="one in other words"),
        pytest.param({FIVE: "2"}, None, {OURS_FIVE: "2", MEM: "10"}, id="quantity two counts the memory twice"),
        pytest.param({FIVE: "2", TEN: "1"}, None, {OURS_FIVE: "2", OURS_TEN: "1", MEM: "20"}, id="two profiles"),
        pytest.param({OURS_FIVE: "1"}, None, {OURS_FIVE: "1", MEM: "5"}, id="asked for by our own name"),
        pytest.param({f"{FIVE}.me": "1"}, None, {f"{OURS_FIVE}.me": "1", MEM: "5"}, id="media extensions"),
        pytest.param({FIVE: "1", MEM: "5"}, None, {OURS_FIVE: "1", MEM: "5"}, id="with the memory that it comes to"),
        pytest.param(
            {"nvidia.com/mig-1g.24gb.me.all": "1"},
            None,
            {"gpu.das.com/mig-1g.24gb.me.all": "1", MEM: "24"},
            id="all media engines of an RTX PRO",
        ),
    ],
)
def test_a_container_gets_our_resources_in_limits_and_requests(limits, requests, expected):
    resources = mutated(pod(container(limits=limits, requests=requests)))["spec"]["containers"][0]["resources"]
    assert resources == {"limits": expected, "requests": expected}


def test_other_resources_of_the_container_stay():
    asked = container(limits={FIVE: "1", "cpu": "2"}, requests={FIVE: "1", "cpu": "500m", "memory": "1Gi"})
    resources = mutated(pod(asked))["spec"]["containers"][0]["resources"]
    assert resources["limits"]["cpu"] == "2"
    assert (resources["requests"]["cpu"], resources["requests"]["memory"]) == ("500m", "1Gi")


def test_init_containers_and_sidecars_are_changed_too_and_plain_ones_are_not():
    before = pod(
        container("main", limits={FIVE: "1"}),
        container("logs", limits={"cpu": "1"}),
        init=[container("warm", limits={TEN: "1"}), container("side", limits={FIVE: "1"}, restartPolicy="Always")],
    )
    after = mutated(before)["spec"]
    assert OURS_TEN in after["initContainers"][0]["resources"]["limits"]
    assert OURS_FIVE in after["initContainers"][1]["resources"]["limits"]
    assert after["containers"][1] == before["spec"]["containers"][1]


def test_the_original_request_is_recorded_in_the_users_words():
    asked = pod(container("a", limits={FIVE: "2"}), container("b", requests={OURS_TEN: "1"}), container("c"))
    record = json.loads(mutated(asked)["metadata"]["annotations"][names.REQUESTED])
    assert record == {"a": {FIVE: 2}, "b": {OURS_TEN: 1}}


def test_the_gate_and_the_toleration_come_after_those_that_are_there():
    kueue, theirs = {"name": "kueue.x-k8s.io/admission"}, {"key": "theirs", "operator": "Exists"}
    asked = pod(container(limits={FIVE: "1"}), schedulingGates=[kueue], tolerations=[theirs], annotations={"a": "b"})
    after = mutated(asked)
    assert after["spec"]["schedulingGates"] == [kueue, {"name": names.GATE}]
    assert after["spec"]["tolerations"] == [
        theirs,
        {"key": names.MANAGED, "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert after["metadata"]["annotations"]["a"] == "b"


@pytest.mark.parametrize(
    "written, stays",
    [
        pytest.param({FIVE: "1"}, {}, id="what it was made from"),
        pytest.param({FIVE: "1000m"}, {}, id="in other words"),
        pytest.param({FIVE: "2"}, {FIVE: "2"}, id="not another quantity"),
        pytest.param({TEN: "1"}, {TEN: "1"}, id="nor another profile"),
        pytest.param({"nvidia.com/mig-x": "1"}, {"nvidia.com/mig-x": "1"}, id="nor what is none"),
    ],
)
def test_a_pod_that_is_applied_again_stays_as_it_is(written, stays):
    before = mutated(pod(container(limits={FIVE: "1", "cpu": "2"})))
    again = copy.deepcopy(before)
    again["spec"]["containers"][0]["resources"]["limits"] |= written
    if not stays:
        again["spec"]["tolerations"] = []
    after = patched(again, msgspec.to_builtins(reapplied(msgspec.convert(again, AdmissionPod))))
    before["spec"]["containers"][0]["resources"]["limits"] |= stays
    assert after == before


def test_a_pod_without_slices_is_left_alone():
    whole = pod(container(limits={"nvidia.com/gpu": "1"}, env=["NVIDIA_VISIBLE_DEVICES"]))
    assert mutated(whole) == whole


NONE = "nvidia.com/mig-3g.20gb"


@pytest.mark.parametrize(
    "resources, left",
    [
        pytest.param({"limits": {FIVE: "0"}}, {"limits": {}}, id="in limits"),
        pytest.param({"requests": {FIVE: "0"}}, {"requests": {}}, id="in requests"),
        pytest.param({"limits": {FIVE: 0}, "requests": {FIVE: "0"}}, {"limits": {}, "requests": {}}, id="in both"),
        pytest.param({"limits": {FIVE: "0m", "cpu": "1"}}, {"limits": {"cpu": "1"}}, id="in other words"),
        pytest.param({"limits": {OURS_FIVE: "0", TEN: "0"}}, {"limits": {}}, id="of several, by either name"),
        pytest.param({"limits": {"nvidia.com/mig-9g.9gb": "0"}}, {"limits": {}}, id="of what does not exist"),
        pytest.param({"limits": {"nvidia.com/gpu": "0"}}, {"limits": {"nvidia.com/gpu": "0"}}, id="not of whole GPUs"),
    ],
)
def test_zero_slices_are_none(resources, left):
    """The pod is one like any other: no gate, no record, and what it says of devices is its own affair."""
    asked = container(env=["NVIDIA_VISIBLE_DEVICES"], resources=resources)
    before = pod(asked, init=[container("warm", resources=copy.deepcopy(resources))], nodeName="n1")
    after = mutated(before)
    for field in ("containers", "initContainers"):
        before["spec"][field][0]["resources"] = left
    assert after == before


def test_zero_of_one_profile_beside_one_of_another_is_dropped():
    asked = container(limits={FIVE: "1", NONE: "0"}, requests={NONE: "0", "cpu": "1"})
    after = mutated(pod(asked, container("side", limits={NONE: "0"})))
    given = {OURS_FIVE: "1", MEM: "5"}
    main, side = (each["resources"] for each in after["spec"]["containers"])
    assert main == {"limits": given, "requests": {"cpu": "1", **given}}
    assert side == {"limits": {}}
    assert json.loads(after["metadata"]["annotations"][names.REQUESTED]) == {"main": {FIVE: 1}}


@pytest.mark.parametrize("default", ["0", "1", "2"])
def test_a_default_of_the_namespace_that_comes_back_after_the_rename_is_dropped(default):
    """The API server fills in what a LimitRange gives, calls us, fills it in again, and calls us again."""
    once = mutated(pod(container(limits={FIVE: "2", "cpu": "1"})))
    refilled = copy.deepcopy(once)
    for field in ("limits", "requests"):
        refilled["spec"]["containers"][0]["resources"][field][FIVE] = default
    assert mutated(refilled) == once


def test_a_pod_with_zero_slices_can_be_applied_again():
    """From the file that it was made from; it gets nothing that it had not before."""
    before = pod(container(limits={FIVE: "0", "cpu": "1"}))
    again = patched(before, msgspec.to_builtins(reapplied(msgspec.convert(before, AdmissionPod))))
    assert again == mutated(before)


def test_a_container_that_another_webhook_adds_later_is_added_to_the_record():
    once = mutated(pod(container("main", limits={FIVE: "1"})))
    once["spec"]["containers"].append(container("added", limits={TEN: "1"}))
    twice = mutated(once)
    assert json.loads(twice["metadata"]["annotations"][names.REQUESTED]) == {"main": {FIVE: 1}, "added": {TEN: 1}}
    assert len(twice["spec"]["schedulingGates"]) == 1


def test_what_another_webhook_adds_to_a_container_later_is_added_to_its_record():
    once = mutated(pod(container("main", limits={FIVE: "1"})))
    once["spec"]["containers"][0]["resources"]["limits"][TEN] = "1"
    twice = mutated(once)
    assert json.loads(twice["metadata"]["annotations"][names.REQUESTED]) == {"main": {FIVE: 1, TEN: 1}}
    assert twice["spec"]["containers"][0]["resources"]["limits"] == {OURS_FIVE: "1", OURS_TEN: "1", MEM: "15"}


def test_the_record_is_the_same_text_whatever_the_order_of_containers():
    after = mutated(pod(container("b", limits={TEN: "1", FIVE: "1"}), container("a", limits={FIVE: "2"})))
    record = after["metadata"]["annotations"][names.REQUESTED]
    assert record == f'{{"a":{{"{FIVE}":2}},"b":{{"{FIVE}":1,"{TEN}":1}}}}'


@pytest.mark.parametrize(
    "toleration, enough",
    [
        pytest.param({"key": names.MANAGED, "operator": "Exists", "effect": "NoSchedule"}, True, id="ours"),
        pytest.param({"key": names.MANAGED, "operator": "Exists"}, True, id="of every effect"),
        pytest.param({"key": names.MANAGED, "operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({"key": names.MANAGED, "operator": "Equal", "value": "x"}, False, id="of one value"),
        pytest.param({"key": "theirs", "operator": "Exists"}, False, id="another taint"),
        pytest.param({"operator": "Exists"}, False, id="whatever taint: said all the same, for people to read"),
    ],
)
def test_a_toleration_that_is_there_already_is_not_added(toleration, enough):
    after = mutated(pod(container(limits={FIVE: "1"}), tolerations=[toleration]))
    assert after["spec"]["tolerations"] == [toleration, *([] if enough else [slice_pods.TOLERATION])]


def test_an_update_that_renames_nothing_is_not_touched():
    before = mutated(pod(container(limits={FIVE: "1"})))
    before["spec"]["tolerations"] = []
    assert reapplied(msgspec.convert(before, AdmissionPod)) == []


def test_of_a_profile_of_unpublished_size_no_memory_is_counted():
    (unknown, *_) = [name for name in PROFILES if ".0gb" in name]
    after = mutated(pod(container(limits={f"nvidia.com/{unknown}": "1"})))
    assert after["spec"]["containers"][0]["resources"]["limits"] == {f"gpu.das.com/{unknown}": "1"}


PROFILES = sorted({ProfileName.parse(profile.name).resource for model in known() for profile in model.profiles})
RESOURCE = st.builds("{}/{}".format, st.sampled_from(["nvidia.com", "gpu.das.com"]), st.sampled_from(PROFILES))
QUANTITY = st.integers(1, 2).map(str)


@st.composite
def asking_pods(draw):
    """Pods with slices in any container, under either name, and everything else that a pod may have."""

    def some(prefix, fewest):
        return [one(f"{prefix}{index}") for index in range(draw(st.integers(fewest, 3)))]

    def one(name):
        asked = draw(st.dictionaries(RESOURCE, QUANTITY, max_size=2))
        by_profile = {resource.partition("/")[2]: (resource, count) for resource, count in asked.items()}
        slices = dict(by_profile.values())
        limits = {**slices, **draw(st.sampled_from([{}, {"cpu": "1"}]))}
        both = draw(st.booleans())
        return container(name, limits=limits, requests={**slices, "memory": "1Gi"} if both else None)

    return pod(
        *some("c", 1),
        init=some("i", 0),
        annotations=draw(st.sampled_from([None, {}, {"note": "x/y~z"}])),
        **draw(st.sampled_from([{}, {"schedulingGates": [{"name": "theirs"}]}, {"tolerations": [{"key": "k"}]}])),
    )


@given(asking_pods())
def test_of_a_changed_pod_nothing_is_changed_again(document):
    assert mutate(msgspec.convert(mutated(document), AdmissionPod), LARGEST) == []


def _without_ours(document):
    """What is left of a pod when everything that the webhook may touch is taken away."""
    rest = copy.deepcopy(document)
    annotations = rest["metadata"].pop("annotations", None) or {}
    annotations.pop(names.REQUESTED, None)
    for field, ours in (("schedulingGates", {"name": names.GATE}), ("tolerations", slice_pods.TOLERATION)):
        rest["spec"][field] = [each for each in rest["spec"].get(field, []) if each != ours]
    for each in [*rest["spec"].get("initContainers", ()), *rest["spec"]["containers"]]:
        resources = each.pop("resources", {})
        each["others"] = {
            field: {
                name: value for name, value in resources.get(field, {}).items() if "/mig-" not in name and name != MEM
            }
            for field in ("limits", "requests")
        }
    return rest, annotations


@given(asking_pods())
def test_everything_else_in_the_pod_stays_as_it_was(document):
    assert _without_ours(mutated(document)) == _without_ours(document)
