"""What an agent reports that nobody asked for, and specs that make no sense: nothing else suffers from them."""

import msgspec
import pytest
from world import World, why

from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    Allocation,
    AllocationState,
    GpuStatus,
    Health,
    InstasliceSpec,
    PodRef,
    PreparedSlice,
    SliceState,
)
from instaslice.geometry import models

H100 = models.named("H100-80GB-SXM5")


def foreign(profile="7g.40gb", start=0, size=8, gpu="a/0", name="MIG-theirs"):
    return PreparedSlice(id=name, gpu=gpu, profile=profile, start=start, size=size, state=SliceState.FOREIGN)


def reports(world, *slices):
    """The agent of node a reports these besides what it has made."""
    made = tuple(each for each in world.instaslices["a"].status.slices if each.state is not SliceState.FOREIGN)
    world.report("a", slices=(*made, *slices))


def test_a_slice_that_nobody_asked_for_takes_its_place_until_it_is_gone(world):
    reports(world, foreign())
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert world.on(uid) is None
    reports(world)
    world.settle()
    assert world.running() == [uid]


def test_beside_it_there_is_room(world):
    reports(world, foreign("4g.20gb", 0, 4))
    fits, does_not = world.add_pod("3g.20gb"), world.add_pod("4g.20gb")
    world.settle()
    assert (world.on(fits), world.on(does_not)) == ("a", None)


@pytest.mark.parametrize("state", [SliceState.FAILED, SliceState.DELETED])
def test_what_is_not_there_takes_no_place(world, state):
    reports(world, msgspec.structs.replace(foreign(), state=state))
    uid = world.add_pod("7g.40gb")
    world.settle()
    assert world.on(uid) == "a"


def test_one_that_lies_where_something_was_promised_has_the_place_when_that_is_given_back(world):
    world.mute = {"a"}
    uid = world.add_pod("7g.40gb")
    world.settle()
    reports(world, foreign())
    assert world.on(uid) == "a", "the agent will refuse it"
    world.delete_pod(uid)
    world.settle()
    (allocation,) = world.spec("a").allocations
    gone = PreparedSlice(allocation.id, "a/0", "7g.40gb", 0, 8, SliceState.DELETED)
    reports(world, gone, foreign())
    later = world.add_pod("1g.5gb")
    world.settle()
    assert world.on(later) is None
    reports(world)
    world.settle()
    assert world.on(later) == "a"


def test_one_goes_with_its_gpu_and_the_gpu_comes_back_without_it(world):
    gpus = world.instaslices["a"].status.gpus
    reports(world, foreign())
    world.report("a", gpus=(), slices=())
    world.report("a", gpus=gpus)
    uid = world.add_pod("7g.40gb")
    world.settle()
    assert world.running() == [uid]


def test_one_on_a_gpu_that_is_not_listed_is_nobodys_trouble(world):
    reports(world, foreign(gpu="a/9"))
    uid = world.add_pod("7g.40gb")
    world.settle()
    assert world.running() == [uid]


def test_a_gpu_of_a_model_that_is_not_listed_is_left_out_and_others_are_not(world):
    gpus = world.instaslices["a"].status.gpus
    world.report("a", gpus=(GpuStatus(uuid="a/1", index=1, model="Unheard-of", health=Health.HEALTHY), *gpus))
    uids = [world.add_pod("7g.40gb") for _ in range(2)]
    world.controller.dispatcher.decide()
    assert [world.on(uid) for uid in uids] == ["a", None]
    assert list(world.dispatcher.state.ledger.nodes["a"].gpus) == ["a/0"]


def test_a_gpu_that_is_of_another_model_all_at_once_has_lost_what_was_on_it(world):
    uid = world.add_pod("1g.5gb")
    world.settle(but="bind")
    status = world.instaslices["a"].status
    gpu = msgspec.structs.replace(status.gpus[0], model=H100.name)
    world.hardware.clear()
    world.report("a", models=(*status.models, ModelGeometry.of(H100)), gpus=(gpu,), slices=())
    assert world.on(uid) is None
    later = world.add_pod("7g.80gb")
    world.settle(but="bind")
    assert world.on(later) == "a"


