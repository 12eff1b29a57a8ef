"""What is left on a node, whatever order things come in."""

import pytest
from fitting import node
from hypothesis import given
from hypothesis import strategies as st

from instaslice.controller.node_capacity import NodeCapacities

HAS = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "3", "example.com/fpga": "1"}
GI = 2**30


def rooms(**charges):
    """One node that has HAS, charged as said."""
    made = NodeCapacities()
    made.set_node(node("gpu-0", allocatable=HAS))
    for uid, amounts in charges.items():
        made.charge(uid, "gpu-0", amounts)
    return made


@pytest.mark.parametrize(
    "charged, wanted, words",
    [
        pytest.param({}, {"cpu": 2000, "pods": 1}, None, id="exactly all CPU"),
        pytest.param({}, {"cpu": 2001, "pods": 1}, "cpu: 2001m wanted, 2 free", id="one milli-core too many"),
        pytest.param({"cpu": 500}, {"cpu": 1500}, None, id="exactly the rest"),
        pytest.param({"cpu": 501}, {"cpu": 1500}, "cpu: 1500m wanted, 1499m free", id="one milli-core less is left"),
        pytest.param({"memory": 1}, {"memory": 4 * GI}, "memory: 4Gi wanted, 3.9Gi free", id="one byte less is left"),
        pytest.param(
            {"pods": 3}, {"cpu": 3000, "pods": 1}, "cpu: 3 wanted, 2 free; pods: 1 wanted, 0 free", id="all is said"
        ),
        pytest.param({}, {"hugepages-2Mi": 1}, "hugepages-2Mi: 1 wanted, 0 free", id="what the node does not have"),
        pytest.param({"cpu": 9000}, {"cpu": 1}, "cpu: 1m wanted, 0 free", id="overcommitted"),
        pytest.param({"cpu": 9000}, {"cpu": 0, "pods": 1}, None, id="overcommitted in what is not asked for"),
    ],
)
def test_what_fits(charged, wanted, words):
    made = rooms(other=charged)
    assert made.short("gpu-0", wanted) == words
    assert made.fits("gpu-0", wanted) == (words is None)


def test_an_unknown_node_holds_nothing():
    assert not NodeCapacities().fits("gpu-0", {})
    assert NodeCapacities().short("gpu-0", {}) == "node is not there"
    assert NodeCapacities().free("gpu-0") == {}


def test_a_charge_that_came_before_its_node_counts():
    made = NodeCapacities()
    made.charge("a", "gpu-0", {"cpu": 1500})
    made.set_node(node("gpu-0", allocatable=HAS))
    assert made.free("gpu-0")["cpu"] == 500


def test_what_a_node_does_not_have_may_be_charged_to_it():
    made = rooms(a={"example.com/tpu": 2})
    assert made.free("gpu-0")["example.com/tpu"] == -2
    made.discharge("a")
    assert made.free("gpu-0")["example.com/tpu"] == 0


def test_a_charge_outlives_its_node():
    made = rooms(a={"cpu": 1500})
    made.remove_node("gpu-0")
    assert not made.fits("gpu-0", {"cpu": 1})
    made.set_node(node("gpu-0", allocatable=HAS))
    assert made.free("gpu-0")["cpu"] == 500


def test_a_pod_is_charged_once_and_to_one_node():
    made = rooms()
    made.set_node(node("gpu-1", allocatable=HAS))
    for _ in range(2):
        made.charge("a", "gpu-0", {"cpu": 1500})
    assert made.free("gpu-0")["cpu"] == 500
    made.charge("a", "gpu-1", {"cpu": 1000})
    assert (made.free("gpu-0")["cpu"], made.free("gpu-1")["cpu"]) == (2000, 1000)
    for _ in range(2):
        made.discharge("a")
    assert made.free("gpu-1")["cpu"] == 2000


def test_a_node_that_grows_and_shrinks():
    made = rooms(a={"cpu": 1500})
    made.set_node(node("gpu-0", allocatable={**HAS, "cpu": "4"}))
    assert made.free("gpu-0")["cpu"] == 2500
    made.set_node(node("gpu-0", allocatable={"memory": "4Gi"}))
    assert made.free("gpu-0")["cpu"] == -1500


def test_what_an_empty_node_could_hold():
    made = rooms(a={"cpu": 2000})
    assert made.could_hold("gpu-0", {"cpu": 2000, "pods": 1})
    assert not made.could_hold("gpu-0", {"cpu": 2001})
    assert not made.could_hold("gpu-9", {})


NODES = st.sampled_from(["gpu-0", "gpu-1"])
UIDS = st.sampled_from("abcd")
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "hugepages-2Mi"]), st.integers(0, 3000))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("charge"), UIDS, NODES, AMOUNTS),
        st.tuples(st.just("discharge"), UIDS),
        st.tuples(st.just("set"), NODES, st.integers(0, 4)),
        st.tuples(st.just("remove"), NODES),
    )
)


@given(STEPS)
def test_any_order_equals_a_recount(steps):
    made, charges, present = NodeCapacities(), {}, {}
    for step in steps:
        match step:
            case "charge", uid, name, amounts:
                made.charge(uid, name, amounts)
                charges[uid] = name, amounts
            case "discharge", uid:
                made.discharge(uid)
                charges.pop(uid, None)
            case "set", name, cpu:
                made.set_node(node(name, allocatable={"cpu": str(cpu), "pods": "2"}))
                present[name] = {"cpu": cpu * 1000, "pods": 2}
            case "remove", name:
                made.remove_node(name)
                present.pop(name, None)
    for name in ("gpu-0", "gpu-1"):
        left = dict(present.get(name, {}))
        for place, amounts in charges.values():
            for resource, amount in amounts.items():
                left[resource] = left.get(resource, 0) - (amount if place == name else 0)
        free = made.free(name)
        assert {key: value for key, value in free.items() if value} == (
            {key: value for key, value in left.items() if value} if name in present else {}
        )
        for resource in ("cpu", "pods", "memory"):
            for wanted in (1, max(1, left.get(resource, 0)), max(1, left.get(resource, 0) + 1)):
                fits = name in present and wanted <= left.get(resource, 0)
                assert made.fits(name, {resource: wanted}) == fits
                assert (made.short(name, {resource: wanted}) is None) == fits
