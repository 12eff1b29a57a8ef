"""Who is asked for in a pass, in which order, and how a pass is interrupted and continued."""

import pytest

from instaslice.placement.waiting_queue import KEYS_PER_ROUND, WaitingQueue


class Room:
    """Takes so many pods of each key, by the first letter of their uid, and notes who was asked for."""

    def __init__(self, **room):
        self.room = room
        self.asked = []

    def __call__(self, uid):
        self.asked.append(uid)
        left = self.room.get(uid[0], 0)
        self.room[uid[0]] = max(0, left - 1)
        return left > 0


def queue(*uids, namespaces=None, priorities=None):
    """Pods in the order they came, each of the key of its first letter."""
    made = WaitingQueue()
    for since, uid in enumerate(uids):
        made.add(uid, uid[0], (priorities or {}).get(uid, 0), since, (namespaces or {}).get(uid, "team"))
    return made


@pytest.mark.parametrize(
    "uids, room, asked",
    [
        pytest.param("a1 a2 b1", {"a": 9, "b": 9}, "a1 a2 b1", id="one after another"),
        pytest.param("a1 b1 a2 b2", {"a": 9, "b": 9}, "a1 b1 a2 b2", id="two keys, by arrival and not by key"),
        pytest.param("a1 a2 a3 b1", {"b": 1}, "a1 b1", id="where the first of a key is refused, none is asked"),
        pytest.param("a1 a2 b1 a3", {"a": 1, "b": 1}, "a1 a2 b1", id="a key is asked until it is refused"),
    ],
)
def test_a_pass_asks_in_order_of_arrival_and_once_for_each_key_in_vain(uids, room, asked):
    made, rooms = queue(*uids.split()), Room(**room)
    assert made.serve(rooms)
    assert rooms.asked == asked.split()


def test_priority_comes_before_arrival():
    rooms = Room(a=9, b=9)
    queue("a1", "b1", "a2", priorities={"a2": 5, "b1": 1}).serve(rooms)
    assert rooms.asked == ["a2", "b1", "a1"]


def test_who_was_refused_is_not_asked_again_before_room_may_have_come():
    made, rooms = queue("a1", "b1"), Room()
    made.serve(rooms)
    made.add("c1", "c", 0, 9.0, "team")
    made.serve(rooms)
    assert rooms.asked == ["a1", "b1", "c1"]
    assert made.was_refused("a1")
    made.retry_all()
    assert not made.was_refused("a1")
    made.serve(rooms)
    assert rooms.asked[3:] == ["a1", "b1", "c1"]


def test_a_key_that_all_have_left_is_new_when_it_comes_again():
    made, rooms = queue("a1"), Room()
    made.serve(rooms)
    made.remove("a1")
    made.add("a2", "a", 0, 9.0, "team")
    made.serve(rooms)
    assert rooms.asked == ["a1", "a2"]


def test_a_pass_that_is_interrupted_goes_on_where_it_was():
    made, rooms = queue("a1", "b1", "c1"), Room(b=1)
    parts = []
    while not made.serve(rooms, lambda: True):
        parts.append(list(rooms.asked))
    assert parts == [["a1"], ["a1", "b1"]]
    assert rooms.asked == ["a1", "b1", "c1"]
    assert list(made) == ["a1", "c1"]


def test_who_comes_while_a_pass_is_interrupted_is_part_of_it():
    made, rooms = queue("a1", "c1"), Room()
    assert not made.serve(rooms, lambda: True)
    made.add("b1", "b", 7, 9.0, "team")
    assert made.serve(rooms)
    assert rooms.asked == ["a1", "b1", "c1"]


def test_a_namespace_with_thousands_of_keys_holds_up_nobody_else():
    made, rooms = WaitingQueue(), Room()
    for number in range(10 * KEYS_PER_ROUND):
        made.add(f"odd-{number}", ("odd", number), 0, number, "many")
    made.add("last", "last", 0, 1e9, "few")
    made.serve(rooms)
    assert rooms.asked.index("last") == KEYS_PER_ROUND
    assert len(rooms.asked) == len(set(rooms.asked)) == 10 * KEYS_PER_ROUND + 1


def test_as_many_keys_as_a_round_has_are_asked_strictly_in_order():
    made, rooms = WaitingQueue(), Room()
    for number in range(KEYS_PER_ROUND):
        made.add(f"x{number}", ("x", number), 0, number, "many")
    made.add("y", "y", 0, KEYS_PER_ROUND, "few")
    made.serve(rooms)
    assert rooms.asked == [*(f"x{number}" for number in range(KEYS_PER_ROUND)), "y"]


def test_pods_that_find_room_do_not_count_against_their_namespace():
    many = [f"a{number}" for number in range(3 * KEYS_PER_ROUND)]
    made, rooms = queue(*many, "b1", namespaces={"b1": "few"}), Room(a=10_000, b=1)
    made.serve(rooms)
    assert rooms.asked == [*many, "b1"]
