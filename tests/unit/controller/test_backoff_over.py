"""A pod whose slice was created in vain is reconciled when its backoff is over, and not just queued."""

import pytest
from world import World

from instaslice.controller.quarantine import ObjectKind


@pytest.fixture
def world():
    made = World()
    made.add_node("a")
    return made


def backing_off(world):
    """Its node was cordoned twice while its slice was created."""
    uid = world.add_pod("1g.5gb")
    while uid not in world.dispatcher.state.backing_off:
        world.settle(but="agent")
        world.cordon("a")
        world.settle()
        world.cordon("a", cordoned=False)
    world.settle()
    assert world.on(uid) is None
    return uid


def after_the_backoff(world):
    world.now += 2
    world.dispatcher.decide()


def test_it_is_placed_again(world):
    uid = backing_off(world)
    after_the_backoff(world)
    assert world.on(uid) == "a"


def test_one_in_quarantine_stays_alone(world):
    uid = backing_off(world)
    world.dispatcher.quarantine(ObjectKind.POD, uid, ValueError("a field that nobody can read"))
    after_the_backoff(world)
    assert world.on(uid) is None


def test_one_that_was_deleted_gets_no_slices(world):
    uid = backing_off(world)
    world.mark_pod(uid)  # a finalizer keeps it
    world.settle()
    after_the_backoff(world)
    assert world.on(uid) is None


def test_one_that_has_failed_gets_no_slices(world):
    uid = backing_off(world)
    world.end_pod(uid, phase="Failed")
    world.settle()
    after_the_backoff(world)
    assert world.on(uid) is None
