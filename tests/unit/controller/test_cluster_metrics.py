"""What Prometheus reads of the controller follows its state, whatever happened and however often it was restarted."""

import logging

import msgspec
import pytest
from world import A100, World

from instaslice.api import names
from instaslice.api.instaslice import PreparedSlice, SliceState
from instaslice.kube.core import PODS


def value(world, name, **labels):
    return world.controller.registry.get_sample_value(f"instaslice_{name}", labels)


def states(world):
    """Allocations by state, without those of which there are none."""
    found = {}
    for family in world.controller.registry.collect():
        if family.name == "instaslice_allocations":
            found = {each.labels["state"]: int(each.value) for each in family.samples if each.value}
    return found


def timed(world):
    """State → how many left it."""
    found = {}
    for family in world.controller.registry.collect():
        if family.name == "instaslice_state_seconds":
            found = {
                each.labels["state"]: int(each.value)
                for each in family.samples
                if each.name.endswith("_count") and each.value
            }
    return found


def act(world, kind):
    """One thing of this kind happens, and nothing else."""
    world.do(next(deed for deed in world.deeds() if deed[0] == kind))


def test_an_allocation_through_its_life(world):
    uid = world.add_pod("3g.20gb")
    assert (value(world, "queue_length"), states(world)) == (1, {})
    act(world, "decide")
    act(world, "write")
    assert (value(world, "queue_length"), states(world)) == (0, {"creating": 1})
    act(world, "agent")
    assert states(world) == {"created": 1}
    act(world, "ungate")
    assert states(world) == {"ungated": 1}
    world.settle()
    world.end_pod(uid)
    act(world, "write")
    assert states(world) == {"deleting": 1}
    world.settle()
    assert states(world) == {}
    assert timed(world) == {"waiting": 1, "creating": 1, "created": 1, "ungated": 1, "deleting": 1}


def test_the_seconds_in_a_state(world):
    world.add_pod("3g.20gb")
    act(world, "decide")
    world.now += 4
    assert value(world, "state_seconds_count", state="creating") == 0
    act(world, "write")
    world.now += 3
    act(world, "agent")
    assert value(world, "state_seconds_sum", state="creating") == 7
    assert value(world, "state_seconds_count", state="creating") == 1
    world.now += 2
    assert value(world, "state_oldest_seconds", state="created") == 2
    world.settle()
    assert value(world, "state_seconds_sum", state="created") == 2
    world.now += 10
    assert value(world, "state_oldest_seconds", state="ungated") == 10


def test_the_seconds_that_a_pod_waits(world):
    first = world.add_pod("7g.40gb")
    world.settle()
    world.add_pod("7g.40gb")
    world.settle()
    before = value(world, "state_seconds_sum", state="waiting")
    world.now += 30
    world.end_pod(first)
    world.settle()
    assert value(world, "state_seconds_sum", state="waiting") == before + 30
    assert timed(world)["waiting"] == 2


def test_a_pod_with_two_slices_waits_once(world):
    world.add_pod("3g.20gb", "2g.10gb")
    world.settle()
    assert timed(world) == {"waiting": 1, "creating": 2, "created": 2}


def test_a_restart_forgets_no_gauge_and_times_nothing_that_it_did_not_see(world):
    uid = world.add_pod("3g.20gb")
    world.add_pod("7g.40gb")
    world.settle()
    before = (
        states(world),
        value(world, "queue_length"),
        value(world, "gpus_with_room", model="A100-40GB", profile="3g.20gb"),
    )
    world.now += 5
    world.begin()
    assert before == (states(world), value(world, "queue_length"),
                      value(world, "gpus_with_room", model="A100-40GB", profile="3g.20gb"))  # fmt: skip
    assert timed(world) == {}
    assert value(world, "state_oldest_seconds", state="ungated") == 0
    world.end_pod(uid)
    world.settle(but="agent")
    # When it was ungated is not known; when it began to be deleted is.
    assert "ungated" not in timed(world)
    world.settle()
    assert timed(world)["deleting"] == 1


@pytest.mark.parametrize(
    "reason, counted",
    [
        pytest.param("Waiting", "Waiting", id="a reason of ours"),
        pytest.param("team-a-was-here", "Unknown", id="what somebody else wrote makes no series"),
        pytest.param("", "Unknown", id="not written yet"),
    ],
)
def test_waiting_pods_by_reason(world, reason, counted):
    world.add_pod("7g.40gb")
    world.settle()
    uid = world.add_pod("7g.40gb")
    world.settle()
    if reason:
        world.told_pod(uid, reason)
    assert value(world, "waiting_pods", reason=counted) == 1
    assert value(world, "waiting_pods", reason="team-a-was-here") is None


