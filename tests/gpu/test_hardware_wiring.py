"""What a container needs of a real slice is really there."""

import stat
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="what nvidia-ctk writes is YAML")

from instaslice.agent.kubelet.wiring import NvidiaWiring


@pytest.mark.timeout(60)
def test_every_device_of_a_slice_is_a_device_of_the_machine(driver, gpu):
    made = driver.create(gpu.uuid, gpu.model.profiles[0].name, 0)
    told = NvidiaWiring(driver.minor, driver.capabilities).edits(made).document()
    print(told)
    nodes = {Path(node["path"]): node for node in told["deviceNodes"]}
    assert {Path(f"/dev/nvidia{driver.minor(gpu.uuid)}"), Path("/dev/nvidiactl")} <= nodes.keys()
    caps = [node for path, node in nodes.items() if path.parent.name == "nvidia-caps"]
    assert len(caps) == 2
    assert all(node["major"] > 0 and node["minor"] > 0 for node in caps)
    for path, node in nodes.items():
        if "major" not in node:  # those the runtime makes by itself, whether they are there or not
            assert stat.S_ISCHR(path.stat().st_mode)
