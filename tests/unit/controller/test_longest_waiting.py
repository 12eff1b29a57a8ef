"""What is kept for the pod that has waited longest: which GPU or node, for how long, and who may use it."""

import pytest
from small_worlds import SIZES, instaslice
from world import World

from instaslice.controller.ledger import Ledger
from instaslice.placement import Demand, Grant, Plan, WaitingQueue, policies
from instaslice.placement.longest_waiting import LongestWaiting


def patience(nodes, held=(), seconds=300.0):
    """`nodes` are names with numbers of GPUs, `a/0` is the first of node a; `held` lists (gpu, profile, start)."""
    ledger = Ledger(policies.named("adaptive"))
    for name, count in nodes.items():
        ledger.update(instaslice(name=name, gpus=[f"{name}/{i}" for i in range(count)]), 0.0)
    for gpu, profile, start in held:
        ledger.fleet.take(Grant(gpu[0], gpu, profile, start, SIZES[profile]))
    return LongestWaiting(ledger.fleet, WaitingQueue(), seconds), ledger


def anywhere(_):
    return True


def fits(ledger, profile, *, only=None):
    return isinstance(ledger.placer.place(Demand((profile,), only and (lambda node: node == only))), Plan)


ONES = [("1g.5gb", start) for start in range(7)]


@pytest.mark.parametrize(
    "held, want, gpu",
    [
        pytest.param(
            [("a/0", "4g.20gb", 0), ("a/0", "3g.20gb", 4), ("a/1", "7g.40gb", 0)], "7g.40gb", "a/1", id="fewest slices"
        ),
        pytest.param(
            [("a/0", "3g.20gb", 0), ("a/1", "2g.10gb", 0)], "7g.40gb", "a/1", id="of as many slices the smaller ones"
        ),
        pytest.param(
            [*(("a/0", each, at) for each, at in ONES), ("a/1", "4g.20gb", 0), ("a/1", "3g.20gb", 4)],
            "3g.20gb",
            "a/1",
            id="only what is in the way counts",
        ),
        pytest.param([("a/0", "7g.40gb", 0), ("a/1", "7g.40gb", 0)], "1g.5gb", "a/0", id="the first of equal ones"),
    ],
)
def test_the_gpu_where_least_has_to_end_is_kept(held, want, gpu):
    made, _ = patience({"a": 2}, held)
    assert made.reserve("large", [want], anywhere, False, 0.0)
    assert made.reserved.gpus == (gpu,)


def test_a_sick_gpu_is_not_kept():
    made, ledger = patience({"a": 2}, [("a/1", "7g.40gb", 0)])
    ledger.fleet.close("a/0", "health", "Xid 79")
    assert made.reserve("large", ["7g.40gb"], anywhere, False, 0.0)
    assert made.reserved.gpus == ("a/1",)
    ledger.fleet.close("a/1", "health", "Xid 79")
    made.release()
    assert not made.reserve("large", ["7g.40gb"], anywhere, False, 0.0)
    assert made.reserved is None


def test_only_where_the_pod_could_go():
    made, _ = patience({"a": 1, "b": 1}, [("b/0", "7g.40gb", 0)])
    assert made.reserve("large", ["7g.40gb"], lambda node: node == "b", False, 0.0)
    assert (made.reserved.node, made.reserved.gpus) == ("b", ("b/0",))
    assert not made.reserve("large", ["7g.40gb"], lambda node: False, False, 0.0)
    assert not made.reserve("large", ["7g.80gb"], anywhere, False, 0.0), "no GPU has such a profile"


def test_what_is_kept_is_closed_to_all_others_with_the_reason_until_it_is_dropped():
    made, ledger = patience({"a": 1})
    made.reserve("large", ["7g.40gb"], anywhere, False, 100.0)
    assert made.reserved.until == 400.0
    assert not fits(ledger, "1g.5gb")
    assert ledger.closed("a") == {"a/0": {"reserved": "reserved for a pod that has waited longer than 300 s"}}
    for _ in range(2):
        made.release()
        assert made.reserved is None
        assert fits(ledger, "1g.5gb")
        assert not ledger.closed("a")