def test_the_oldest_pod_is_as_old_as_it_was_before_a_restart(world):
    world.add_pod("7g.40gb")
    uid = world.add_pod("7g.40gb")
    world.settle()
    world.now += 100
    age = (world.clock.now() - world.pods[uid].metadata.creation_timestamp).total_seconds()
    assert value(world, "state_oldest_seconds", state="waiting") == age
    world.begin()
    assert value(world, "state_oldest_seconds", state="waiting") == age


def test_slices_that_nobody_asked_for(world):
    foreign = PreparedSlice(
        id="MIG-x", gpu="a/0", profile="3g.20gb", start=4, size=4, state=SliceState.FOREIGN, mig_uuid="MIG-x"
    )
    world.report("a", slices=(foreign,))
    assert value(world, "foreign_slices") == 1
    assert value(world, "slices_held", model="A100-40GB", profile="3g.20gb") == 1
    assert value(world, "gpu_memory_bytes", model="A100-40GB", state="allocated") == 20e9


def test_a_slot_that_the_hardware_refuses(world):
    world.broken.add(("a/0", 0))
    world.add_pod("7g.40gb")
    for _ in range(6):
        kinds = [kind for kind, _ in world.deeds()]
        if not kinds or value(world, "failed_placements"):
            break
        act(world, kinds[0])
    assert value(world, "failed_placements") == 1


def test_a_node_that_is_not_known_any_more_has_no_gpus(world):
    assert value(world, "gpus", model="A100-40GB", state="open") == 1
    assert value(world, "nodes", state="serving") == 1
    world.remove_instaslice("a")
    assert value(world, "gpus", model="A100-40GB", state="open") is None
    assert value(world, "nodes", state="serving") == 0


def test_before_all_objects_are_known_nothing_is_said_of_the_cluster():
    world = World()
    world.controller.started = False
    assert value(world, "queue_length") is None


def test_every_change_is_one_line_with_the_uid_of_the_pod(world, caplog):
    caplog.set_level(logging.INFO, "instaslice.controller.state_times")
    uid = world.add_pod("3g.20gb")
    meta = world.pods[uid].metadata
    world.settle()
    world.end_pod(uid)
    world.settle()
    assert {(each.uid, each.pod) for each in caplog.records} == {(uid, f"{meta.namespace}/{meta.name}")}
    assert [each.getMessage().split(" (")[0] for each in caplog.records] == [
        "pod waits for slices",
        "slice 3g.20gb at 4 is creating",
        "slice 3g.20gb at 4 is created",
        "slice 3g.20gb at 4 is ungated",
        "slice 3g.20gb at 4 is deleting",
        "slice 3g.20gb at 4 is deleted",
    ]
    assert {(each.node, each.gpu) for each in caplog.records[1:]} == {("a", "a/0")}


@pytest.mark.parametrize(
    "written, logged",
    [
        pytest.param("e60ee861-586d-402b-b91b-42a2c927b23d", "e60ee861-586d-402b-b91b-42a2c927b23d", id="a uid"),
        pytest.param("a" * 500, None, id="too long to be one"),
        pytest.param("x\n2026-01-01 ERROR all is lost", None, id="another line"),
    ],
)
def test_the_first_line_names_the_admission(world, caplog, written, logged):
    caplog.set_level(logging.INFO, "instaslice.controller.state_times")
    uid = world.add_pod("3g.20gb")
    pod = world.pods[uid]
    world.delete_pod(uid)
    caplog.clear()
    noted = {**pod.metadata.annotations, names.ADMISSION: written}
    world.server.put(
        PODS, msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=noted))
    )
    (line,) = [each for each in caplog.records if "waits" in each.getMessage()]
    assert getattr(line, "request", None) == logged


def test_a_restart_repeats_no_line(world, caplog):
    world.add_pod("3g.20gb")
    world.add_pod("7g.40gb")
    world.settle()
    caplog.set_level(logging.INFO, "instaslice.controller.state_times")
    caplog.clear()
    world.begin()
    assert not caplog.records


def test_two_geometries_of_one_name_are_added(world):
    world.add_node("b", model=A100.only(["1g.5gb", "7g.40gb"]))
    assert len(world.dispatcher.state.ledger.fleet.pools) == 2
    assert value(world, "gpus", model="A100-40GB", state="open") == 2
    assert value(world, "gpu_memory_bytes", model="A100-40GB", state="free") == 80e9
    assert value(world, "gpus_with_room", model="A100-40GB", profile="3g.20gb") == 1
    assert value(world, "gpus_with_room", model="A100-40GB", profile="7g.40gb") == 2
    assert value(world, "largest_free_slice_bytes", model="A100-40GB") == 40e9
