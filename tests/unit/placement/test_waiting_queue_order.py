"""Who is served next: by priority, then by arrival, whatever keys the pods are of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instaslice.placement import WaitingQueue


def queue(*pods):
    """Of (uid, key, priority, since)."""
    made = WaitingQueue()
    for pod in pods:
        assert made.add(*pod)
    return made


def served(made, rooms):
    """The order in which they are asked, where a key finds room so many times, and whom it was found for."""
    asked, found = [], []
    keys = {}

    def place(uid):
        asked.append(uid)
        key = keys.setdefault(uid[0], uid[0])
        if rooms.get(key, 0) > 0:
            rooms[key] -= 1
            found.append(uid)
            return True
        return False

    made.serve(place)
    return asked, found


def test_two_keys_are_served_in_the_order_of_arrival_and_not_key_by_key():
    made = queue(("a1", "a", 0, 1.0), ("a3", "a", 0, 3.0), ("b2", "b", 0, 2.0), ("b4", "b", 0, 4.0))
    assert served(made, {"a": 9, "b": 9}) == (["a1", "b2", "a3", "b4"], ["a1", "b2", "a3", "b4"])
    assert len(made) == 0


def test_where_the_first_of_a_key_finds_no_room_the_others_of_it_are_not_asked():
    made = queue(("a1", "a", 0, 1.0), ("a2", "a", 0, 2.0), ("b3", "b", 0, 3.0), ("b4", "b", 0, 4.0))
    assert served(made, {"b": 1}) == (["a1", "b3", "b4"], ["b3"])
    assert list(made) == ["a1", "a2", "b4"]


def test_a_higher_priority_goes_first_within_a_key_and_between_keys():
    made = queue(("a1", "a", 0, 1.0), ("a2", "a", 5, 2.0), ("b3", "b", 9, 3.0))
    assert list(made) == ["b3", "a2", "a1"]
    assert [place.uid for place in made.heads()] == ["b3", "a2"]
    assert served(made, {"a": 9, "b": 9})[0] == ["b3", "a2", "a1"]


def test_of_two_that_came_at_once_the_first_to_be_queued_goes_first():
    made = queue(("z", "z", 0, 1.0), ("a", "a", 0, 1.0))
    assert list(made) == ["z", "a"]
    assert served(made, {"a": 1, "z": 1})[0] == ["z", "a"]


def test_how_many_are_ahead():
    made = queue(("a1", "a", 0, 1.0), ("b2", "b", 0, 2.0), ("a3", "a", 1, 3.0))
    assert [len(made.ahead(uid)) for uid in ("a3", "a1", "b2")] == [0, 1, 2]


def test_nobody_is_queued_twice_and_who_left_may_come_again():
    made = queue(("a", "a", 0, 1.0))
    assert not made.add("a", "b", 9, 0.0)
    assert list(made) == ["a"]
    assert made.remove("a")
    assert not made.remove("a")
    assert "a" not in made
    assert made.heads() == []
    assert made.add("a", "b", 0, 1.0)


def test_one_that_found_room_may_be_queued_again_before_the_pass_is_over():
    made = queue(("a1", "a", 0, 1.0), ("b2", "b", 0, 2.0))
    asked = []

    def place(uid):
        asked.append(uid)
        return True

    made.serve(place)
    assert (asked, len(made)) == (["a1", "b2"], 0)


ARRIVALS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 5)), max_size=30)


@given(ARRIVALS, st.sets(st.integers(0, 29)))
def test_with_room_for_all_everybody_is_served_in_order_whoever_left_before(arrivals, leaving):
    made, left = WaitingQueue(), []
    for number, (key, priority, since) in enumerate(arrivals):
        made.add(f"{key}{number}", key, priority, float(since))
        left.append((-priority, since, number, f"{key}{number}"))
    for number in sorted(leaving, reverse=True):
        if number < len(left):
            assert made.remove(left.pop(number)[3])
    in_order = [uid for *_, uid in sorted(left)]
    assert list(made) == in_order
    assert [len(made.ahead(uid)) for uid in in_order] == list(range(len(in_order)))
    asked = []
    made.serve(lambda uid: asked.append(uid) or True)
    assert asked == in_order
    assert len(made) == 0


@pytest.mark.parametrize("keys", ["ab", "ba"])
def test_a_key_without_room_holds_up_no_other(keys):
    first, second = keys
    made = queue((f"{first}1", first, 0, 1.0), (f"{second}2", second, 0, 2.0))
    assert served(made, {second: 1})[1] == [f"{second}2"]
