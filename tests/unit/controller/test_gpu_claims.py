"""A GPU that several nodes report: a machine under a new name, a cloned image, a forged report. One node has it."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import msgspec
import pytest
from small_worlds import instaslice, node, pod
from small_worlds import world as objects
from world import why

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
        pytest.param(GpuClaim("old", True, BEFORE), [GpuClaim("a", True, LATER)], id="who came first"),
        pytest.param(GpuClaim("new", True, LATER), [GpuClaim("old", False, BEFORE)], id="who exists"),
        pytest.param(GpuClaim("a", True, BEFORE), [GpuClaim("b", True, BEFORE)], id="of two in one second, by name"),
        pytest.param(
            GpuClaim("b", True, BEFORE),
            [GpuClaim("a", True, LATER), GpuClaim("c", False, BEFORE - timedelta(days=1))],
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
    assert "node a has reported the same GPU for longer" in why(world, uid).message
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
    assert said.startswith("node gpu-0 has reported the same GPU for longer")
    assert Explainer(here, policies.named("adaptive")).explain(here.pods[0]).nodes[said] == ["clone"]


def test_doctor_finds_the_one_that_came_later():
    found = [each for each in examine(twice()) if each.invariant is Invariant.HARDWARE_THERE]
    assert {each.object for each in found} == {"instaslice clone"}
    assert all("`kubectl delete node gpu-0`" in each.message and not each.transient for each in found)
