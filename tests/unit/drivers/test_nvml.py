"""The NVML driver over a library that behaves as an H200's was measured to: what it finds, makes and refuses."""

import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pynvml
import pytest
from fake_nvml import FakeNvml, a100, h200, refused, t4
from hypothesis import given, settings
from hypothesis import strategies as st

from instaslice.drivers import DriverError, GpuLost, InUse, SlotTaken, UnhealthyReason, Unsupported
from instaslice.drivers.nvml import NvmlDriver

H200_PLACEMENTS = {
    "1g.18gb": ((0, 1, 2, 3, 4, 5, 6), 1),
    "1g.18gb+me": ((0, 1, 2, 3, 4, 5, 6), 1),
    "1g.35gb": ((0, 2, 4, 6), 2),
    "2g.35gb": ((0, 2, 4), 2),
    "3g.71gb": ((0, 4), 4),
    "4g.71gb": ((0,), 4),
    "7g.141gb": ((0,), 8),
}


def machine(*cards, gpus=(), enable_mig=False, **more):
    """A driver and the library beneath it."""
    nvml = FakeNvml(*(cards or (h200(),)))
    return NvmlDriver(gpus, enable_mig=enable_mig, nvml=nvml, **more), nvml


def off(card):
    card.mig = card.pending = False
    return card


# What is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [pytest.param(True, id="named by the driver"), pytest.param(False, id="by size")])
def test_the_geometry_is_what_the_driver_reports(names):
    driver, nvml = machine()
    nvml.names = names
    (gpu,) = driver.discover()
    assert {p.name: (p.starts, p.size) for p in gpu.model.profiles} == H200_PLACEMENTS
    assert (gpu.uuid, gpu.index, gpu.model.name) == ("GPU-h200", 0, "NVIDIA H200")
    assert gpu.model.provenance == "discovered"
    assert gpu.model.profile("1g.18gb+me").limit == 1


def test_a_machine_may_mix_models_and_gpus_without_mig_are_left_alone():
    driver, _ = machine(a100(), t4(), h200())
    assert [(gpu.index, gpu.model.name) for gpu in driver.discover()] == [
        (0, "NVIDIA A100-SXM4-40GB"),
        (2, "NVIDIA H200"),
    ]
    assert driver.left_alone == {"GPU-t4": "Tesla T4 has no MIG"}


@pytest.mark.parametrize(
    "mode, says", [pytest.param(2, "only the host of this virtual machine", id="guest"), (3, "the hypervisor decides")]
)
def test_a_virtual_gpu_is_refused_with_a_reason(mode, says):
    driver, _ = machine(h200(virtualization=mode))
    assert driver.discover() == ()
    assert says in driver.left_alone["GPU-h200"]


@pytest.mark.parametrize(
    "gpus, found",
    [
        pytest.param([], [0, 1, 2], id="nothing named is everything"),
        pytest.param(["1"], [1], id="by index"),
        pytest.param(["GPU-two"], [2], id="by UUID"),
        pytest.param(["h200"], [0, 2], id="by model, as people say it"),
        pytest.param(["H200-141GB"], [0, 2], id="by model, as we name it"),
        pytest.param(["NVIDIA A100-SXM4-40GB", "2"], [1, 2], id="several"),
    ],
)
def test_only_the_gpus_that_are_given_are_touched(gpus, found):
    driver, _ = machine(off(h200("GPU-zero")), a100("GPU-one"), off(h200("GPU-two")), gpus=gpus, enable_mig=True)
    assert [gpu.index for gpu in driver.discover()] == found
    assert driver._session.library._binding.cards[0].mig == (0 in found)


def test_a_gpu_that_was_asked_for_and_is_not_there_is_told():
    driver, _ = machine(gpus=["0", "7"])
    assert len(driver.discover()) == 1
    assert driver.left_alone["7"].startswith("no GPU is '7' (there are 0: GPU-h200")


def test_one_gpu_that_fails_keeps_nobody_from_the_others():
    driver, nvml = machine(h200("GPU-bad", lost=True), h200("GPU-good"))
    assert [gpu.uuid for gpu in driver.discover()] == ["GPU-good"]
    assert "GPU is lost" in driver.left_alone["GPU 0"]
    nvml.cards[0].lost = False
    assert [gpu.uuid for gpu in driver.discover()] == ["GPU-bad", "GPU-good"]


def test_a_gpu_that_is_lost_later_stays_known_and_is_ill():
    driver, nvml = machine(h200("GPU-bad"), h200("GPU-good"))
    driver.discover()
    nvml.cards[0].lost = True
    assert [gpu.uuid for gpu in driver.discover()] == ["GPU-bad", "GPU-good"]
    assert driver.watch_health("GPU-bad", None, 0) and not driver.watch_health("GPU-good", None, 0)


