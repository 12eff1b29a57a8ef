"""A fleet whose GPUs come and go for years."""

from random import Random

import pytest
from fleets import A100, fleet, node_of, place, spots
from hypothesis import given, settings
from hypothesis import strategies as st

from instaslice.geometry import models
from instaslice.placement import Demand, Fleet, FleetError, GpuId, NodeName, Placer, Plan, Share, policies

H200 = models.named("H200")


def size(made):
    """How many entries its lists have: what a long life costs."""
    return {len(made.names), len(made.node_of), len(made.pool_of), len(made.state_of)}


def kinds(made):
    return [pool.model.name[:4] for pool in made.pools], [pool.memory_mib for pool in made.shared]


def test_a_fleet_whose_gpus_come_and_go_is_as_large_as_it_ever_was_at_once():
    made = fleet("a0", "b0")
    for turn in range(1000):
        made.add_gpu(GpuId(f"c{turn}"), NodeName("c"), A100)
        made.remove_gpu(GpuId(f"c{turn}"))
    assert size(made) == {3}
    assert len(made) == 2
    assert made.nodes.keys() == {"a", "b"}


def test_the_number_of_a_gpu_that_is_gone_goes_to_the_next_and_the_lowest_first():
    made = fleet("a0", "b0", "b1", "c0")
    for gone in ["c0", "a0", "b0"]:
        made.remove_gpu(GpuId(gone))
    for new in ["d0", "b2", "e0", "f0"]:
        made.add_gpu(GpuId(new), node_of(new), A100)
    assert {gpu: made.number(gpu) for gpu in ["d0", "b2", "b1", "e0", "f0"]} == {
        "d0": 0, "b2": 1, "b1": 2, "e0": 3, "f0": 4,
    }  # fmt: skip
    assert made.nodes["b"].gpus == [1, 2]


def test_a_node_that_joins_in_the_place_of_another_is_empty_and_the_first():
    made = fleet("a0", "b0", held=[("a0", "7g.40gb", 0)])
    made.remove_gpu(GpuId("a0"))
    made.add_gpu(GpuId("c0"), NodeName("c"), A100)
    assert made.held(GpuId("c0")) == ()
    assert made.nodes["c"].free == 8
    assert spots(place(made, "1g.5gb", policy="first-fit")) == [("c0", 0)]


@pytest.mark.parametrize("closed", [False, True])
def test_a_kind_of_gpu_goes_with_its_last(closed):
    made = fleet("a0")
    made.add_gpu(GpuId("h0"), NodeName("h"), H200)
    made.add_gpu(GpuId("h1"), NodeName("h"), H200)
    made.add_shared_gpu(GpuId("s0"), NodeName("s"), 1000)
    if closed:
        for gpu in ["h0", "h1", "s0"]:
            made.close(GpuId(gpu))
    made.remove_gpu(GpuId("h0"))
    assert kinds(made) == (["A100", "H200"], [1000])
    made.remove_gpu(GpuId("h1"))
    made.remove_gpu(GpuId("s0"))
    assert kinds(made) == (["A100"], [])
    assert len(made._gpus_in) == 1, "nor is it counted any more"
    assert "does not exist on any node" in str(place(made, "1g.18gb"))
    assert "no GPU is shared by memory" in str(place(made, Share(5)))


def test_a_name_that_is_taken_changes_nothing():
    made = fleet("a0", "b0")
    made.remove_gpu(GpuId("a0"))
    with pytest.raises(FleetError, match="has a GPU b0 already"):
        made.add_gpu(GpuId("b0"), NodeName("c"), H200)
    with pytest.raises(FleetError, match="has a GPU b0 already"):
        made.add_shared_gpu(GpuId("b0"), NodeName("c"), 1000)
    assert made.nodes.keys() == {"b"}
    assert kinds(made) == (["A100"], [])
    made.add_gpu(GpuId("a0"), NodeName("a"), A100)
    assert made.number(GpuId("a0")) == 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "share", "place", "close", "open"]), st.integers(0, 9)), max_size=60
)
BY_NUMBER = [name for name in policies.names() if name not in ("das", "dra")]  # those choose a node first


@pytest.mark.parametrize("name", BY_NUMBER)
@settings(max_examples=40)
@given(steps=STEPS)
def test_a_fleet_that_changed_decides_as_one_made_of_what_is_left(name, steps):
    """Numbers that are used again stand for nothing of those that had them before."""
    made, held = Fleet(), {}
    for verb, n in steps:
        gpu, node = GpuId(f"g{n}"), NodeName(f"n{n % 3}")
        if verb in ("add", "share") and gpu not in held:
            held[gpu] = []
            add(made, gpu, node, (A100 if n % 2 else H200) if verb == "add" else 1000)
        elif verb == "place":
            for want in ("1g.5gb", "2g.35gb", Share(300)):
                plan = place(made, want, policy="spread")
                if isinstance(plan, Plan):
                    made.take(plan.grants[0])
                    held[plan.grants[0].gpu].append(plan.grants[0])
        elif gpu in held and verb == "remove":
            made.remove_gpu(gpu)
            del held[gpu]
        elif gpu in held and verb in ("close", "open"):
            getattr(made, verb)(gpu)
    twin = Fleet()
    for gpu in sorted(held, key=made.number):
        number = made.number(gpu)
        add(twin, gpu, made.node_of[number].name, getattr(made.pool_of[number], "model", 1000))
        for grant in held[gpu]:
            twin.take(grant)
        if not made.is_open(number):
            twin.close(gpu)
    for wants in [("1g.5gb",), ("3g.20gb",), ("1g.18gb",), (Share(400),), ("1g.5gb", "2g.10gb")]:
        assert decided(made, name, wants) == decided(twin, name, wants)
    assert {node.name: node.free for node in made.nodes.values()} == {n.name: n.free for n in twin.nodes.values()}


def add(made, gpu, node, what):
    """A GPU of a model, or one that is shared, of so many MiB."""
    if isinstance(what, int):
        made.add_shared_gpu(gpu, node, what)
    else:
        made.add_gpu(gpu, node, what)


def decided(made, name, wants):
    """Where a pod of these would go, or why nowhere."""
    answer = Placer(made, policies.named(name, random=Random(0))).place(Demand(wants))
    return spots(answer) if isinstance(answer, Plan) else str(answer)
