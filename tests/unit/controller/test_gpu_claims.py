"""A GPU that several nodes report: a machine under a new name, a cloned image, a forged report. One node has it."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import msgspec
import pytest
from small_worlds import allocation, instaslice, node, pod
from small_worlds import world as objects
from world import why

from instaslice.api.instaslice import InstasliceSpec
from instaslice.api.names import GATE, REQUESTED
from instaslice.controller.explain import Explainer
from instaslice.controller.fleet_status import fleet_status
from instaslice.controller.gpu_claims import GpuClaim
from instaslice.doctor import Invariant, examine
from instaslice.placement import policies

BEFORE = datetime(2026, 11, 1, tzinfo=UTC)
LATER = BEFORE + timedelta(days=1)


@pytest.mark.parametrize(
    "holder, others",
    [
        pytest.param(GpuClaim("old", True, False, BEFORE), [GpuClaim("a", True, False, LATER)], id="who came first"),
        pytest.param(GpuClaim("new", True, False, LATER), [GpuClaim("old", False, True, BEFORE)], id="who exists"),
        pytest.param(GpuClaim("new", True, True, LATER), [GpuClaim("old", True, False, BEFORE)], id="who has slices"),
        pytest.param(
            GpuClaim("a", True, True, BEFORE), [GpuClaim("b", True, True, BEFORE)], id="of two in one second, by name"
        ),
        pytest.param(
            GpuClaim("b", True, False, BEFORE),
            [GpuClaim("a", True, False, LATER), GpuClaim("c", False, False, BEFORE - timedelta(days=1))],
            id="of three",
        ),
    ],
)
def test_who_has_a_gpu_does_not_depend_on_who_was_seen_first(holder, others):
    for claims in permutations([holder, *others]):
        found = claims[0]
        for each in claims[1:]:
            found = each if each.outranks(found) else found
        assert found is holder


def clone(world, name):
    """A node that reports the GPUs of node a. Its object is younger: the server has a clock."""
    world.now += 10
    world.add_node(name)
    world.report(name, gpus=world.instaslices["a"].status.gpus)
    world.settle()


def test_nothing_is_placed_on_a_clone_though_the_original_is_not_ready(world):
    running = world.add_pod("1g.5gb")
    world.settle()
    world.not_ready("a")
    clone(world, "b")
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert not world.spec("b").allocations
    assert "node a has the same GPU" in why(world, uid).message
    assert [each.pod.uid for each in world.spec("a").allocations] == [running]


def test_a_controller_that_is_started_decides_the_same(world):
    world.not_ready("a")
    clone(world, "0")  # comes first in a list
    uid = world.add_pod("1g.5gb")
    world.begin()
    world.settle()
    assert not world.spec("0").allocations
    assert "kubectl delete node a" in why(world, uid).message


def test_a_machine_under_a_new_name_gets_pods_once_its_former_node_is_deleted(world):
    world.not_ready("a")
    clone(world, "b")
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.remove_node("a")
    world.settle()
    assert world.on(uid) == "b"


def twice():
    """Node gpu-0 came first, and is not ready."""
    first, second = instaslice(), instaslice(name="clone")
    things = [
        msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, creation_timestamp=created))
        for each, created in ((second, LATER), (first, BEFORE))
    ]
    waits = pod("w", "1g.5gb", gates=[GATE])
    meta = msgspec.structs.replace(waits.metadata, annotations={REQUESTED: "{}"})
    return objects([msgspec.structs.replace(waits, metadata=meta)], things, [node(ready=False), node("clone")])


def test_status_and_explain_say_whose_gpus_they_are():
    here = twice()
    nodes = {each.name: each for each in fleet_status(here, policies.named("adaptive")).nodes}
    assert {gpu.out_of_use for gpu in nodes["gpu-0"].gpus} == {"not ready"}
    (said,) = {gpu.out_of_use for gpu in nodes["clone"].gpus}
    assert said.startswith("node gpu-0 has the same GPU")
    assert Explainer(here, policies.named("adaptive")).explain(here.pods[0]).nodes[said] == ["clone"]


def test_doctor_finds_the_one_that_came_later():
    found = [each for each in examine(twice()) if each.invariant is Invariant.HARDWARE_THERE]
    assert {each.object for each in found} == {"instaslice clone"}
    assert all("`kubectl delete node gpu-0`" in each.message and not each.transient for each in found)


@pytest.fixture
def busy(world):
    """A younger node b whose GPU is in use, when node a begins to report it too: the token of a is enough for that."""
    world.now += 10
    world.add_node("b")
    add_pod_on_b(world)
    theirs = world.instaslices["b"].status.gpus
    world.report("a", gpus=(*world.instaslices["a"].status.gpus, *theirs))
    world.settle()
    return world


def add_pod_on_b(world):
    uid = world.add_pod("3g.20gb", node_selector={"kubernetes.io/hostname": "b"})
    world.settle()
    return uid


def test_a_gpu_with_slices_stays_where_they_are_though_an_older_node_reports_it(busy):
    assert busy.on(add_pod_on_b(busy)) == "b"


def test_so_it_does_when_the_controller_is_started_again(busy):
    """It meets a, which claims the GPU, before it has read what is reserved on b."""
    assert next(iter(busy.instaslices)) == "a"
    busy.begin()
    assert busy.on(add_pod_on_b(busy)) == "b"
    assert len(busy.spec("b").allocations) == 2


def test_status_and_doctor_say_the_same():
    younger, older = twice().instaslices
    held = allocation("p", "1g.5gb", 0, gpu=younger.status.gpus[0].uuid)
    younger = msgspec.structs.replace(younger, spec=InstasliceSpec(allocations=(held,)))
    here = objects([], [older, younger], [node(), node("clone")])
    nodes = {each.name: each for each in fleet_status(here, policies.named("adaptive")).nodes}
    assert "node clone has the same GPU" in nodes["gpu-0"].gpus[0].out_of_use
    assert not nodes["clone"].gpus[0].out_of_use
    found = [each.object for each in examine(here) if f"reports {held.gpu}, as clone does" in each.message]
    assert found == ["instaslice gpu-0"]