def test_a_profile_whose_name_nobody_can_ask_for_is_not_offered():
    driver, nvml = machine()
    whole = nvml.nvmlDeviceGetGpuInstanceProfileInfo

    def renamed(card, number, version):
        info = whole(card, number, version)
        info.name = "MIG 1g.18gb+quantum" if number == 7 else info.name
        return info

    nvml.nvmlDeviceGetGpuInstanceProfileInfo = renamed
    (gpu,) = driver.discover()
    assert {p.name for p in gpu.model.profiles} == set(H200_PLACEMENTS) - {"1g.18gb+me"}


def test_without_a_driver_the_remedy_is_told():
    with pytest.raises(DriverError, match=r"libnvidia-ml\.so\.1 of NVIDIA's driver is not here"):
        NvmlDriver(nvml=FakeNvml(installed=False))


# MIG mode --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "card, allowed, mig, found, unhealthy",
    [
        pytest.param(h200, True, True, True, "", id="Hopper: on at once"),
        pytest.param(h200, False, False, False, "", id="not allowed: left alone"),
        pytest.param(a100, True, False, True, "next reset", id="Ampere: waits for a reset, and says so"),
    ],
)
def test_mig_mode_comes_on_where_it_is_allowed(card, allowed, mig, found, unhealthy):
    driver, nvml = machine(off(card()), enable_mig=allowed)
    assert bool(driver.discover()) is found
    assert nvml.cards[0].mig is mig
    if found:
        told = driver.watch_health(nvml.cards[0].uuid, None, 0)
        assert (unhealthy in told.message and told.reason is UnhealthyReason.RESET) if unhealthy else told is None


def test_a_gpu_that_waited_for_its_reset_is_well_afterwards():
    driver, nvml = machine(off(a100()), enable_mig=True)
    (gpu,) = driver.discover()
    assert gpu.model.profile("1g.5gb").starts == (0, 1, 2, 3, 4, 5, 6), "the geometry is known before"
    with pytest.raises(DriverError, match="the next reset of this GPU enables MIG mode"):
        driver.create(gpu.uuid, "1g.5gb", 0)
    nvml.cards[0].mig = True
    assert driver.watch_health(gpu.uuid, None, 0) is None
    assert driver.create(gpu.uuid, "1g.5gb", 0).whole


def test_a_gpu_in_use_gets_mig_mode_when_it_is_free():
    driver, nvml = machine(off(h200(busy=True)), enable_mig=True)
    assert "while processes use this GPU" in driver.watch_health("GPU-h200", None, 0).message
    nvml.cards[0].busy = False
    assert driver.watch_health("GPU-h200", None, 0) is None
    assert nvml.cards[0].mig


# Slices ----------------------------------------------------------------------------------------------------------


def test_each_new_gpu_instance_is_asked_for_its_filler_and_only_the_first_for_all_profiles():
    driver, nvml = machine()
    (gpu,) = driver.discover()
    asked = []
    for start in (0, 1, 0):
        nvml.calls.clear()
        driver.destroy(driver.create(gpu.uuid, "1g.18gb", start))
        asked.append(nvml.calls.count("nvmlGpuInstanceGetComputeInstanceProfileInfo"))
    assert asked[0] > 1 and asked[1:] == [1, 1]


def test_every_profile_at_every_start_is_made_listed_and_destroyed():
    driver, nvml = machine()
    (gpu,) = driver.discover()
    for profile, (starts, _) in H200_PLACEMENTS.items():
        for start in starts:
            made = driver.create(gpu.uuid, profile, start)
            assert made.whole and made.placement[:2] == (profile, start)
            assert driver.slices(gpu.uuid) == (made,)
            driver.destroy(made)
            assert driver.slices(gpu.uuid) == () and not nvml.cards[0].instances


@pytest.mark.parametrize("profile, number", [("1g.35gb", 7), ("1g.18gb", 0), ("3g.71gb", 2), ("7g.141gb", 4)])
def test_the_compute_instance_has_the_most_multiprocessors(profile, number):
    driver, nvml = machine()
    made = driver.create("GPU-h200", profile, 0)
    assert nvml.cards[0].instances[made.gi].cis == {made.ci: number}


def test_each_slice_has_its_own_uuid_also_when_numbers_have_gaps():
    driver, _ = machine()
    made = [driver.create("GPU-h200", "1g.18gb", start) for start in range(7)]
    driver.destroy(made[2])
    again = driver.create("GPU-h200", "1g.18gb", 2)
    listed = driver.slices("GPU-h200")
    assert [each.placement.start for each in listed] == list(range(7))
    assert len({each.mig_uuid for each in listed}) == 7
    assert listed[2] == again


