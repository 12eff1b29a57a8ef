"""The emulated driver: what it makes, what it refuses and why, what it remembers."""

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from injected_faults import InjectedFaults

from instaslice.drivers import DriverError, GpuLost, InUse, SlotTaken, Unhealthy, Unsupported
from instaslice.drivers.emulated import EmulatedDriver
from instaslice.drivers.latencies import H200
from instaslice.drivers.state_file import MAX_CHANGES
from instaslice.geometry import models

A100 = models.named("A100-40GB")
H200_MODEL = models.named("H200")
PLACEABLE = [model for model in models.known() if any(profile.starts for profile in model.profiles)]


def node(*gpus, **more):
    return EmulatedDriver("gpu-0", gpus or (A100,), rng=Random(1), faults=InjectedFaults(), **more)


def first(driver):
    return driver.discover()[0].uuid


def filled(driver, *wanted):
    return [driver.create(first(driver), profile, start) for profile, start in wanted]


def test_what_is_created_is_listed_whole():
    driver = node()
    made = driver.create(first(driver), "3g.20gb", 4)
    assert (made.placement.profile, made.placement.start, made.placement.size) == ("3g.20gb", 4, 4)
    assert made.whole and made.mig_uuid.startswith("MIG-")
    assert driver.slices(first(driver)) == (made,)


def test_uuids_follow_from_the_node_and_differ_between_nodes_and_gpus():
    def uuids(name):
        return [gpu.uuid for gpu in EmulatedDriver(name, [A100, A100]).discover()]

    assert uuids("gpu-0") == uuids("gpu-0")
    assert len({*uuids("gpu-0"), *uuids("gpu-1")}) == 4


def test_a_node_may_mix_models():
    driver = node(A100, H200_MODEL)
    assert [gpu.model.name for gpu in driver.discover()] == ["A100-40GB", "H200-141GB"]
    assert driver.create(driver.discover()[1].uuid, "1g.18gb", 0).whole
    with pytest.raises(Unsupported, match=r"1g\.18gb does not exist on A100-40GB"):
        driver.create(first(driver), "1g.18gb", 0)


@pytest.mark.parametrize(
    "held, wanted, error, says",
    [
        pytest.param([], ("9g.99gb", 0), Unsupported, "does not exist on A100", id="a profile that the model lacks"),
        pytest.param([], ("3g.20gb", 2), Unsupported, "starts at 0, 4", id="a start that the profile lacks"),
        pytest.param([("1g.5gb", 0)], ("1g.5gb", 0), SlotTaken, "1g.5gb at 0", id="the very slot is taken"),
        pytest.param([("1g.5gb", 5)], ("3g.20gb", 4), SlotTaken, "1g.5gb at 5", id="a slot within is taken"),
        pytest.param([("1g.5gb+me", 0)], ("1g.5gb+me", 1), SlotTaken, r"1g.5gb\+me at 0", id="the only media engine"),
    ],
)
def test_a_create_that_is_refused_changes_nothing(held, wanted, error, says):
    driver = node()
    before = tuple(filled(driver, *held))
    with pytest.raises(error, match=says):
        driver.create(first(driver), *wanted)
    assert driver.slices(first(driver)) == before


def test_a_gpu_of_another_node_is_named():
    with pytest.raises(DriverError, match="GPU-elsewhere is not in this node"):
        node().slices("GPU-elsewhere")


def test_a_model_without_known_placements_cannot_be_played():
    unknown = next(model for model in models.known() if model not in PLACEABLE)
    with pytest.raises(Unsupported, match="placements are not known"):
        node(unknown)


def test_destroying_twice_is_fine_and_spares_what_took_the_place():
    driver = node()
    (old,) = filled(driver, ("1g.5gb", 0))
    driver.destroy(old)
    driver.destroy(old)
    (other,) = filled(driver, ("2g.10gb", 0))
    driver.destroy(old)
    assert driver.slices(first(driver)) == (other,)


# Faults ----------------------------------------------------------------------------------------------------------


def test_a_slot_can_be_taken_though_nothing_is_listed():
    driver = node()
    driver.faults.refuse(first(driver))
    with pytest.raises(SlotTaken, match="nothing that can be listed"):
        driver.create(first(driver), "1g.5gb", 0)
    assert driver.create(first(driver), "1g.5gb", 0).whole


