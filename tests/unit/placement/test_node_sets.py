"""Sets of nodes that follow what changes, without asking again about what did not."""

from random import Random

import pytest
from fleets import A100, fleet, grant, placer
from hypothesis import given
from hypothesis import strategies as st

from instaslice.placement import Demand, FleetError, GpuId, NodeIndex, NodeName, NodeSet, Plan


class Asked:
    """Nodes for which something holds, and how often that was asked."""

    def __init__(self, *true):
        self.true = set(true)
        self.asked = []

    def __call__(self, name):
        self.asked.append(name)
        return name in self.true


@pytest.fixture
def index():
    made = NodeIndex()
    for name in "abc":
        made.add(NodeName(name))
    return made


def names_in(index, mask):
    return {name for name in "abcdefgh" if (bit := index.bit(name)) is not None and mask >> bit & 1}


def test_a_node_is_asked_about_once(index):
    holds = Asked("a", "c")
    found = NodeSet(index.changes(), holds)
    assert [names_in(index, found.among(index.all)) for _ in range(3)] == [{"a", "c"}] * 3
    assert holds.asked == ["a", "b", "c"]


def test_only_what_changed_is_asked_about_again(index):
    changes, holds = index.changes(), Asked("a")
    found = NodeSet(changes, holds)
    found.among(index.all)
    holds.asked.clear()
    holds.true = {"b", "c"}
    changes.add("b")
    assert names_in(index, found.among(index.all)) == {"a", "b"}, "nobody told of a and c"
    assert holds.asked == ["b"]


def test_only_the_nodes_in_question_are_asked_about(index):
    holds = Asked("a", "b")
    found = NodeSet(index.changes(), holds)
    assert names_in(index, found.among(1 << index.bit("b"))) == {"b"}
    assert "a" in found
    assert "d" not in found
    assert holds.asked == ["b", "a"]


def test_what_was_known_of_a_node_is_not_believed_of_the_next_that_has_its_bit(index):
    holds = Asked("b")
    found = NodeSet(index.changes(), holds)
    found.among(index.all)
    bit = index.bit("b")
    index.remove("b")
    index.remove("b")
    index.add("d")
    assert index.bit("d") == bit
    assert names_in(index, found.among(index.all)) == set()


def test_who_has_not_read_for_long_asks_about_every_node_again(index):
    changes, holds = index.changes(), Asked("a")
    found = NodeSet(changes, holds)
    found.among(index.all)
    holds.true = {"b"}
    for name in ["a", *["b"] * 5000]:
        changes.add(name)
    assert names_in(index, found.among(index.all)) == {"b"}


@given(st.integers(0, 2**32))
def test_which_nodes_have_room_is_what_a_placer_finds(seed):
    rng = Random(seed)
    made = fleet(*(f"{node}{gpu}" for node in "abcd" for gpu in range(2)))
    door = placer(made)
    demands = [("1g.5gb",), ("7g.40gb",), ("3g.20gb", "3g.20gb"), ("4g.20gb", "2g.10gb", "1g.5gb"), ("9g.9gb",)]
    sets = [door.fitting_nodes(wants) for wants in demands]
    held = []
    for _ in range(30):
        gpu = GpuId(f"{rng.choice('abcd')}{rng.randrange(2)}")
        match rng.randrange(4):
            case 0 if held:
                made.release(held.pop(rng.randrange(len(held))))
            case 1:
                (made.close if made.is_open(made.number(gpu)) else made.open)(gpu)
            case _:
                legal = [(p, start) for p in A100.profiles for start in p.starts]
                profile, start = rng.choice(legal)
                try:
                    made.take(grant(gpu, profile.name, start))
                    held.append(grant(gpu, profile.name, start))
                except FleetError:
                    continue
        for wants, found in zip(demands, sets, strict=True):
            for node in "abcd":
                alone = door.place(Demand(wants, lambda name, node=node: name == node))
                assert (node in found) is isinstance(alone, Plan), (wants, node)


def test_pods_that_ask_for_the_same_share_what_is_known():
    door = placer(fleet("a0"))
    kept = door.fitting_nodes(("1g.5gb", "3g.20gb"))
    assert door.fitting_nodes(("3g.20gb", "1g.5gb")) is kept