def test_a_sick_gpu_without_a_reason_is_called_unhealthy(world):
    gpu = msgspec.structs.replace(world.instaslices["a"].status.gpus[0], health=Health.UNHEALTHY)
    world.report("a", gpus=(gpu,))
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert why(world, uid).message.endswith("out of use: GPU 0 of a (unhealthy)")


def test_a_slice_that_failed_without_a_reason_has_failed_too(world):
    uid = world.add_pod("1g.5gb")
    world.settle(but="agent")
    (promised,) = world.spec("a").allocations
    failed = PreparedSlice(promised.id, "a/0", "1g.5gb", promised.start, 1, SliceState.FAILED)
    world.report("a", slices=(failed,))
    (tracked,) = [each for each in world.dispatcher.state.ledger.nodes["a"].allocations.values() if each.create_error]
    assert tracked.allocation.state is AllocationState.DELETING
    assert tracked.create_error == tracked.allocation.reason == "the agent gave no reason"
    world.settle()
    assert world.running() == [uid]
    assert list(world.dispatcher.state.ledger.nodes["a"].quarantined.values()) == ["the agent gave no reason"]


# Specs of another hand, found at the start --------------------------------------------------------------------------


def promised(number, profile="7g.40gb", start=0, size=8, gpu="a/0", state=AllocationState.CREATING, **more):
    ref = PodRef(namespace="team", name=f"pod-{number}", uid=f"uid-{number}")
    return Allocation(
        id=f"uid-{number}-x-0",
        pod=ref,
        container="c0",
        profile=profile,
        gpu=gpu,
        start=start,
        size=size,
        state=state,
        **more,
    )


def found(world, *allocations):
    """A controller begins and finds this spec."""
    with world.unattended():
        thing = world.instaslices["a"]
        world.change_instaslice(msgspec.structs.replace(thing, spec=InstasliceSpec(allocations=allocations)))


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(promised(9, "4g.20gb", 0, 4), id="over another"),
        pytest.param(promised(9, gpu="a/7"), id="on a GPU that is not there"),
        pytest.param(promised(9, "1g.5gb", 99, 1), id="at a start that is none"),
        pytest.param(promised(9, "9g.5gb", 0, 1), id="of no profile"),
    ],
)
def test_an_allocation_that_cannot_be_is_dropped_and_its_neighbour_is_not(world, strange):
    uid = world.add_pod("3g.20gb")
    world.settle(but="agent")
    (own,) = world.spec("a").allocations
    found(world, msgspec.structs.replace(own, start=0), strange)
    assert [each.id for each in world.dispatcher.state.ledger.nodes["a"].spec().allocations] == [own.id]
    world.do(("write", "a"))
    assert world.on(uid) == "a"


@pytest.mark.parametrize("state", [AllocationState.DELETING, AllocationState.DELETED, AllocationState.FAILED])
def test_what_was_being_deleted_is_deleted(world, state):
    world.add_pod("1g.5gb")
    found(world, promised(1, state=state, reason="the pod is gone"))
    assert world.on("uid-1") is None
    (there,) = world.dispatcher.state.ledger.nodes["a"].spec().allocations
    assert (there.state, there.reason) == (AllocationState.DELETING, "the pod is gone")
    world.settle()
    assert world.running() == ["uid-1"]
    assert [each.profile for each in world.spec("a").allocations] == ["1g.5gb"]


def test_what_was_promised_to_a_pod_that_nobody_knows_is_given_back(world):
    found(world, promised(77))
    world.settle()
    assert not world.spec("a").allocations
    later = world.add_pod("7g.40gb")
    world.settle()
    assert world.running() == [later]


def test_all_slices_of_one_try_are_one_promise():
    world = World()
    world.add_node("a", gpus=2)
    uid = world.add_pod("3g.20gb", "2g.10gb")
    world.settle(but="agent")
    world.begin()
    world.settle()
    assert world.running() == [uid]
    assert [a.container for a in world.spec("a").allocations] == ["c0", "c1"]
