"""Which profiles a slice may have that is asked for by memory."""

import re
from itertools import product
from math import prod
from pathlib import Path

import pytest
from fleets import A100
from hypothesis import given, settings
from hypothesis import strategies as st

from instaslice.geometry import MemoryAsk, ProfileName, models
from instaslice.placement import Fleet, GpuId, NodeName, UsableModels, choices, could_hold
from instaslice.placement.longest_waiting import RESERVED
from instaslice.placement.memory_choices import MOST_CHOICES, MOST_TRIED

A30, H200 = models.named("A30"), models.named("H200")
DOCS = Path(__file__).parents[3] / "docs" / "memory.md"


def nodes(*gpus_of_each):
    """Kinds of nodes, each by the models of its GPUs."""
    return frozenset(frozenset((model, gpus.count(model)) for model in gpus) for gpus in gpus_of_each)


def documented():
    row = re.compile(r"^\| (?P<models>A100[^|]+) \| (?P<gb>\d+) \| (?P<profile>[^|]+) \|$", re.MULTILINE)
    return [
        (found["models"].split(", "), int(found["gb"]), found["profile"]) for found in row.finditer(DOCS.read_text())
    ]


@pytest.mark.parametrize("listed, gb, profile", documented())
def test_the_table_of_the_page_is_true(listed, gb, profile):
    found = choices((MemoryAsk(gb),), nodes(*([models.named(name)] for name in listed)), tight=True)
    assert found == ((profile,),)


def test_the_page_has_a_table():
    assert len(documented()) >= 9


def by_hand(asked, kinds):
    """All combinations of all profiles, tried one by one, and whether they are few enough to be looked at."""
    found, few = {}, True
    for models_of in kinds:
        gpus = [model for model, count in models_of for _ in range(count)]
        names = {profile.name for gpu in gpus for profile in gpu.profiles}
        options = [[each] if isinstance(each, str) else [n for n in names if enough(each, n)] for each in asked]
        few &= prod(map(len, options)) <= MOST_TRIED // len(asked)
        for combination in product(*options):
            if could_hold(gpus, combination):
                found[combination] = cost(asked, combination)
    return found, few


def enough(ask, name):
    profile = ProfileName.parse(name)
    return profile.gb >= ask.gb and profile.compute >= ask.compute and not profile.extra


def cost(asked, combination):
    chosen = [
        (ProfileName.parse(n), each) for n, each in zip(combination, asked, strict=True) if not isinstance(each, str)
    ]
    return sum(p.gb - each.gb for p, each in chosen), sum(p.compute for p, _ in chosen)


ASKS = st.builds(MemoryAsk, st.integers(1, 45), st.integers(0, 4))
KINDS = st.lists(st.lists(st.sampled_from([A30, A100]), min_size=1, max_size=2), min_size=1, max_size=2)


@settings(max_examples=100, deadline=None)
@given(st.lists(ASKS | st.sampled_from(["1g.5gb", "2g.12gb"]), min_size=1, max_size=3), KINDS)
def test_the_choices_are_those_of_all_combinations(asked, kinds):
    asked, kinds = tuple(asked), nodes(*kinds)
    right, few = by_hand(asked, kinds)
    tight, every = choices(asked, kinds, tight=True), choices(asked, kinds, tight=False)
    assert all(each in right for each in every), "each can be had, and is enough"
    assert [right[each] for each in every] == sorted(right[each] for each in every)
    assert every[:1] == tight
    if few:
        assert [right[each] for each in tight] == ([min(right.values())] if right else [])
    if few and len(right) <= MOST_CHOICES:
        # Of equal asks the order says nothing.
        assert {cost(asked, each) for each in every} == set(right.values())


def test_no_choice_has_what_is_asked_for_by_name_alone():
    every = {name for (name,) in choices((MemoryAsk(1),), nodes([H200]), tight=False)}
    assert every == {"1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"}


def test_many_asks_cost_no_more_than_a_bound():
    asked = tuple(MemoryAsk(gb) for gb in range(1, 8))
    assert len(choices(asked, nodes([H200] * 8), tight=False)) == MOST_CHOICES


# Which nodes have which GPUs -----------------------------------------------------------------------------------------


def usable(made, found):
    def names(mask):
        return sorted(made.index.name(bit) for bit in range(8) if mask >> bit & 1)

    return {tuple(sorted((model.name, count) for model, count in kind)): names(mask) for kind, mask in found.nodes()}


def test_nodes_are_grouped_by_the_gpus_that_can_be_used():
    made = Fleet()
    found = UsableModels(made)
    assert usable(made, found) == {}
    for gpu, node, model in [("a0", "a", A100), ("b0", "b", A100), ("c0", "c", A100), ("c1", "c", A30)]:
        made.add_gpu(GpuId(gpu), NodeName(node), model)
    one, mixed = (("A100-40GB", 1),), (("A100-40GB", 1), ("A30", 1))
    assert usable(made, found) == {one: ["a", "b"], mixed: ["c"]}
    made.close(GpuId("c1"), "health", "lost")
    made.close(GpuId("b0"), RESERVED, "for another pod")
    assert usable(made, found) == {one: ["a", "b", "c"]}
    made.close(GpuId("a0"), "health", "lost")
    made.open(GpuId("c1"), "health")
    assert usable(made, found) == {one: ["b"], mixed: ["c"]}
    made.remove_gpu(GpuId("b0"))
    made.add_gpu(GpuId("d0"), NodeName("d"), A30)  # with the bit that b had
    assert usable(made, found) == {mixed: ["c"], (("A30", 1),): ["d"]}
    made.open(GpuId("a0"), "health")
    made.remove_gpu(GpuId("c0"))
    assert usable(made, found) == {one: ["a"], (("A30", 1),): ["c", "d"]}


def test_what_happened_while_nobody_asked_counts_too():
    made = Fleet()
    found = UsableModels(made)
    for number in range(5):
        made.add_gpu(GpuId(f"{number}"), NodeName(f"n{number}"), A100)
    assert len(usable(made, found)[("A100-40GB", 1),]) == 5
    for _ in range(5000):
        made.close(GpuId("3"), "health", "lost")
        made.open(GpuId("3"), "health")
    made.close(GpuId("3"), "health", "lost")
    assert usable(made, found) == {(("A100-40GB", 1),): ["n0", "n1", "n2", "n4"]}
