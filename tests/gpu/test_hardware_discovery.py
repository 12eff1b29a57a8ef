"""What the driver finds on a real GPU."""

import pynvml
import pytest

from instaslice.geometry import models

H200 = {
    "1g.18gb": ((0, 1, 2, 3, 4, 5, 6), 1),
    "1g.18gb+me": ((0, 1, 2, 3, 4, 5, 6), 1),
    "1g.35gb": ((0, 2, 4, 6), 2),
    "2g.35gb": ((0, 2, 4), 2),
    "3g.71gb": ((0, 4), 4),
    "4g.71gb": ((0,), 4),
    "7g.141gb": ((0,), 8),
}
"""Profiles with their starts and size, as read from an H200 before."""


@pytest.fixture
def h200(gpu):
    if gpu.model.name != "NVIDIA H200":
        pytest.skip(f"this is {gpu.model.name}, and the table is an H200's")
    return gpu.model


def test_an_h200_has_the_placements_that_were_measured_before(h200):
    assert {p.name: (p.starts, p.size) for p in h200.profiles} == H200
    assert (h200.memory_slices, h200.compute_slices) == (8, 7)
    assert [p.name for p in h200.profiles if p.limit == 1] == ["1g.18gb+me", "4g.71gb", "7g.141gb"]


def test_the_table_of_models_says_the_same(h200):
    table = models.named("H200")

    def facts(model):
        return {p.name: (p.starts, p.size, p.compute, p.limit, p.nvml_enum, p.gi_id) for p in model.profiles}

    assert facts(h200) == facts(table)


def test_no_gpu_is_ill(driver, gpu):
    assert driver.watch_health(gpu.uuid, None, 0) is None


def test_each_slice_has_all_multiprocessors_of_its_size(driver, gpu, h200):
    wanted, found = {}, {}
    for profile in h200.profiles:
        made = driver.create(gpu.uuid, profile.name, profile.starts[0])
        device = pynvml.nvmlDeviceGetHandleByUUID(made.mig_uuid)
        found[profile.name] = pynvml.nvmlDeviceGetAttributes_v2(device).multiprocessorCount
        wanted[profile.name] = models.named("H200").profile(profile.name).sms
        driver.destroy(made)
    print(f"multiprocessors: {found}")
    assert found["1g.35gb"] == 26
    assert found == wanted
