"""Which pods are turned away, and what their owners read."""

import re
from dataclasses import replace

import pytest
from slice_pods import container, mutated, pod

from instaslice.api import names
from instaslice.api.errors import Rejected
from instaslice.api.largest_node import MAX_SUGGESTIONS, LargestNode
from instaslice.geometry import ProfileName, models
from instaslice.webhook.mutation import WRITTEN_LATER

FIVE, TEN = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
ONE = {FIVE: "1"}


def refusal(document, **largest):
    with pytest.raises(Rejected) as caught:
        mutated(document, LargestNode(**largest))
    return str(caught.value)


@pytest.mark.parametrize(
    "asked, message",
    [
        pytest.param(
            {"limits": {"nvidia.com/mig-3g.21gb": "1"}},
            r"mig-3g.21gb: no known GPU has a profile 3g.21gb; did you mean 3g.20gb",
            id="a profile that no model has",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-9g.5gb": "1"}}, r"did you mean 1g.5gb", id="a profile with too much compute"
        ),
        pytest.param(
            {"limits": {"gpu.das.com/mig-1g5gb": "1"}},
            r"gpu.das.com/mig-1g5gb: no known GPU .* did you mean .*1g.5gb",
            id="not a profile name at all",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-1g.5gb.mee": "1"}},
            r"did you mean .*1g.5gb.me\b",
            id="the nearest is named as a resource, so that it can be copied",
        ),
        pytest.param({"limits": {FIVE: "-1"}}, r"-1 is not a number of slices", id="a negative number"),
        pytest.param({"limits": {FIVE: "1500m"}}, r"1500m is not a number of slices", id="one and a half"),
        pytest.param({"limits": {FIVE: "5Gi"}}, r"5Gi is not a number of slices", id="an amount of memory"),
        pytest.param(
            {"limits": {FIVE: "0"}, "requests": {FIVE: "1"}},
            r"0 in limits and 1 in requests",
            id="none in limits and one in requests",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-3g.20gb.shared": "1"}},
            r"several pods share in time, .* write nvidia.com/mig-3g.20gb for a slice of its own",
            id="a slice shared in time",
        ),
        pytest.param(
            {"requests": {"nvidia.com/mig-1g.5gb.me.shared": "1"}},
            r"write nvidia.com/mig-1g.5gb.me for a slice of its own",
            id="one with media engines shared in time",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-9g.5gb.shared": "1"}},
            r"no known GPU has a profile 9g.5gb.shared",
            id="shared in time, of a profile that no model has",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-mig-1g.5gb": "1"}},
            r"nvidia.com/mig-mig-1g.5gb: no known GPU has a profile mig-1g.5gb; did you mean 1g.5gb\b",
            id="the prefix twice",
        ),
        pytest.param(
            {"limits": {"gpu.das.com/mig-mig-1g.5gb": "1"}},
            r"no known GPU has a profile mig-1g.5gb; did you mean 1g.5gb\b",
            id="the prefix twice after our own",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-": "1"}},
            r"nvidia.com/mig- names no profile; write one after it, as in nvidia.com/mig-1g.5gb",
            id="no profile",
        ),
        pytest.param(
            {"limits": {"nvidia.com/MIG-1g.5gb": "1"}},
            r"nvidia.com/MIG-1g.5gb: names of resources are case-sensitive; write nvidia.com/mig-1g.5gb",
            id="in capitals",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-1c.3g.20gb": "1"}},
            r"did you mean 3g.20gb(?!.*\b[0-9]g\.0gb)",
            id="names that nobody has published are not suggested",
        ),
        pytest.param(
            {"limits": {FIVE: "1"}, "requests": {FIVE: "2"}},
            r"1 in limits and 2 in requests; .* the same number in both",
            id="limits and requests differ",
        ),
        pytest.param(
            {"limits": {FIVE: "1", "gpu.das.com/mig-1g.5gb": "1"}},
            r"are the same slice under two names; keep one",
            id="one slice under two names",
        ),
        pytest.param(
            {"limits": ONE, "env": ["NVIDIA_VISIBLE_DEVICES"]},
            r"sets NVIDIA_VISIBLE_DEVICES, .*leave it out",
            id="NVIDIA_VISIBLE_DEVICES",
        ),
        pytest.param(
            {"limits": ONE, "env": ["A", "CUDA_VISIBLE_DEVICES"]},
            r"sets CUDA_VISIBLE_DEVICES",
            id="CUDA_VISIBLE_DEVICES",
        ),
        pytest.param(
            {"limits": ONE, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void,0"}]},
            r"sets NVIDIA_VISIBLE_DEVICES",
            id="a list that begins with void",
        ),
        pytest.param(
            {"limits": ONE, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
            r"sets NVIDIA_VISIBLE_DEVICES",
            id="a value from elsewhere",
        ),
        pytest.param(
            {"limits": ONE, "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}, "NVIDIA_VISIBLE_DEVICES"]},
            r"sets NVIDIA_VISIBLE_DEVICES",
            id="hidden at first, and then not",
        ),
    ],
)
@pytest.mark.parametrize("init", [False, True], ids=["container", "init container"])
def test_a_container_that_cannot_be_right(asked, message, init):
    bad = container("bad", **asked)
    told = refusal(pod(container("good", limits=ONE), init=[bad]) if init else pod(container("good"), bad))
    assert told.startswith("container bad: ")
    assert re.search(message, told), told


def test_a_variable_is_refused_in_the_containers_beside_the_slice_too():
    assert "container side: sets NVIDIA_VISIBLE_DEVICES" in refusal(
        pod(container(limits=ONE), container("side", env=["NVIDIA_VISIBLE_DEVICES"]))
    )


@pytest.mark.parametrize(
    "variable",
    [
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}, id="void"),
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}, id="none"),
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES", "value": ""}, id="empty"),
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES"}, id="without a value, as the API server stores an empty one"),
        pytest.param({"name": "CUDA_VISIBLE_DEVICES", "value": ""}, id="empty for CUDA"),
        pytest.param({"name": "CUDA_VISIBLE_DEVICES", "value": "-1"}, id="no device of CUDA"),
        pytest.param({"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}, id="what says nothing of devices"),
    ],
)
def test_a_variable_that_hides_gpus_is_let_in(variable):
    after = mutated(pod(container(limits=ONE), container("side", env=[variable])))
    assert after["spec"]["containers"][1]["env"] == [variable]


GATED = {"schedulingGates": [{"name": names.GATE}]}
OURS = {"gpu.das.com/mig-1g.5gb": "1"}


@pytest.mark.parametrize(
    "annotations, limits, spec",
    [
        pytest.param({names.MIG_UUIDS: "MIG-1"}, ONE, {}, id="somebody else's slices"),
        pytest.param({names.REQUESTED: '{"main":{"nvidia.com/mig-1g.5gb":1}}'}, ONE, {}, id="before the rename"),
        pytest.param({names.REQUESTED: '{"main":{"nvidia.com/mig-1g.5gb":1}}'}, OURS, {}, id="without our gate"),
        pytest.param({names.REQUESTED: '{"main":{"nvidia.com/mig-1g.5gb":2}}'}, OURS, GATED, id="another quantity"),
        pytest.param({names.REQUESTED: '{"main":{"nvidia.com/mig-2g.10gb":1}}'}, OURS, GATED, id="another profile"),
        pytest.param({names.REQUESTED: '{"other":{"nvidia.com/mig-1g.5gb":1}}'}, OURS, GATED, id="another container"),
        pytest.param({names.REQUESTED: '{"main":{"nvidia.com/gpu":1}}'}, OURS, GATED, id="not a profile"),
        pytest.param({names.REQUESTED: "yes"}, OURS, GATED, id="not JSON"),
    ],
)
def test_our_annotations_are_ours_to_write(annotations, limits, spec):
    told = refusal(pod(container(limits=limits), annotations=annotations, **spec))
    assert told == f"sets the annotation {next(iter(annotations))}, which is ours to write; leave it out"


@pytest.mark.parametrize("annotation", WRITTEN_LATER)
@pytest.mark.parametrize("value", ["x", ""], ids=["a value", "an empty text"])
def test_what_we_write_later_comes_with_no_pod(annotation, value):
    told = refusal(pod(container(limits=ONE), annotations={annotation: value}))
    assert told == f"sets the annotation {annotation}, which is ours to write; leave it out"


def test_a_pod_bound_by_hand_is_told_of_the_node_selector():
    assert "use a nodeSelector on kubernetes.io/hostname" in refusal(pod(container(limits=ONE), nodeName="n1"))


A100 = (models.named("A100-40GB"),)


@pytest.mark.parametrize(
    "containers, init, message",
    [
        pytest.param([("a", {FIVE: "8"})], [], r"8 slices 1g.5gb .* \(7 on one A100-40GB, 1 GPUs", id="eight of seven"),
        pytest.param([("a", {FIVE: "1k"})], [], r"1000 slices 1g.5gb", id="a thousand, as the API server writes it"),
        pytest.param([("a", {FIVE: "4"}), ("b", {FIVE: "4"})], [], r"8 slices 1g.5gb", id="two containers add up"),
        pytest.param(
            [("a", {"nvidia.com/mig-3g.20gb": "2", FIVE: "1"})],
            [],
            r"1 × 1g.5gb, 2 × 3g.20gb need at least 2 GPUs of one node; the largest node has 1",
            id="memory slices run out together",
        ),
        pytest.param([("a", {TEN: "3", FIVE: "2"})], [], r"need at least 2 GPUs", id="compute runs out together"),
        pytest.param(
            [("a", {FIVE: "7"})], [("s", {FIVE: "1"}, "Always")], r"8 slices 1g.5gb", id="a sidecar holds on to its own"
        ),
        pytest.param(
            [("a", {FIVE: "1"})],
            [("s", {FIVE: "1"}, "Always"), ("i", {FIVE: "7"}, None)],
            r"8 slices 1g.5gb",
            id="an init container beside an earlier sidecar",
        ),
    ],
)
def test_more_than_any_node_could_hold(containers, init, message):
    told = refusal(_phases(containers, init), models=A100, gpus=1)
    assert re.search(message, told), told


@pytest.mark.parametrize(
    "containers, init",
    [
        pytest.param([("a", {FIVE: "7"})], [], id="seven of seven"),
        pytest.param([("a", {TEN: "3", FIVE: "1"})], [], id="all compute, by two profiles"),
        pytest.param([("a", {FIVE: "7"})], [("i", {FIVE: "7"}, None)], id="an init container gives back what it had"),
        pytest.param(
            [("a", {FIVE: "6"})],
            [("i", {FIVE: "7"}, None), ("s", {FIVE: "1"}, "Always")],
            id="a sidecar that starts after a large init container",
        ),
    ],
)
def test_what_just_fits_is_let_in(containers, init):
    mutated(_phases(containers, init), LargestNode(A100, 1))


def test_without_knowledge_of_the_cluster_the_largest_node_has_sixteen_gpus():
    mutated(pod(container(limits={FIVE: "112"})))
    assert "16 GPUs in the largest node" in refusal(pod(container(limits={FIVE: "113"})))


def test_profiles_of_models_that_the_cluster_lacks_do_not_exist():
    assert "no known GPU has a profile 1g.18gb" in refusal(
        pod(container(limits={"nvidia.com/mig-1g.18gb": "1"})), models=A100
    )


def suggested(profile):
    told = refusal(pod(container(limits={f"nvidia.com/mig-{profile}": "1"})))
    return told.partition("did you mean ")[2].removesuffix("?").split(", ")


@pytest.mark.parametrize(
    "written, first",
    [
        pytest.param("3g.39gb", "3g.40gb", id="the memory is off by one"),
        pytest.param("9g.40gb", "7g.40gb", id="right but for its compute, though 8g is no nearer"),
        pytest.param("1g.6gb.gfx", "1g.6gb", id="right but for what follows"),
        pytest.param("7g.73gb", "7g.80gb", id="one number that is far off before two that are near"),
        pytest.param("1g.4gb.me", "1g.5gb.me", id="with what follows"),
    ],
)
def test_the_nearest_profile_is_suggested_first(written, first):
    found = suggested(written)
    assert found[0] == first
    assert len(found) == MAX_SUGGESTIONS


def test_of_what_is_like_no_profile_a_few_are_suggested():
    assert len(suggested("zzz")) == MAX_SUGGESTIONS


def test_a_slice_is_measured_on_the_model_that_is_best_for_it():
    """1g.10gb is a quarter of an A100-40GB and an eighth of an A100-80GB."""
    both = (*A100, models.named("A100-80GB"))
    mutated(pod(container(limits={"nvidia.com/mig-1g.10gb": "7"})), LargestNode(both, 1))


def test_the_model_that_holds_the_most_of_a_profile_decides():
    smaller = A100[0].only(["1g.5gb"])
    fewer = replace(smaller, name="fewer", profiles=(replace(smaller.profiles[0], limit=2),))
    for order in ((fewer, *A100), (*A100, fewer)):
        mutated(pod(container(limits={FIVE: "7"})), LargestNode(order, 1))


def test_of_a_model_whose_placements_nobody_has_published_nothing_is_impossible_by_memory():
    unknown = models.named("RTX-PRO-5000-Blackwell-48GB")
    profile = max(unknown.profiles, key=lambda each: each.limit)
    assert profile.limit > 1
    name = ProfileName.parse(profile.name).resource
    mutated(pod(container(limits={f"nvidia.com/{name}": str(profile.limit)})), LargestNode((unknown,), 1))


def test_beside_a_slice_of_unpublished_size_the_others_count_in_full():
    unknown = models.named("RTX-PRO-5000-Blackwell-48GB")
    name = ProfileName.parse(unknown.profiles[0].name).resource
    # The memory of two A100s and an eighth; of the compute not quite two GPUs.
    limits = {f"nvidia.com/{name}": "1", "nvidia.com/mig-1g.10gb": "8", FIVE: "1"}
    assert "need at least 3 GPUs" in refusal(pod(container(limits=limits)), models=(unknown, *A100), gpus=2)


def test_both_names_of_a_slice_that_is_asked_for_twice_are_said_and_no_other():
    limits = {FIVE: "1", "gpu.das.com/mig-1g.5gb": "1", TEN: "1"}
    assert refusal(pod(container(limits=limits))) == (
        "container main: gpu.das.com/mig-1g.5gb and nvidia.com/mig-1g.5gb are the same slice under two names; keep one"
    )


@pytest.mark.parametrize("limits, requests", [("5Gi", "5368709120"), ("1Ki", "1024")])
def test_an_amount_of_memory_is_no_number_of_slices_though_it_is_one_in_the_requests(limits, requests):
    told = refusal(pod(container(limits={FIVE: limits}, requests={FIVE: requests})))
    assert f"{limits} is not a number of slices" in told


def test_a_phase_in_which_nothing_is_held_needs_no_gpu():
    LargestNode(A100, 1).check_fits({})


def _phases(containers, init):
    def made(name, limits, restart=None):
        return container(name, limits=limits, **({"restartPolicy": restart} if restart else {}))

    return pod(*(made(*each) for each in containers), init=[made(*each) for each in init])