def test_a_slice_in_use_names_its_holders_and_goes_when_they_have():
    driver = node()
    (made,) = filled(driver, ("1g.5gb", 2))
    driver.faults.hold(first(driver), 2, "pid 41 (python)")
    with pytest.raises(InUse, match=r"1g\.5gb at 2 is in use by pid 41 \(python\)") as caught:
        driver.destroy(made)
    assert caught.value.holders == ("pid 41 (python)",)
    assert driver.slices(first(driver)) == (made,)
    driver.faults.release(first(driver), 2)
    driver.destroy(made)
    assert driver.slices(first(driver)) == ()


def test_a_monitor_leaves_a_gpu_instance_that_still_takes_its_slot():
    driver = node()
    (made,) = filled(driver, ("1g.5gb", 2))
    driver.faults.hold(first(driver), 2, "dcgm", monitor=True)
    for _ in range(2):
        with pytest.raises(InUse, match="dcgm"):
            driver.destroy(made)
    (half,) = driver.slices(first(driver))
    assert not half.whole and half.gi == made.gi
    with pytest.raises(SlotTaken):
        driver.create(first(driver), "1g.5gb", 2)
    driver.faults.release(first(driver), 2)
    driver.destroy(half)
    assert driver.slices(first(driver)) == ()


def test_a_failing_gpu_fails_every_call_until_it_is_healed_and_its_slices_are_still_there():
    driver = node()
    (made,) = filled(driver, ("1g.5gb", 0))
    driver.faults.fail(first(driver), "Xid 79")
    for call in (
        lambda: driver.slices(first(driver)),
        lambda: driver.create(first(driver), "1g.5gb", 1),
        lambda: driver.destroy(made),
    ):
        with pytest.raises(GpuLost, match="Xid 79"):
            call()
    driver.faults.heal(first(driver))
    assert driver.slices(first(driver)) == (made,)


def test_whoever_watches_health_is_told_at_once_of_a_change():
    driver = node()
    gpu = first(driver)
    assert driver.watch_health(gpu, None, 0) is None
    told = []
    watcher = threading.Thread(target=lambda: told.append(driver.watch_health(gpu, None, 60)))
    watcher.start()
    driver.faults.fail(gpu, "Xid 48")
    watcher.join()
    assert told == [Unhealthy("Xid 48")]
    assert driver.watch_health(gpu, None, 60) == Unhealthy("Xid 48"), "what is not known yet is told without waiting"


# What outlives the process ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for kill -9: nothing of ours may catch it."""


class Sleeps:
    """Notes how long each step takes and, if told to, is killed in step number `die`, counted from 1."""

    def __init__(self, die=0):
        self.seconds, self.die = [], die

    def __call__(self, seconds):
        self.seconds.append(seconds)
        if len(self.seconds) == self.die:
            raise Killed


@pytest.mark.parametrize(
    "die, left",
    [
        pytest.param(1, [], id="before the GPU instance: nothing"),
        pytest.param(2, [False], id="before the compute instance: half a slice"),
        pytest.param(3, [True], id="before it is destroyed: a whole one"),
        pytest.param(4, [False], id="between its two destroys: half a slice"),
        pytest.param(5, [], id="after all: nothing"),
    ],
)
def test_a_restart_finds_what_was_there_when_the_agent_was_killed(tmp_path, die, left):
    file = tmp_path / "gpu-0.json"
    driver = node(file=file, latencies=H200, sleep=Sleeps(die))
    with suppress(Killed):
        driver.destroy(driver.create(first(driver), "1g.5gb", 3))
    again = node(file=file)
    assert [each.whole for each in again.slices(first(again))] == left
    assert again.boot_id() == driver.boot_id()
    for half in again.slices(first(again)):
        again.destroy(half)
    assert again.create(first(again), "1g.5gb", 3).whole


FOR_EVER = """
import sys
from pathlib import Path
from instaslice.drivers.emulated import EmulatedDriver
from instaslice.geometry import models

driver = EmulatedDriver("gpu-0", [models.named("A30")], file=Path(sys.argv[1]))
(gpu,) = driver.discover()
print("begun", flush=True)
while True:
    for half in driver.slices(gpu.uuid):
        driver.destroy(half)
    driver.create(gpu.uuid, "1g.6gb", 3)
"""


def test_a_process_killed_at_any_moment_leaves_what_the_next_can_read(tmp_path):
    file, pauses = tmp_path / "state", Random(7)
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", FOR_EVER, str(file)], stdout=subprocess.PIPE) as agent:
            assert agent.stdout.readline() == b"begun\n"
            threading.Event().wait(pauses.uniform(0, 0.05))
            agent.send_signal(signal.SIGKILL)
        again = node(models.named("A30"), file=file)
        assert len(again.slices(first(again))) <= 1