@pytest.mark.parametrize(
    "held, wanted, error, says",
    [
        pytest.param([], ("9g.99gb", 0), Unsupported, "does not exist on NVIDIA H200", id="no such profile"),
        pytest.param([], ("3g.71gb", 2), Unsupported, "starts at 0, 4", id="not at that start"),
        pytest.param([("1g.18gb", 0)], ("1g.18gb", 0), SlotTaken, "1g.18gb at 0", id="the very slot is taken"),
        pytest.param([("1g.18gb", 5)], ("3g.71gb", 4), SlotTaken, "1g.18gb at 5", id="a slot within is taken"),
        pytest.param([("1g.18gb+me", 0)], ("1g.18gb+me", 1), SlotTaken, "at 0", id="the only media engine"),
    ],
)
def test_a_create_that_is_refused_changes_nothing(held, wanted, error, says):
    driver, _ = machine()
    before = tuple(driver.create("GPU-h200", *each) for each in held)
    with pytest.raises(error, match=says):
        driver.create("GPU-h200", *wanted)
    assert driver.slices("GPU-h200") == before


@pytest.mark.parametrize("answer", ["INVALID_ARGUMENT", "NOT_SUPPORTED"])
def test_what_the_driver_does_not_make_on_an_empty_gpu_it_never_makes(answer):
    driver, nvml = machine()
    driver.discover()

    def before(name):
        if name == "nvmlDeviceCreateGpuInstanceWithPlacement":
            raise refused(answer)

    nvml.before = before
    with pytest.raises(Unsupported, match=r"the driver does not make 1g\.18gb at 3"):
        driver.create("GPU-h200", "1g.18gb", 3)


