"""A pod that the scheduler does not bind where we sent it: who keeps its slices, and where the next one goes."""

import msgspec
import pytest
from world import World, why

from instaslice.kube.core import Condition, PodStatus


@pytest.fixture
def unbinding(world, monkeypatch):
    """Nobody binds pods to node a."""
    bindable = World._bindable
    monkeypatch.setattr(
        World, "_bindable", lambda self, pod: bindable(self, pod) if self.on(pod.metadata.uid) != "a" else None
    )
    return world


def refuses(world, uid):
    said = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="somebody's plugin")
    world._set(msgspec.structs.replace(world.pods[uid], status=PodStatus(phase="Pending", conditions=[said])))


@pytest.mark.parametrize("owner", ["", "Job/train"])
def test_a_pod_that_nobody_replaces_keeps_its_slices_while_nobody_needs_them(unbinding, owner):
    uid = unbinding.add_pod("1g.5gb", owner=owner)
    unbinding.settle()
    unbinding.wait(2000)
    assert unbinding.pods[uid].status.phase == "Pending"
    assert len(unbinding.spec("a").allocations) == 1
    assert why(unbinding, uid).reason == "NotBound"
    other = unbinding.add_pod("2g.10gb", node_selector={"zone": "b"})
    unbinding.wait(20)
    assert why(unbinding, other).reason == "Waiting"
    assert unbinding.pods[uid].status.phase == "Pending", "that one does not wait for its slices"


@pytest.mark.parametrize("cpu", [pytest.param("1", id="by its GPU"), pytest.param("64", id="by its CPU")])
def test_and_gives_them_to_the_first_that_needs_them(unbinding, cpu):
    uid = unbinding.add_pod("7g.40gb" if cpu == "1" else "1g.5gb", owner="Job/train")
    unbinding.settle()
    unbinding.wait(301)
    assert not unbinding.pods[uid].ended
    unbinding.add_pod("3g.20gb", cpu=cpu)
    unbinding.wait(11)
    assert unbinding.pods[uid].status.phase == "Failed"
    assert "not bound to node a within 300 s" in unbinding.pods[uid].status.message
    unbinding.settle()
    assert [a.profile for a in unbinding.spec("a").allocations] == ["3g.20gb"]


def test_a_pod_that_is_bound_late_is_told_that_all_is_well(world, monkeypatch):
    monkeypatch.setattr(World, "_bindable", lambda *_: False)
    uid = world.add_pod("1g.5gb")
    world.settle()
    world.wait(301)
    world.told_pod(uid, "NotBound")
    monkeypatch.undo()
    world.told.clear()
    world.settle()
    assert uid in world.told
    assert why(world, uid).ready


def test_the_next_pod_of_an_owner_goes_elsewhere_and_comes_back_in_time(unbinding):
    first = unbinding.add_pod("1g.5gb", owner="ReplicaSet/web")
    unbinding.settle()
    refuses(unbinding, first)
    unbinding.wait(301)
    assert unbinding.pods[first].status.phase == "Failed"
    second = unbinding.add_pod("1g.5gb", owner="ReplicaSet/web")
    unbinding.settle()
    assert unbinding.on(second) is None
    assert "a: the scheduler did not bind a pod of the same owner there a while ago" in why(unbinding, second).message
    assert unbinding.on(unbinding.add_pod("1g.5gb", owner="ReplicaSet/other")) is None
    unbinding.settle()
    assert "ReplicaSet/other" in {
        unbinding.pods[a.pod.uid].metadata.owner_references[0].uid for a in unbinding.spec("a").allocations
    }
    unbinding.wait(901)
    assert unbinding.on(second) == "a"


def test_it_goes_to_another_node_at_once(unbinding):
    first = unbinding.add_pod("1g.5gb", owner="ReplicaSet/web")
    unbinding.settle()
    refuses(unbinding, first)
    unbinding.wait(301)
    unbinding.add_node("b")
    second = unbinding.add_pod("1g.5gb", owner="ReplicaSet/web")
    unbinding.settle()
    assert unbinding.running() == [second]
    assert unbinding.on(second) == "b"


def test_a_node_is_left_alone_longer_each_time(unbinding):
    waits = []
    for _ in range(3):
        uid = unbinding.add_pod("1g.5gb", owner="ReplicaSet/web")
        unbinding.settle()
        while unbinding.on(uid) is None:
            unbinding.wait(100)
        waits.append(unbinding.now)
        refuses(unbinding, uid)
        unbinding.wait(301)
        assert unbinding.pods[uid].ended
    assert waits[1] - waits[0] < 1400 < waits[2] - waits[1]


def test_where_no_scheduler_looked_the_node_is_not_to_blame(unbinding):
    first = unbinding.add_pod("1g.5gb", owner="ReplicaSet/web")
    unbinding.settle()
    unbinding.wait(301)
    assert unbinding.pods[first].ended
    second = unbinding.add_pod("1g.5gb", owner="ReplicaSet/web")
    unbinding.settle()
    assert unbinding.on(second) == "a"
