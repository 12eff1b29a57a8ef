"""Slices on a real GPU: made, filled, destroyed."""

import statistics
import time
from collections import Counter, defaultdict
from random import Random

import pytest

from instaslice.drivers import SlotTaken
from instaslice.geometry import States
from instaslice.geometry.states import ILLEGAL

CYCLES = 200


@pytest.mark.timeout(120)
def test_every_profile_at_every_legal_start(driver, gpu):
    for profile in gpu.model.profiles:
        makes, ends = [], []
        for start in profile.starts:
            began = time.monotonic()
            made = driver.create(gpu.uuid, profile.name, start)
            makes.append(time.monotonic() - began)
            assert made.whole and made.placement == (profile.name, start, profile.size)
            assert driver.slices(gpu.uuid) == (made,)
            began = time.monotonic()
            driver.destroy(made)
            ends.append(time.monotonic() - began)
            assert driver.slices(gpu.uuid) == ()
        print(
            f"{profile.name:12} at {', '.join(map(str, profile.starts)):20} "
            f"create {statistics.median(makes) * 1000:4.0f} ms, destroy {statistics.median(ends) * 1000:4.0f} ms"
        )


@pytest.mark.timeout(60)
def test_a_full_mixed_layout(driver, gpu):
    if gpu.model.name != "NVIDIA H200":
        pytest.skip("the layout is an H200's")
    layout = [("2g.35gb", 0), ("1g.18gb", 2), ("1g.18gb+me", 3), ("3g.71gb", 4)]
    made = tuple(driver.create(gpu.uuid, *each) for each in layout)
    assert driver.slices(gpu.uuid) == made
    assert len({each.mig_uuid for each in made}) == len(made)
    answers = defaultdict(list)
    for profile in gpu.model.profiles:
        for start in profile.starts:
            with pytest.raises(SlotTaken, match="does not fit beside what is there") as caught:
                driver.create(gpu.uuid, profile.name, start)
            answers[str(caught.value.__cause__)].append(f"{profile.name} at {start}")
    for words, places in answers.items():
        print(f"full, and NVML says {words!r} to {', '.join(places)}")
    assert driver.slices(gpu.uuid) == made, "a refused create changes nothing"
    driver.destroy(made[2])
    again = driver.create(gpu.uuid, "1g.18gb", 3)
    assert {*driver.slices(gpu.uuid)} == {made[0], made[1], again, made[3]}


@pytest.mark.timeout(60)
def test_a_slice_has_the_two_capabilities_that_a_container_needs(driver, gpu):
    made = driver.create(gpu.uuid, gpu.model.profiles[0].name, 0)
    found = driver.capabilities(made)
    print(f"nvidia-caps minors of gi {made.gi} and ci {made.ci}: {found}")
    assert len({*found}) == 2


@pytest.mark.timeout(60)
def test_destroying_twice_spares_what_took_the_place(driver, gpu):
    small, large = gpu.model.profiles[0], gpu.model.profiles[-1]
    old = driver.create(gpu.uuid, small.name, 0)
    driver.destroy(old)
    driver.destroy(old)
    other = driver.create(gpu.uuid, large.name, 0)
    driver.destroy(old)
    assert driver.slices(gpu.uuid) == (other,)


@pytest.mark.timeout(150)
def test_many_random_creates_and_destroys_end_with_an_empty_gpu(driver, gpu):
    states = States.of(gpu.model)
    rng, held, made, refused, surprises = Random(20261116), [], 0, Counter(), []
    began = time.monotonic()
    while made < CYCLES:
        if held and rng.random() < 0.45:
            driver.destroy(held.pop(rng.randrange(len(held))))
            continue
        profile = rng.choice(gpu.model.profiles)
        start = rng.choice(profile.starts)
        there = [each.placement[:2] for each in held]
        legal = states.state(states.placement(*each) for each in [*there, (profile.name, start)]) != ILLEGAL
        try:
            held.append(driver.create(gpu.uuid, profile.name, start))
            made, fits = made + 1, True
        except SlotTaken as error:
            refused[str(error.__cause__)] += 1
            fits = False
        if fits != legal:
            surprises.append(f"{profile.name} at {start} beside {there}: {'made' if fits else 'refused'}")
        if made % 20 == 0:
            assert {*driver.slices(gpu.uuid)} == {*held}
    for each in held:
        driver.destroy(each)
    assert driver.slices(gpu.uuid) == ()
    print(f"{made} made and destroyed, refused: {dict(refused)}, {time.monotonic() - began:.0f} s")
    assert not surprises, "the hardware holds what our arithmetic says it does"