def test_another_choice_gives_up_the_one_before():
    made, ledger = patience({"a": 1, "b": 1})
    made.reserve("large", ["7g.40gb"], anywhere, False, 0.0)
    made.reserve("large", ["7g.40gb"], lambda node: node == "b", False, 0.0)
    assert fits(ledger, "1g.5gb", only="a")
    assert not fits(ledger, "1g.5gb", only="b")


@pytest.mark.parametrize(
    "wants, whole",
    [pytest.param(["1g.5gb"], True, id="for CPU"), pytest.param(["7g.40gb", "7g.40gb"], False, id="several slices")],
)
def test_a_whole_node_is_kept_where_fewest_slices_are_held(wants, whole):
    held = [("a/0", "1g.5gb", 0), ("a/1", "1g.5gb", 0), ("b/0", "7g.40gb", 0)]
    made, ledger = patience({"a": 2, "b": 2}, held)
    assert made.reserve("large", wants, anywhere, whole, 0.0)
    assert (made.reserved.node, made.reserved.gpus) == ("b", ("b/0", "b/1"))
    assert not fits(ledger, "1g.5gb", only="b")
    assert fits(ledger, "1g.5gb", only="a")


def test_of_nodes_that_hold_as_many_the_first_is_kept():
    made, _ = patience({"a": 1, "b": 1})
    assert made.reserve("large", ["1g.5gb"], anywhere, True, 0.0)
    assert made.reserved.node == "a"


def test_a_node_that_could_not_hold_all_slices_is_not_kept():
    made, ledger = patience({"a": 1, "b": 2}, [("b/0", "7g.40gb", 0), ("b/1", "7g.40gb", 0)])
    wants = ["7g.40gb", "7g.40gb"]
    assert made.reserve("large", wants, anywhere, False, 0.0)
    assert made.reserved.node == "b"
    made.release()
    assert not made.reserve("large", wants, lambda node: node == "a", False, 0.0)
    ledger.fleet.close("b/0", "health", "Xid 79")
    assert not made.reserve("large", wants, anywhere, False, 0.0), "a sick GPU holds nothing"


def test_the_pod_itself_may_use_what_is_kept_for_it():
    made, ledger = patience({"a": 1})
    made.reserve("large", ["7g.40gb"], anywhere, False, 0.0)
    assert not made.open_for("another", lambda: fits(ledger, "7g.40gb"))
    found = []
    assert not made.open_for("large", lambda: found.append(fits(ledger, "7g.40gb")))
    assert found == [True]
    assert not fits(ledger, "7g.40gb"), "it did not use it yet"
    assert made.open_for("large", lambda: True)
    assert made.reserved is None
    assert fits(ledger, "7g.40gb"), "what it holds is its own; more is not kept"


def test_a_node_that_goes_away_is_kept_no_longer():
    made, ledger = patience({"a": 1})
    made.reserve("large", ["7g.40gb"], anywhere, False, 0.0)
    made.open_for("large", lambda: ledger.remove("a") and False)
    assert made.reserved is None
    made, ledger = patience({"a": 1})
    made.reserve("large", ["7g.40gb"], anywhere, False, 0.0)
    ledger.remove("a")
    made.release()
    assert made.reserved is None


def test_a_gpu_that_goes_away_is_kept_no_longer():
    made, ledger = patience({"a": 2})
    made.reserve("large", ["1g.5gb"], anywhere, True, 0.0)
    made.open_for("large", lambda: ledger.update(instaslice(name="a", gpus=["a/0"]), 1.0) and False)
    assert made.reserved.gpus == ("a/0", "a/1")
    assert list(ledger.closed("a")) == ["a/0"]
    made.release()
    assert not ledger.closed("a")


def full(gpus=1, **limits):
    """A node full of small slices before which a large pod waits; their uids, and its."""
    world = World(**limits)
    world.add_node("a", gpus=gpus)
    small = [world.add_pod("1g.5gb") for _ in range(7 * gpus)]
    world.settle()
    assert len(world.running()) == len(small)
    return world, small, world.add_pod("7g.40gb")


