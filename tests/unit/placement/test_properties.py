"""What must hold for any model, any policy and any history: nothing overlaps, nothing is lost, a refusal is right."""

from itertools import product
from random import Random

import pytest
from fleets import PLACEABLE, fleet, grant, picture
from hypothesis import given, settings
from hypothesis import strategies as st

from instaslice.geometry import models
from instaslice.placement import Demand, Fleet, GpuId, NodeName, NotFree, Placer, Plan, Share, moves, policies

GPUS = ("a0", "a1", "b0", "b1")
STEPS = st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=40)
"""Each step asks for the profile with that number, or gives back the slice with that number."""


def check(made, model):
    for gpu, held in picture(made).items():
        taken = 0
        for k in held:
            profile = model.profile(k.profile)
            assert k.start in profile.starts, f"{k} on {gpu} is outside a legal start"
            assert not taken & k.mask, f"{k} overlaps on {gpu}"
            taken |= k.mask
        for profile in model.profiles:
            assert sum(k.profile == profile.name for k in held) <= profile.limit


def free_by_hand(made, model, profile):
    """Whether a profile has a legal start on some GPU, found without any table."""
    wanted = model.profile(profile)
    for held in picture(made).values():
        profiles = [model.profile(k.profile) for k in held] + [wanted]
        taken = sum(k.mask for k in held)
        if sum(p.name == profile for p in profiles) > wanted.limit:
            continue
        if sum(p.compute for p in profiles) > model.compute_slices:
            continue
        media = [sum(column) for column in zip(*(p.engines.media for p in profiles), strict=True)]
        if any(a > b for a, b in zip(media, model.engines.media, strict=True)):
            continue
        if any(not taken & k.mask for k in wanted.placements()):
            return True
    return False


@pytest.mark.parametrize("model", models.known(), ids=lambda model: model.name)
@settings(max_examples=12)
@given(name=st.sampled_from(policies.names()), steps=STEPS)
def test_no_overlap_nothing_lost_and_every_refusal_is_right(model, name, steps):
    made = fleet(*GPUS, model=model)
    door = Placer(made, policies.named(name, random=Random(0)))
    running = []
    for number, asks in steps:
        if asks:
            profile = model.profiles[number % len(model.profiles)].name
            answer = door.place(Demand((profile,)))
            assert isinstance(answer, Plan) == free_by_hand(made, model, profile)
            if isinstance(answer, Plan):
                door.commit(answer)
                running += answer.grants
            else:
                assert str(answer)
        elif running:
            door.release([running.pop(number % len(running))])
        check(made, model)
        assert sum(map(len, picture(made).values())) == len(running)
    door.release(running)
    assert not any(picture(made).values())
    assert {node.free for node in made.nodes.values()} == {2 * model.memory_slices}


@settings(max_examples=60)
@given(
    model=st.sampled_from(PLACEABLE),
    steps=STEPS,
    wants=st.lists(st.integers(0, 99), min_size=2, max_size=4),
    name=st.sampled_from(policies.names()),
)
def test_several_slices_are_placed_exactly_where_some_way_exists(model, steps, wants, name):
    made = fleet("a0", "a1", model=model)
    door = Placer(made, policies.named(name, random=Random(0)))
    for number, _ in steps[:10]:
        answer = door.place(Demand((model.profiles[number % len(model.profiles)].name,)))
        if isinstance(answer, Plan):
            door.commit(answer)
    demand = Demand(tuple(model.profiles[number % len(model.profiles)].name for number in wants))
    answer = door.place(demand)
    assert isinstance(answer, Plan) == some_way(made, model, demand.wants)
    if isinstance(answer, Plan):
        assert tuple(each.want for each in answer.grants) == demand.wants
        door.commit(answer)
        check(made, model)


def some_way(made, model, wants):
    """Try all, over two GPUs."""
    if not wants:
        return True
    for gpu, start in product(("a0", "a1"), model.profile(wants[0]).starts):
        one = grant(gpu, wants[0], start, model)
        try:
            made.take(one)
        except NotFree:
            continue
        try:
            if some_way(made, model, wants[1:]):
                return True
        finally:
            made.release(one)
    return False


@settings(max_examples=60)
@given(model=st.sampled_from(PLACEABLE), steps=STEPS, wanted=st.integers(0, 99), most=st.integers(1, 2))
def test_moves_make_room_lose_nothing_and_leave_the_fleet_as_it_was(model, steps, wanted, most):
    made = fleet(*GPUS, model=model)
    door = Placer(made, policies.named("first-fit"))
    for number, _ in steps:
        answer = door.place(Demand((model.profiles[number % len(model.profiles)].name,)))
        if isinstance(answer, Plan):
            door.commit(answer)
    demand = Demand((model.profiles[wanted % len(model.profiles)].name,))
    before = picture(made)
    found = moves.find(made, door.policy, demand, lambda held: held.node == "a", most=most)
    assert picture(made) == before
    if found is not None:
        assert 1 <= len(found.moves) <= most
        assert all(move.old.node == "a" for move in found.moves)
        door.rearrange(found)
        check(made, model)
        kept = sorted(k.profile for held in picture(made).values() for k in held)
        assert kept == sorted([k.profile for held in before.values() for k in held] + [demand.wants[0]])


@settings(max_examples=40)
@given(model=st.sampled_from(PLACEABLE), steps=STEPS, wanted=st.integers(0, 99), keep=st.randoms(use_true_random=False))
def test_one_move_is_found_exactly_where_one_is_enough(model, steps, wanted, keep):
    made = fleet("a0", "b0", "b1", model=model)
    door = Placer(made, policies.named("spread"))
    running = []
    for number, _ in steps:
        answer = door.place(Demand((model.profiles[number % len(model.profiles)].name,)))
        if isinstance(answer, Plan):
            door.commit(answer)
            running += answer.grants
    for each in [each for each in running if keep.random() < 0.3]:
        door.release([each])
        running.remove(each)
    profile = model.profiles[wanted % len(model.profiles)].name
    if isinstance(door.place(Demand((profile,))), Plan):
        return
    found = moves.find(made, door.policy, Demand((profile,)), lambda held: True, most=1)
    assert (found is not None) == any(one_is_enough(made, model, each, profile) for each in running)


def one_is_enough(made, model, old, profile):
    """Whether ending this slice lets the profile in at some start, with room for the slice somewhere after that."""
    made.release(old)
    try:
        for gpu, start in product(("a0", "b0", "b1"), model.profile(profile).starts):
            one = grant(gpu, profile, start, model)
            try:
                made.take(one)
            except NotFree:
                continue
            fits = free_by_hand(made, model, old.want)
            made.release(one)
            if fits:
                return True
        return False
    finally:
        made.take(old)


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=40),
)
def test_shared_memory_is_never_promised_twice(sizes, steps):
    made = Fleet()
    for number, size in enumerate(sizes):
        made.add_shared_gpu(GpuId(str(number)), NodeName("n"), size)
    door = Placer(made, policies.named(policies.DEFAULT))
    running = []
    for mib, asks in steps:
        left = [size - sum(g.size for g in running if g.gpu == str(n)) for n, size in enumerate(sizes)]
        assert min(left) >= 0
        if asks:
            answer = door.place(Demand((Share(mib),)))
            assert isinstance(answer, Plan) == (max(left) >= mib)
            if isinstance(answer, Plan):
                door.commit(answer)
                running += answer.grants
        elif running:
            door.release([running.pop(mib % len(running))])
