"""What room is left: counted by kind of state, and the same as looked at GPU by GPU."""

import pytest
from fleets import A100, fleet, grant
from hypothesis import given
from hypothesis import strategies as st

from instaslice.geometry import States, models
from instaslice.placement import Fleet, GpuId, NodeName
from instaslice.placement.room import MemoryState, rooms

H200 = models.named("H200")


def memory(made):
    (room,) = rooms(made)
    return {state.value: slices for state, slices in room.memory.items() if slices}


@pytest.mark.parametrize(
    "held, left, largest",
    [
        pytest.param([], {"free": 8}, 8, id="an empty GPU holds a 7g.40gb, which takes all eight"),
        pytest.param([("a0", "7g.40gb", 0)], {"allocated": 8}, 0, id="nothing is left"),
        pytest.param(
            [("a0", "1g.5gb", start) for start in range(7)],
            {"allocated": 7, "unusable": 1},
            0,
            id="seven small ones leave a memory slice without a compute slice",
        ),
        pytest.param([("a0", "4g.20gb", 0)], {"allocated": 4, "free": 4}, 4, id="a 3g.20gb takes four beside a 4g"),
        pytest.param([("a0", "3g.20gb", 0), ("a0", "3g.20gb", 4)], {"allocated": 8}, 0, id="two halves"),
        pytest.param(
            [("a0", "2g.10gb", 0), ("a0", "2g.10gb", 2), ("a0", "2g.10gb", 4)],
            {"allocated": 6, "free": 2},
            2,
            id="one compute slice can take both memory slices that are left",
        ),
    ],
)
def test_the_memory_that_is_left(held, left, largest):
    made = fleet("a0", held=held)
    assert memory(made) == left
    assert rooms(made)[0].largest == largest


def test_a_closed_gpu_has_no_room_and_says_why():
    made = fleet("a0", "a1", held=[("a1", "3g.20gb", 4)])
    made.close(GpuId("a1"), "health", "it hangs")
    (room,) = rooms(made)
    assert room.gpus == {"": 1, "health": 1}
    assert memory(made) == {"free": 8, "allocated": 4, "closed": 4}
    assert room.with_room["7g.40gb"] == 1
    assert room.held == {"3g.20gb": 1}


def test_each_model_by_itself():
    made = fleet("a0")
    made.add_gpu(GpuId("b0"), NodeName("b"), H200)
    found = {room.model: room for room in rooms(made)}
    assert found.keys() == {A100.name, H200.name}
    assert found[A100.name].slice_gb == 5
    assert found[H200.name].with_room["7g.141gb"] == 1


def test_no_gpus():
    assert rooms(Fleet()) == []


def filled(states, state):
    """The most that further slices can take, by trying every one."""
    return max((states.used[to] - states.used[state] + filled(states, to) for to in states.after[state] if to >= 0),
               default=0)  # fmt: skip


@given(st.integers(0, len(States.of(A100)) - 1).filter(lambda state: States.of(A100).used[state] >= 4))
def test_what_can_be_filled_is_what_trying_finds(state):
    states = States.of(A100)
    assert states.kinds.fillable[states.kinds.of[state]] == filled(states, state)


GPU = st.sampled_from(["a0", "a1", "b0"])


@given(st.lists(st.tuples(GPU, st.sampled_from(A100.profiles), st.integers(0, 7)), max_size=12), st.sets(GPU))
def test_nothing_is_counted_twice_or_forgotten(wanted, closed):
    made = fleet("a0", "a1", "b0")
    taken = 0
    for gpu, profile, start in wanted:
        state = made.state(made.number(GpuId(gpu)))
        index = States.of(A100).placement(profile.name, start)
        if index is not None and States.of(A100).after[state][index] >= 0:
            made.take(grant(gpu, profile.name, start))
            taken += profile.size
    for gpu in closed:
        made.close(GpuId(gpu), "health")
    (room,) = rooms(made)
    assert sum(room.memory.values()) == 3 * 8
    assert room.memory[MemoryState.ALLOCATED] == taken
    assert sum(room.gpus.values()) == 3
    for profile in A100.profiles:
        fits = [gpu for gpu in ("a0", "a1", "b0") if gpu not in closed and _fits(made, gpu, profile.name)]
        assert room.with_room[profile.name] == len(fits)


def _fits(made, gpu, profile):
    states, state = States.of(A100), made.state(made.number(GpuId(gpu)))
    return bool(states.choices[states.profile(profile)][state])
