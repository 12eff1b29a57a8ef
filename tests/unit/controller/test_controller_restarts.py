"""A controller that was killed is started anew: what the one before was about to do is still done."""

import msgspec
import pytest
from world import World

from instaslice.api.instaslice import AllocationState, InstasliceSpec


@pytest.fixture
def unbound(monkeypatch):
    """Nobody binds pods."""
    monkeypatch.setattr(World, "_bindable", lambda *_: False)


def test_cpu_that_was_promised_before_is_still_counted(unbound):
    world = World()
    world.add_node("a", cpu="1")
    first = world.add_pod("1g.5gb", cpu="600m")
    world.settle()
    world.begin()
    second = world.add_pod("1g.5gb", cpu="600m")
    world.settle()
    assert (world.on(first), world.on(second)) == ("a", None)
    world.delete_pod(first)
    world.settle()
    assert world.on(second) == "a"


def test_an_ungated_pod_that_nobody_binds_still_fails(world, unbound):
    uid = world.add_pod("1g.5gb", owner="ReplicaSet/web")
    world.settle()
    world.begin()
    world.wait(301)
    assert (
        "not bound to node a within 300 s (no scheduler says why; see its Events, and those of its claims)"
        in world.pods[uid].status.message
    )
    assert not world.spec("a").allocations


def test_a_node_whose_agent_is_silent_is_still_left_alone(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("b")
    world.begin()
    world.wait(121)
    assert (world.running(), world.on(uid)) == ([uid], "b")


def test_what_runs_tells_what_to_expect():
    """Otherwise 32 slices of one profile would be taken for all that ever comes, and nothing be kept open."""
    world = World()
    world.add_node("a")
    world.add_pod("3g.20gb")
    world.settle()
    world.add_pod("7g.40gb")
    world.settle()
    world.begin()
    assert world.controller.state.ledger.placer.policy.asked == {"3g.20gb": 1, "7g.40gb": 1}, (
        "what runs, and what waits"
    )


def test_what_is_remembered_of_an_earlier_process_is_not_counted_again():
    world = World()
    world.add_node("a")
    world.add_pod("3g.20gb")
    world.add_pod("7g.40gb")
    world.settle()
    world.remembered = {"3g.20gb": 20, "7g.40gb": 30}
    world.begin()
    assert world.controller.state.ledger.placer.policy.asked == {"3g.20gb": 20, "7g.40gb": 30}
    world.add_pod("3g.20gb")
    world.settle()
    assert world.controller.state.ledger.placer.policy.asked == {"3g.20gb": 21, "7g.40gb": 30}


def test_a_pod_is_told_of_the_slices_that_it_got(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.begin()
    assert uid in world.told


def test_an_ungated_pod_fails_whose_node_went_away_meanwhile(world, unbound):
    uid = world.add_pod("1g.5gb")
    world.settle()
    with world.unattended():
        world.remove_node("a")
        world.remove_instaslice("a")
    world.wait(301)
    assert world.pods[uid].status.phase == "Failed"


@pytest.mark.parametrize("elsewhere", [pytest.param(True, id="on another node"), pytest.param(False, id="on the same")])
def test_of_two_promises_by_two_leaders_the_one_that_the_pod_runs_on_stays(elsewhere):
    """The one before was stopped just before it wrote its reservation, and wrote it when another had served the pod."""
    world = World()
    world.add_node("b")
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("a")
    (runs,) = world.spec("b").allocations
    name = "a" if elsewhere else "b"
    late = msgspec.structs.replace(runs, id=f"{uid}-late-0", gpu=f"{name}/0", start=0, state=AllocationState.CREATING)
    with world.unattended():
        # First in its object, which is read first.
        thing = world.instaslices[name]
        spec = InstasliceSpec(allocations=(late, *thing.spec.allocations))
        world.change_instaslice(msgspec.structs.replace(thing, spec=spec))
    world.settle()
    assert world.on(uid) == "b"
    assert [each.id for thing in world.instaslices.values() for each in thing.spec.allocations] == [runs.id]
