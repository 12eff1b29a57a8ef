"""A controller that was killed is started anew: what the one before was about to do is still done."""

import pytest
from world import World


@pytest.fixture
def world():
    made = World()
    made.add_node("a")
    return made


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
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.begin()
    world.wait(301)
    assert world.pods[uid].status.message == "not bound to node a within 300 s"
    assert not world.spec("a").allocations


def test_a_node_whose_agent_is_silent_is_still_left_alone(world):
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("b")
    world.begin()
    world.wait(121)
    assert (world.running(), world.on(uid)) == ([uid], "b")


def test_a_pod_is_told_of_the_slices_that_it_got(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.begin()
    assert uid in world.told


def test_an_ungated_pod_fails_whose_node_went_away_meanwhile(world, unbound):
    uid = world.add_pod("1g.5gb")
    world.settle()
    del world.nodes["a"], world.instaslices["a"]
    world.begin()
    world.wait(301)
    assert world.pods[uid].status.phase == "Failed"