@pytest.mark.parametrize(
    "fails", ["nvmlGpuInstanceCreateComputeInstance", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetUUID"]
)
def test_what_could_not_be_finished_is_taken_back(fails):
    driver, nvml = machine()
    driver.discover()

    def before(name):
        if name == fails:
            raise refused("UNKNOWN")

    nvml.before = before
    with pytest.raises(DriverError, match=r"GPU-h200: create 1g\.18gb at 3"):
        driver.create("GPU-h200", "1g.18gb", 3)
    assert not nvml.cards[0].instances


def test_a_gpu_lost_half_way_leaves_half_a_slice_that_can_be_destroyed_later():
    driver, nvml = machine()
    driver.discover()

    def before(name):
        if name == "nvmlGpuInstanceCreateComputeInstance":
            nvml.cards[0].lost = True

    nvml.before = before
    with pytest.raises(GpuLost, match="reset the GPU or drain the node"):
        driver.create("GPU-h200", "1g.18gb", 3)
    nvml.before, nvml.cards[0].lost = (lambda name: None), False
    (half,) = driver.slices("GPU-h200")
    assert not half.whole and half.placement[:2] == ("1g.18gb", 3)
    driver.destroy(half)
    assert driver.slices("GPU-h200") == ()


def test_destroying_twice_is_fine_and_spares_what_took_the_place():
    driver, _ = machine()
    old = driver.create("GPU-h200", "1g.18gb", 0)
    driver.destroy(old)
    driver.destroy(old)
    other = driver.create("GPU-h200", "2g.35gb", 0)
    driver.destroy(old)
    assert driver.slices("GPU-h200") == (other,)


def test_a_slice_is_found_by_its_place_where_its_id_is_another_now():
    driver, nvml = machine()
    made = driver.create("GPU-h200", "1g.18gb", 0)
    card = nvml.cards[0]
    card.instances[9] = card.instances.pop(made.gi)
    card.instances[9].id = 9
    driver.destroy(made)
    assert not card.instances


def test_a_gpu_instance_that_others_split_is_destroyed_with_all_in_it():
    driver, nvml = machine()
    made = driver.create("GPU-h200", "3g.71gb", 4)
    nvml.cards[0].instances[made.gi].cis.update({2: 0, 5: 0})
    (seen,) = driver.slices("GPU-h200")
    driver.destroy(seen)
    assert not nvml.cards[0].instances


def test_with_mig_mode_off_there_is_nothing_and_destroying_it_is_fine():
    driver, nvml = machine()
    made = driver.create("GPU-h200", "1g.18gb", 0)
    off(nvml.cards[0])
    assert driver.slices("GPU-h200") == ()
    driver.destroy(made)


def test_a_gpu_of_another_node_is_named():
    driver, _ = machine()
    with pytest.raises(DriverError, match="GPU-elsewhere is not in this node"):
        driver.slices("GPU-elsewhere")


def test_without_permission_the_remedy_is_told():
    driver, nvml = machine()
    driver.discover()

    def before(name):
        if name == "nvmlDeviceCreateGpuInstanceWithPlacement":
            raise refused("NO_PERMISSION")

    nvml.before = before
    with pytest.raises(DriverError, match="run as root"):
        driver.create("GPU-h200", "1g.18gb", 0)


# In use ----------------------------------------------------------------------------------------------------------


def a_process(proc, pid, name, *files):
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    for number, file in enumerate(files):
        (proc / str(pid) / "fd" / str(number)).symlink_to(file)


def capabilities(proc, gi, ci, minors):
    folder = proc / "driver/nvidia/capabilities/gpu0/mig" / f"gi{gi}"
    (folder / f"ci{ci}").mkdir(parents=True)
    for file, minor in zip([folder / "access", folder / f"ci{ci}" / "access"], minors, strict=True):
        file.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\n")


def test_a_slice_in_use_names_its_holders_and_goes_when_they_have(tmp_path):
    driver, nvml = machine(proc=tmp_path)
    made = driver.create("GPU-h200", "1g.18gb", 2)
    capabilities(tmp_path, made.gi, made.ci, (120, 121))
    a_process(tmp_path, 41, "python", "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap121")
    a_process(tmp_path, 42, "innocent", "/dev/nvidia-caps/nvidia-cap12")
    a_process(tmp_path, os.getpid(), "ourselves", "/dev/nvidia-caps/nvidia-cap120")
    nvml.cards[0].held[made.gi] = [41, 977]
    with pytest.raises(InUse, match=r"1g\.18gb at 2 is in use by pid 41 \(python\), pid 977; end it") as caught:
        driver.destroy(made)
    assert caught.value.holders == ("pid 41 (python)", "pid 977")
    assert driver.slices("GPU-h200") == (made,)
    assert driver.capabilities(made) == (120, 121)
    nvml.cards[0].held.clear()
    driver.destroy(made)
    assert driver.slices("GPU-h200") == ()


def test_a_monitor_leaves_a_gpu_instance_that_still_takes_its_slot(tmp_path):
    driver, nvml = machine(proc=tmp_path)
    made = driver.create("GPU-h200", "1g.18gb", 2)
    nvml.cards[0].held[made.gi] = [-1]
    for _ in range(2):
        with pytest.raises(InUse, match="cannot be seen from here"):
            driver.destroy(made)
    (half,) = driver.slices("GPU-h200")
    assert not half.whole
    with pytest.raises(SlotTaken):
        driver.create("GPU-h200", "1g.18gb", 2)
    nvml.cards[0].held.clear()
    driver.destroy(half)
    assert driver.slices("GPU-h200") == ()


# Restarts --------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for kill -9: nothing of ours may catch it."""


@pytest.mark.parametrize(
    "at, left",
    [
        pytest.param("nvmlDeviceCreateGpuInstanceWithPlacement", [], id="before the GPU instance: nothing"),
        pytest.param("nvmlGpuInstanceCreateComputeInstance", [False], id="between the two: half a slice"),
        pytest.param("nvmlDeviceGetUUID", [True], id="before it is reported: a whole one"),
        pytest.param("nvmlComputeInstanceDestroy", [True], id="before it is destroyed: a whole one"),
        pytest.param("nvmlGpuInstanceDestroy", [False], id="between its two destroys: half a slice"),
    ],
)
def test_a_restart_finds_what_was_there_and_no_slot_is_lost(at, left):
    driver, nvml = machine()
    driver.discover()

    def before(name):
        if name == at:
            raise Killed

    nvml.before = before
    with pytest.raises(Killed):
        driver.destroy(driver.create("GPU-h200", "1g.18gb", 3))
    nvml.before = lambda name: None
    again = NvmlDriver(nvml=nvml)
    assert [each.whole for each in again.slices("GPU-h200")] == left
    for each in again.slices("GPU-h200"):
        again.destroy(each)
    assert again.create("GPU-h200", "1g.18gb", 3).whole


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_random_creates_and_destroys_never_overlap_and_end_empty(seed):
    rng = Random(seed)
    driver, nvml = machine()
    (gpu,) = driver.discover()
    held = []
    for _ in range(40):
        if held and rng.random() < 0.4:
            driver.destroy(held.pop(rng.randrange(len(held))))
        else:
            profile = rng.choice(gpu.model.profiles)
            with suppress(SlotTaken):
                held.append(driver.create(gpu.uuid, profile.name, rng.choice(profile.starts)))
        listed = driver.slices(gpu.uuid)
        assert set(listed) == set(held)
        covered = [each.placement.mask for each in listed]
        assert sum(covered) == sum(1 << bit for bit in range(8) if any(mask >> bit & 1 for mask in covered))
    for each in held:
        driver.destroy(each)
    assert not nvml.cards[0].instances


def test_the_boot_id_is_the_kernels():
    driver, _ = machine()
    assert driver.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_the_fake_knows_only_functions_that_the_binding_has():
    fake = [name for name in vars(FakeNvml) if name.startswith("nvml")]
    assert fake and all(callable(getattr(pynvml, name)) for name in fake)
