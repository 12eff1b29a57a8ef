"""Whatever an object says, the doctor and `explain` have an answer, and one bad object costs no other."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import mutated_objects
import pytest
from cluster_history import HistoryCheck, ObjectWrite
from hypothesis import HealthCheck, assume, given, settings
from mutated_objects import clusters, histories
from small_worlds import GEOMETRY, allocation, instaslice, made, node, pod, uuid, world

from instaslice.api import names
from instaslice.api.instaslice import AllocationState
from instaslice.api.names import GATE
from instaslice.api.pods import needed_slices
from instaslice.controller.explain import Explainer, Stage
from instaslice.controller.requests import effective
from instaslice.doctor import Invariant, ObservedCluster, examine
from instaslice.doctor.requested import requested_amounts, requested_memory, requested_slices, requests_slices
from instaslice.errors import InstasliceError
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import Pod
from instaslice.placement import policies

NOW = datetime(2026, 11, 16, 12, 10, tzinfo=UTC)
MANY = settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEWER = settings(MANY, max_examples=200)
ADAPTIVE = policies.named("adaptive")


def moment(cluster):
    return ObservedCluster(*cluster, now=NOW, version="7")


def test_the_cluster_that_odd_ones_are_made_from_is_in_order():
    assert examine(moment(mutated_objects.valid())) == []


@MANY
@given(histories())
def test_the_doctor_judges_any_world_and_any_history(history):
    cluster, changes = history
    examine(moment(cluster))
    check = HistoryCheck(moment(cluster))
    for version, change in enumerate(changes, start=8):
        check.apply(ObjectWrite(version, change.new or change.old, change.new is None))
    check.confirmed_in_use()


@FEWER
@given(clusters())
def test_every_pod_of_any_world_is_explained(cluster):
    for each in cluster.pods:
        assert Explainer(moment(cluster), ADAPTIVE).explain(each).message


@settings(MANY, max_examples=500)
@given(mutated_objects.pods(most=6))
def test_the_doctor_counts_as_the_controller_does(odd):
    try:
        counted, memory = requested_slices(odd), requested_memory(odd)
    except InstasliceError:
        # Zero, or three and a half, in whatever words: of such a pod the controller wants nothing either.
        with pytest.raises(InstasliceError):
            needed_slices(odd)
        return
    try:
        expected = needed_slices(odd)
    except InstasliceError:
        # The controller takes no `1k`; the kubelet would.
        return
    assert counted == Counter(each.profile for each in expected if each.ask is None)
    assert memory == {each.container: each.ask.gb for each in expected if each.ask is not None}
    assert requests_slices(odd) or not expected


@settings(MANY, max_examples=500)
@given(mutated_objects.pods(most=6))
def test_the_doctor_counts_cpu_and_memory_as_the_controller_does(odd):
    assume(not re.search(rb':"?-1', msgspec.json.encode(odd)))  # no API server lets a negative request through
    try:
        expected = effective(odd)
    except InstasliceError:
        return
    assert requested_amounts(odd) == {name: expected.get(name, 0) for name in ("cpu", "memory")}


ONE, TWO = {"gpu.das.com/mig-1g.5gb": "1"}, {"gpu.das.com/mig-1g.5gb": "2"}
MEDIA = {"gpu.das.com/mig-1g.5gb.me": "1"}


def of(containers, init=()):
    """A pod of containers that ask for these slices; of `(limits, "Always")` it is a sidecar."""
    first = [
        {"name": f"i{i}", "resources": {"limits": each}, "restartPolicy": how} for i, (each, how) in enumerate(init)
    ]
    then = [{"name": f"c{i}", "resources": {"limits": each}} for i, each in enumerate(containers)]
    spec = {"containers": then, "initContainers": first}
    return msgspec.convert({"metadata": {"name": "w"}, "spec": spec}, Pod)


@pytest.mark.parametrize(
    "containers, init, expected",
    [
        pytest.param([ONE, TWO], [], {"1g.5gb": 3}, id="containers add up"),
        pytest.param([ONE, MEDIA], [], {"1g.5gb": 1, "1g.5gb+me": 1}, id="a name as drivers write it"),
        pytest.param([ONE], [(TWO, ""), (TWO, "")], {"1g.5gb": 2}, id="init containers follow each other"),
        pytest.param([ONE], [(ONE, "Always")], {"1g.5gb": 2}, id="a sidecar stays"),
        pytest.param([{}], [(ONE, "Always"), (TWO, "Always"), (ONE, "")], {"1g.5gb": 4}, id="beside all sidecars"),
        pytest.param([ONE], [(TWO, ""), (ONE, "Always")], {"1g.5gb": 2}, id="before a sidecar"),
    ],
)
def test_how_many_slices_a_pod_has_at_one_time(containers, init, expected):
    assert requested_slices(of(containers, init)) == expected
    assert Counter(each.profile for each in needed_slices(of(containers, init))) == expected


def memory(gb):
    return {names.MEMORY: str(gb), names.ANY_SLICE: "1"}


@pytest.mark.parametrize(
    "containers, init, expected",
    [
        pytest.param([memory(8), ONE, memory(9)], [], {"c0": 8, "c2": 9}, id="containers have their own"),
        pytest.param([memory(8)], [(memory(3), ""), (memory(20), "")], {"c0": 20}, id="init containers leave theirs"),
        pytest.param([memory(8)], [(memory(3), "Always")], {"i0": 3, "c0": 8}, id="a sidecar keeps its own"),
        pytest.param(
            [memory(8), memory(7)], [(memory(30), ""), (memory(3), "Always"), (memory(9), "")],
            {"i1": 30, "c0": 9, "c1": 7}, id="a sidecar gets what an init container left",
        ),
        pytest.param([{}], [(memory(3), "")], {"i0": 3}, id="nobody gets it"),
    ],
)  # fmt: skip
def test_how_much_memory_a_pod_has_by_container(containers, init, expected):
    assert requested_memory(of(containers, init)) == expected
    assert {each.container: each.ask.gb for each in needed_slices(of(containers, init)) if each.ask} == expected


HELD = allocation("a", "1g.5gb", 0)
RUNS = pod("a", "1g.5gb", on="gpu-0", given=[uuid(HELD)])
BROKEN = world([RUNS], [instaslice(HELD, slices=[])])
"""A pod that runs without its slice."""


def with_status(thing, **fields):
    return msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, **fields))


def of_kube_system(limits, **spec):
    """Made where the webhook does not look."""
    document = {
        "metadata": {"namespace": "kube-system", "name": "odd", "uid": "uid-odd"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec},
    }
    return msgspec.convert(document, Pod)


def endless():
    """A geometry that nobody could list: somebody edited a status."""
    (first, *_) = GEOMETRY.profiles
    free = msgspec.structs.replace(first, starts=tuple(range(128)), limit=1000, compute=0)
    return msgspec.structs.replace(GEOMETRY, name="endless", memory_slices=128, profiles=(free,))


def listed(thing, **fields):
    """With one model more, or another list of GPUs."""
    gpus = [msgspec.structs.replace(each, **fields) for each in thing.status.gpus]
    return with_status(thing, gpus=tuple(gpus))


ELSEWHERE = instaslice(name="gpu-1", gpus=["GPU-8", "GPU-9"])
LEFT = allocation("left", "1g.5gb", 0, gpu="GPU-8", state=AllocationState.DELETING)
UNNAMED = msgspec.structs.replace(GEOMETRY.profiles[0], name="1g.5gb-xyz")

UNREADABLE = [
    pytest.param(of_kube_system({"gpu.das.com/mig-1g.5gb": "200"}), "pod kube-system/odd", "200", id="200 slices"),
    pytest.param(of_kube_system({"gpu.das.com/mig-1g.5gb": "0"}), "pod kube-system/odd", ": 0 is not", id="no slice"),
    pytest.param(
        of_kube_system({"gpu.das.com/mig-1g.5gb": "1500m"}), "pod kube-system/odd", "1500m", id="one and half"
    ),
    pytest.param(of_kube_system({"gpu.das.com/mig-tiny": "1"}), "pod kube-system/odd", "tiny", id="no profile"),
    pytest.param(of_kube_system({}, overhead={"cpu": "1Zi"}), "pod kube-system/odd", "1Zi", id="a pod's quantity"),
    pytest.param(node("gpu-1", cpu="1Zi"), "node gpu-1", "1Zi", id="a node's quantity"),
    pytest.param(
        listed(ELSEWHERE, model="unheard of"), "instaslice gpu-1", "not listed", id="a model that is not listed"
    ),
    pytest.param(node("gpu-1", **{"gpu.das.com/mem": "1Zi"}), "node gpu-1", "1Zi", id="what a node advertises"),
    pytest.param(
        listed(instaslice(LEFT, name="gpu-1", gpus=["GPU-8", "GPU-9"], slices=[]), model="unheard of"),
        "instaslice gpu-1",
        "not listed",
        id="a slice on a GPU of a model that is not listed",
    ),
    pytest.param(
        listed(with_status(ELSEWHERE, models=(endless(),)), model="endless"),
        "instaslice gpu-1",
        "more than can be looked through",
        id="a geometry without end",
    ),
    pytest.param(
        with_status(ELSEWHERE, models=(msgspec.structs.replace(GEOMETRY, profiles=(UNNAMED,)),)),
        "instaslice gpu-1",
        "1g.5gb-xyz",
        id="a profile that is none",
    ),
]


def beside(here, odd):
    """The world with one object more."""
    pods, nodes, things = list(here.pods), list(here.nodes), list(here.instaslices)
    match odd:
        case Pod():
            pods.append(odd)
        case _ if hasattr(odd.status, "gpus"):
            things.append(odd)
            nodes.append(node("gpu-1"))
        case _:
            nodes.append(odd)
    return world(pods, things, nodes)


@pytest.mark.parametrize("odd, about, why", UNREADABLE)
def test_what_cannot_be_read_is_found_and_costs_nothing_else(odd, about, why):
    before = examine(BROKEN)
    assert [each.invariant for each in before] == [Invariant.SLICE_EXISTS]
    found = examine(beside(BROKEN, odd))
    unreadable = [each for each in found if each.invariant is Invariant.READABLE]
    assert {each.object for each in unreadable} == {about}
    assert why in unreadable[0].message
    assert [each for each in found if each not in unreadable] == before


@pytest.mark.parametrize("odd, about, why", UNREADABLE)
def test_the_other_pods_are_explained_beside_it(odd, about, why):
    waits = pod("w", "1g.5gb", gates=[GATE])
    here = beside(world([waits]), odd)
    told = Explainer(here, ADAPTIVE).explain(waits)
    assert told.stage is Stage.WAITING
    assert "about to be placed" in told.message


def test_a_pod_that_asks_for_what_is_none_is_told_so():
    odd = of_kube_system({"gpu.das.com/mig-1g.5gb": "200"})
    told = Explainer(world([odd]), ADAPTIVE).explain(odd)
    assert told.stage is Stage.UNREADABLE
    assert told.message == (
        "container main: gpu.das.com/mig-1g.5gb: 200 is not a number of slices up to 128; "
        "delete the pod and ask for slices that exist"
    )


def test_a_pod_that_asks_for_what_is_none_still_holds_what_it_was_given():
    odd = of_kube_system({"gpu.das.com/mig-1g.5gb": "200"}, nodeName="gpu-0")
    stolen = msgspec.structs.replace(
        odd, metadata=msgspec.structs.replace(odd.metadata, annotations={"gpu.das.com/mig-uuids": uuid(HELD)})
    )
    found = examine(world([RUNS, stolen], [instaslice(HELD)]))
    assert {each.invariant for each in found} == {Invariant.READABLE, Invariant.UUID_ONCE}


def test_an_ended_pod_may_have_asked_for_anything():
    odd = of_kube_system({"gpu.das.com/mig-1g.5gb": "200"})
    ended = msgspec.structs.replace(odd, status=msgspec.structs.replace(odd.status, phase="Failed"))
    assert examine(world([ended])) == []


def test_what_a_node_could_not_be_asked_is_said():
    odd = node("gpu-1", cpu="1Zi")
    waits = pod("w", "1g.5gb", gates=[GATE])
    told = Explainer(beside(world([waits]), odd), ADAPTIVE).explain(waits)
    assert any("1Zi" in each and each.startswith("node gpu-1: ") for each in told.left_out)


def test_a_pod_that_could_not_be_counted_is_left_out_by_its_name():
    waits = pod("w", "1g.5gb", gates=[GATE])
    odd = pod("odd", "1g.5gb", on="gpu-0")
    (first,) = odd.spec.containers
    resources = msgspec.structs.replace(first.resources, requests={"cpu": "1Zi"})
    spec = msgspec.structs.replace(odd.spec, containers=[msgspec.structs.replace(first, resources=resources)])
    told = Explainer(world([waits, msgspec.structs.replace(odd, spec=spec)]), ADAPTIVE).explain(waits)
    (left_out,) = told.left_out
    assert left_out.startswith(f"pod {odd.metadata.namespace}/odd: ") and "1Zi" in left_out


def test_a_spec_that_calls_a_slice_deleted_is_not_believed():
    gone = msgspec.structs.replace(HELD, state="deleted")
    second = allocation("b", "1g.5gb", 0)
    found = examine(
        world(
            [pod("b", "1g.5gb", on="gpu-0", given=[uuid(second)])],
            [instaslice(gone, second, slices=[made(gone, mig_uuid="MIG-old"), made(second)])],
        )
    )
    assert [each.invariant for each in found] == [Invariant.NO_OVERLAP]


def test_one_gpu_on_two_nodes_is_found():
    twice = world([], [instaslice(), instaslice(name="gpu-1", gpus=["GPU-1", "GPU-9"])], [node(), node("gpu-1")])
    (found,) = examine(twice)
    assert (found.invariant, found.object, found.transient) == (Invariant.HARDWARE_THERE, "instaslice gpu-1", False)


def test_capacity_is_compared_as_a_quantity():
    """The API server writes 2000 as 2k."""
    profiles = [msgspec.structs.replace(each, gb=1000) for each in GEOMETRY.profiles if each.name == "7g.40gb"]
    geometry = msgspec.structs.replace(GEOMETRY, name="large", profiles=tuple(profiles))
    thing = listed(with_status(instaslice(), models=(geometry,)), model="large")
    others = {f"gpu.das.com/mig-{each.name.replace('+', '.')}": None for each in GEOMETRY.profiles}
    told = {**others, "gpu.das.com/mig-7g.40gb": "2", "gpu.das.com/mig-any": "2"}
    assert examine(world([], [thing], [node(**told, **{"gpu.das.com/mem": "2k"})])) == []
    (found,) = examine(world([], [thing], [node(**told, **{"gpu.das.com/mem": "1k"})]))
    assert "gpu.das.com/mem 1000 instead of 2000" in found.message


class Lists:
    """A transport that answers lists with these items."""

    def __init__(self, **items):
        self.items = items

    async def request(self, method, path, **_):
        kind = path.rpartition("/")[2]
        return msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": self.items[kind]})


async def test_an_object_that_does_not_decode_is_named_and_costs_no_other():
    readable = {"metadata": {"namespace": "team-a", "name": "good", "uid": "u"}}
    odd = {"metadata": {"namespace": "team-a", "name": "bad", "uid": "v"}, "spec": {"containers": 7}}
    here = await ObservedCluster.read(Client(Lists(pods=[odd, readable], nodes=[], instaslices=[])), SystemClock())
    assert [each.metadata.name for each in here.pods] == ["good"]
    (found,) = examine(here)
    assert (found.invariant, found.object) == (Invariant.READABLE, "pod team-a/bad")
    assert "containers" in found.message
    told = Explainer(here, ADAPTIVE).explain(pod("w", "1g.5gb", gates=[GATE]))
    assert any(each.startswith("pod team-a/bad: ") for each in told.left_out)
    assert here.now - datetime.now(UTC) < timedelta(minutes=1)
