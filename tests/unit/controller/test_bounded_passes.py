"""A pass of the dispatcher costs what changed, stops when its time is over, and goes on in the next step."""

import pytest
from world import World

from instaslice.controller import node_admission
from instaslice.controller.dispatcher import STEP_SECONDS


class Counted:
    """Calls of a function."""

    def __init__(self, monkeypatch, owner, name):
        self.count = 0
        before = getattr(owner, name)

        def counted(*given, **named):
            self.count += 1
            return before(*given, **named)

        monkeypatch.setattr(owner, name, counted)


def crowd(world, count, **spec):
    """Pods of one shape each, which no node admits."""
    return [world.add_pod("1g.5gb", node_selector={"rack": f"r{number}"}, **spec) for number in range(count)]


def slow(world, seconds):
    """Every look at the clock takes so long."""

    def clock():
        world.now += seconds
        return world.now

    world.dispatcher._clock = clock


@pytest.mark.parametrize("gpus", [1, 16])
def test_the_work_of_a_pass_does_not_grow_with_the_gpus_of_a_node(monkeypatch, gpus):
    world = World()
    for name in "abc":
        world.add_node(name, gpus=gpus)
    asked = Counted(monkeypatch, node_admission, "refusal")
    crowd(world, 10)
    world.dispatcher.decide()
    assert asked.count == 3 * 10, "once for each node and shape"


def test_a_slice_that_ends_has_no_node_judged_again(monkeypatch, world):
    first = world.add_pod("7g.40gb")
    world.settle()
    crowd(world, 10)
    world.settle()
    asked = Counted(monkeypatch, node_admission, "refusal")
    world.end_pod(first)
    world.settle()
    # Once more for the Event of nobody: no shape is told anew, and nothing of the node has changed for them.
    assert asked.count == 0


def test_a_heartbeat_of_a_node_wakes_nobody(world):
    crowd(world, 2)
    world.settle()
    world.change_node(world.nodes["a"])
    assert not world.woken


def test_a_node_that_admits_others_than_before_wakes_those_who_wait(world):
    pods = crowd(world, 3)
    world.settle()
    assert not world.running()
    world.label("a", rack="r1")
    world.settle()
    assert world.running() == [pods[1]]


def test_an_uncordoned_node_wakes_those_who_wait(world):
    world.cordon("a")
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert not world.running()
    world.cordon("a", cordoned=False)
    world.settle()
    assert world.running() == [uid]


def test_a_pass_whose_time_is_over_goes_on_at_once(world):
    crowd(world, 5)
    last = world.add_pod("1g.5gb")
    slow(world, STEP_SECONDS)
    steps = 0
    while world.dispatcher.due is not None and world.on(last) is None and steps < 50:
        assert world.dispatcher.due <= world.now
        world.dispatcher.decide()
        steps += 1
    assert world.on(last) == "a"
    assert steps > 3, "it was interrupted"


def test_each_pod_is_told_once_it_was_asked_for(world):
    pods = crowd(world, 4)
    slow(world, STEP_SECONDS)
    world.dispatcher.decide()
    assert 0 < len(world.told) < 4
    for _ in range(10):
        world.dispatcher.decide()
    assert world.told == set(pods)


def test_an_ordinary_pod_gets_its_slice_while_thousands_of_odd_ones_wait(world):
    crowd(world, 3000)
    slow(world, STEP_SECONDS)
    for _ in range(10):
        world.dispatcher.decide()
    ordinary = world.add_pod("1g.5gb", namespace="another")
    steps = 0
    while world.on(ordinary) is None and steps < 200:
        world.dispatcher.decide()
        steps += 1
    assert world.on(ordinary) == "a"
    assert steps < 100, "nobody waits for the 3,000 of somebody else"


def test_whom_to_keep_room_for_is_thought_about_in_steps():
    world = World(patience=10)
    world.add_node("a")
    world.add_pod("7g.40gb")
    world.settle()
    for number in range(20):
        world.add_pod("1g.5gb", cpu=f"{1000 + number}")
    world.now += 11
    slow(world, STEP_SECONDS)
    kept = world.add_pod("3g.20gb")
    world.now += 11
    for _ in range(200):
        world.dispatcher.decide()
        world.now += 0.1
        if world.dispatcher.longest_waiting.reserved:
            break
    assert world.dispatcher.longest_waiting.reserved.uid == kept, "the first that any node could hold"


def test_less_cpu_asked_for_by_a_running_pod_wakes_those_who_wait():
    world = World()
    world.add_node("a", cpu="1")
    running = world.add_pod("1g.5gb", cpu="800m")
    world.settle()
    waiting = world.add_pod("1g.5gb", cpu="500m")
    world.settle()
    assert world.running() == [running]
    world.resize(running, cpu="500m")
    world.settle()
    assert waiting in world.running()
