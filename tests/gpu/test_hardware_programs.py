"""Programs in slices of a real GPU: each sees its own, and none loses it while it runs."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from patience import destroyed

from instaslice.drivers import InUse

HERE = Path(__file__).parent
GIB = 1 << 30


def program(name, mig_uuid, *arguments):
    """Starts it with the slice as its only GPU, and with the machine's own packages."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, HERE / name, *map(str, arguments)],
        env={**environment, "CUDA_VISIBLE_DEVICES": mig_uuid},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(60)
def test_a_slice_in_use_is_not_destroyed_and_goes_as_soon_as_its_process_ends(driver, gpu):
    made = driver.create(gpu.uuid, gpu.model.profiles[0].name, 2)
    holder = program("cuda_program.py", made.mig_uuid)
    try:
        assert holder.stdout.readline().startswith("ready")
        for _ in range(3):
            with pytest.raises(InUse) as caught:
                driver.destroy(made)
        print(caught.value)
        assert any(words.startswith(f"pid {holder.pid} (") for words in caught.value.holders)
        assert driver.slices(gpu.uuid) == (made,), "it is whole: the program goes on"
    finally:
        holder.kill()
        holder.wait()
    seconds = destroyed(driver, made)
    print(f"destroyed {seconds * 1000:.0f} ms after its process was killed")
    assert driver.slices(gpu.uuid) == ()


@pytest.mark.timeout(200)
def test_pytorch_runs_in_all_slices_at_once_and_each_sees_only_its_own_memory(driver, gpu):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed here")
    smallest = gpu.model.profiles[0]
    whole = max(profile.memory_mib for profile in gpu.model.profiles) << 20
    size = smallest.memory_mib << 20
    fill = size // GIB // 2
    made = [driver.create(gpu.uuid, smallest.name, start) for start in smallest.starts[: smallest.limit]]
    programs = [program("torch_program.py", each.mig_uuid, number, fill) for number, each in enumerate(made)]
    try:
        first = [json.loads(each.stdout.readline()) for each in programs]
        for each in programs:
            each.stdin.write("\n")
            each.stdin.flush()
        second = [json.loads(each.stdout.readline()) for each in programs]
        assert [each.wait() for each in programs] == [0] * len(programs)
    finally:
        for each in programs:
            each.kill()
            each.wait()
    print(f"{len(programs)} programs: {first[0]} {second[0]}")
    for before, after in zip(first, second, strict=True):
        assert before["devices"] == 1 and before["computed"]
        assert size * 0.9 <= before["total"] <= size * 1.05 < whole / 4
        assert after["kept"], "nobody wrote into its memory"
        assert after["refused"], "nobody gets more than the slice has"
        assert fill * GIB <= after["used"] <= (fill + 2) * GIB, "the memory of the others is not counted here"
    for each in made:
        destroyed(driver, each)


@pytest.mark.timeout(60)
def test_slices_come_and_go_while_health_is_watched(driver, gpu):
    told = []
    watcher = threading.Thread(target=lambda: told.append(driver.watch_health(gpu.uuid, None, 4)), daemon=True)
    watcher.start()
    until = time.monotonic() + 3
    while time.monotonic() < until:
        driver.destroy(driver.create(gpu.uuid, gpu.model.profiles[0].name, 0))
    watcher.join(timeout=20)
    assert told == [None]