def kept(world):
    found = world.dispatcher.longest_waiting.reserved
    return found and (found.uid, found.gpus)


def test_nothing_is_kept_before_its_patience_is_over():
    world, _, large = full(patience=300)
    world.wait(299)
    assert kept(world) is None
    world.wait(2)
    assert kept(world) == (large, ("a/0",))


def test_room_is_kept_somewhere_else_where_it_did_not_come_free_in_time():
    """What is in the way there may never end."""
    world, _, large = full(gpus=2, patience=300)
    world.wait(301)
    assert kept(world) == (large, ("a/0",))
    on_second = [each.pod.uid for each in world.spec("a").allocations if each.gpu == "a/1"]
    for uid in on_second[:3]:
        world.end_pod(uid)
        world.settle()
    world.wait(298)
    assert kept(world) == (large, ("a/0",))
    world.wait(3)
    assert kept(world) == (large, ("a/1",))
    for uid in on_second[3:]:
        world.end_pod(uid)
    world.settle()
    assert large in world.running()
    assert kept(world) is None


def test_what_was_kept_for_a_pod_that_is_gone_is_open_again():
    world, small, large = full(patience=300)
    world.wait(301)
    world.end_pod(small[0])
    again = world.add_pod("1g.5gb")
    world.settle()
    assert again not in world.running()
    world.delete_pod(large)
    world.settle()
    assert again in world.running()
    assert kept(world) is None


def test_a_pod_that_lacks_only_cpu_has_a_whole_node_kept():
    world = World(patience=300)
    world.add_node("a", gpus=2, cpu="2")
    small = [world.add_pod("1g.5gb", cpu="500m") for _ in range(4)]
    world.settle()
    large = world.add_pod("1g.5gb", cpu="2")
    world.settle()
    world.wait(301)
    assert kept(world) == (large, ("a/0", "a/1"))
    for uid in small:
        world.end_pod(uid)
        world.add_pod("1g.5gb", cpu="500m")
        world.settle()
    assert large in world.running()


def test_the_next_in_line_has_room_kept_when_its_own_time_has_come():
    world, _, large = full(patience=300)
    world.wait(100)
    later = world.add_pod("7g.40gb", node_selector={"kubernetes.io/hostname": "a"})
    world.wait(210)
    assert kept(world) == (large, ("a/0",))
    world.delete_pod(large)
    world.settle()
    assert kept(world) is None, "it has not waited long enough itself"
    world.wait(100)
    assert kept(world) == (later, ("a/0",))


def test_what_no_node_could_hold_keeps_nothing_and_is_looked_at_again():
    world, _, large = full(patience=300)
    world.cordon("a")
    world.wait(301)
    assert kept(world) is None
    assert world.dispatcher.due - world.now == pytest.approx(10.0)
    world.cordon("a", False)
    world.wait(10)
    assert kept(world) == (large, ("a/0",))


def test_a_pod_that_is_narrowed_keeps_the_time_that_it_has_waited():
    world, _, large = full(patience=300)
    world.wait(200)
    world.change_pod(large, node_selector={"kubernetes.io/hostname": "a"})
    world.wait(101)
    assert kept(world) == (large, ("a/0",))


def test_the_next_that_has_waited_too_long_is_chosen_as_soon_as_one_is_placed():
    world, _, large = full(gpus=2, patience=300)
    next_large = world.add_pod("7g.40gb", node_selector={"kubernetes.io/hostname": "a"})
    world.wait(301)
    assert kept(world) == (large, ("a/0",))
    for each in [each.pod.uid for each in world.spec("a").allocations if each.gpu == "a/0"]:
        world.end_pod(each)
    world.settle()
    assert large in world.running()
    assert world.dispatcher.longest_waiting.is_for(next_large)


def test_without_patience_the_controller_is_not_busy_with_choosing_again():
    world, _, large = full(patience=0)
    world.wait(1)
    assert kept(world) == (large, ("a/0",))
    assert world.dispatcher.longest_waiting.due - world.now >= 9.0