def test_a_reboot_loses_the_slices_and_changes_the_boot_id(tmp_path):
    driver = node(file=tmp_path / "state")
    filled(driver, ("1g.5gb", 0))
    before = driver.boot_id()
    driver.reboot()
    assert driver.slices(first(driver)) == ()
    assert driver.boot_id() != before


def test_a_gpu_that_was_exchanged_for_another_model_starts_empty(tmp_path):
    filled(node(A100, file=tmp_path / "state"), ("1g.5gb", 0))
    other = node(H200_MODEL, file=tmp_path / "state")
    assert other.slices(first(other)) == ()


def test_instances_that_the_model_no_longer_has_are_not_taken_over(tmp_path):
    file = tmp_path / "state"
    filled(node(file=file), ("1g.5gb", 0))
    file.write_bytes(file.read_bytes().replace(b'"start":0', b'"start":99'))
    again = node(file=file)
    assert again.slices(first(again)) == ()


def test_a_step_that_was_cut_off_in_writing_never_was(tmp_path):
    file = tmp_path / "state"
    made = tuple(filled(node(file=file), ("1g.5gb", 0)))
    file.write_bytes(file.read_bytes() + b'{"gpu":"GPU-')
    again = node(file=file)
    assert again.slices(first(again)) == made
    both = (*made, *filled(again, ("1g.5gb", 1)))
    assert node(file=file).slices(first(again)) == both, "and what follows is not glued to it"


def test_the_file_does_not_grow_for_ever(tmp_path):
    file = tmp_path / "state"
    driver, sizes = node(file=file), []
    for _ in range(MAX_CHANGES):
        driver.destroy(*filled(driver, ("1g.5gb", 0)))
        sizes.append(file.stat().st_size)
    assert max(sizes) < MAX_CHANGES * 200
    assert node(file=file).slices(first(driver)) == ()


def test_a_file_that_is_not_ours_is_named(tmp_path):
    (tmp_path / "state").write_text("[]")
    with pytest.raises(DriverError, match="state is no state of emulated GPUs"):
        node(file=tmp_path / "state")


# Time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "profile, create, destroy",
    [
        pytest.param("1g.18gb", (0.100, 0.175), (0.016, 0.040), id="1g"),
        pytest.param("3g.71gb", (0.200, 0.400), (0.095, 0.250), id="3g: about 300 ms, destroyed in 175"),
    ],
)
def test_it_takes_as_long_as_an_h200(profile, create, destroy):
    sleeps = Sleeps()
    driver = node(H200_MODEL, latencies=H200, sleep=sleeps)
    filled(driver, ("1g.18gb", 0))  # the first on an idle GPU takes longer
    for _ in range(20):
        sleeps.seconds.clear()
        made = driver.create(first(driver), profile, 4)
        assert create[0] <= sum(sleeps.seconds) <= create[1]
        sleeps.seconds.clear()
        driver.destroy(made)
        assert destroy[0] <= sum(sleeps.seconds) <= destroy[1]


# Properties ------------------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 999), st.integers(0, 15)), max_size=30)


@pytest.mark.parametrize("model", PLACEABLE, ids=lambda model: model.name)
@settings(deadline=None, max_examples=15)
@given(steps=STEPS)
def test_nothing_overlaps_only_legal_starts_and_a_restart_sees_the_same(tmp_path_factory, model, steps):
    file = tmp_path_factory.mktemp("node") / "state"
    driver = node(model, file=file)
    gpu, held = first(driver), []
    for makes, number, start in steps:
        profile = model.profiles[number % len(model.profiles)]
        if makes:
            try:
                held.append(driver.create(gpu, profile.name, start))
            except SlotTaken:
                pass
            except Unsupported:
                assert start not in profile.starts
        elif held:
            before = driver.slices(gpu)
            gone = held.pop(number % len(held))
            driver.destroy(gone)
            driver.create(gpu, gone.placement.profile, gone.placement.start)
            assert driver.slices(gpu) == before, "create undoes destroy"
            driver.destroy(gone)
        listed = driver.slices(gpu)
        assert sorted(listed, key=str) == sorted(held, key=str)
        assert sum(each.placement.mask for each in listed).bit_count() == sum(each.placement.size for each in listed)
        assert all(each.placement.start in model.profile(each.placement.profile).starts for each in listed)
        assert node(model, file=file).slices(gpu) == listed
