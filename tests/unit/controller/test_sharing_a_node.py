"""What other pods take from a node, and reservations that an earlier controller made there."""

import pytest
from fitting import container, pod
from world import World, why

from instaslice.kube.core import PODS


@pytest.fixture
def small():
    """One A100 on a node with one CPU."""
    made = World()
    made.add_node("a", cpu="1")
    return made


def foreign(world, cpu="800m", phase="Running", on="a"):
    """A pod that asks for no slice."""
    made = pod(container(cpu=cpu), meta={"name": "other", "uid": "other"}, status={"phase": phase}, nodeName=on)
    world.server.put(PODS, made)


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda world: world.delete_pod("other"), id="gone"),
        pytest.param(lambda world: foreign(world, phase="Succeeded"), id="ended"),
    ],
)
def test_a_waiting_pod_has_the_cpu_of_one_that_left(small, leave):
    foreign(small)
    uid = small.add_pod("1g.5gb", cpu="500m")
    small.settle()
    assert "cpu: 500m wanted, 200m free" in why(small, uid).message
    leave(small)
    small.settle()
    assert small.running() == [uid]


def test_one_that_is_not_bound_takes_nothing_until_it_is(small):
    foreign(small, phase="Pending", on="")
    first = small.add_pod("1g.5gb", cpu="100m")
    small.settle()
    foreign(small)
    second = small.add_pod("1g.5gb", cpu="200m")
    small.settle()
    assert first in small.running()
    assert second not in small.running()
    assert "cpu: 200m wanted, 100m free" in why(small, second).message


def test_one_that_ended_before_we_began_takes_nothing(small):
    foreign(small, phase="Failed")
    uid = small.add_pod("1g.5gb", cpu="1")
    with small.unattended():
        pass
    small.settle()
    assert small.running() == [uid]


def test_a_pod_that_is_bound_counts_once(small):
    for _ in range(2):
        small.add_pod("1g.5gb", cpu="500m")
        small.settle()
    assert len(small.running()) == 2
    assert small.dispatcher.state.capacities.free("a")["cpu"] == 0


def test_a_node_that_grows_takes_who_waits(small):
    uid = small.add_pod("1g.5gb", cpu="2")
    small.settle()
    assert small.running() == []
    small.add_node("a", cpu="2")
    small.settle()
    assert small.running() == [uid]


def test_a_pod_with_our_gate_alone_is_ours_and_one_without_either_is_not(small):
    limits = {"name": "c", "resources": {"limits": {"gpu.das.com/mig-1g.5gb": "1"}}}
    gate = [{"name": "gpu.das.com/slice"}]
    small.server.put(PODS, pod(limits, meta={"name": "gated", "uid": "gated"}, schedulingGates=gate))
    small.server.put(PODS, pod(limits, meta={"name": "ungated", "uid": "ungated"}))
    small.settle()
    assert set(small.dispatcher.state.pods) == {"gated"}
    assert small.on("gated") == "a"


def test_a_promise_of_an_earlier_controller_has_its_whole_time_once_more():
    world = World(create=120)
    world.add_node("a")
    world.mute = {"a"}
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.add_node("b")
    world.wait(100)
    world.begin()
    world.settle()
    world.wait(119)
    assert world.on(uid) == "a"
    world.wait(2)
    assert world.on(uid) == "b"


@pytest.mark.parametrize("let_go", [False, True])
def test_what_an_earlier_controller_promised_counts_before_its_pod_is_bound(let_go, monkeypatch):
    monkeypatch.setattr(World, "_bindable", lambda *_: None)
    world = World()
    world.add_node("a", cpu="1")
    if not let_go:
        world.mute = {"a"}
    world.add_pod("1g.5gb", cpu="800m")
    world.settle()
    world.begin()
    assert world.dispatcher.state.capacities.free("a")["cpu"] == 200
