"""What containers are given: the files that a runtime reads, and what stands in them for real GPUs."""

import json

import pytest

from instaslice.agent.kubelet import cdi
from instaslice.agent.kubelet.cdi import CdiFolder, Edits
from instaslice.agent.kubelet.device_ids import DeviceId
from instaslice.agent.kubelet.wiring import EmulatedWiring, NvidiaWiring
from instaslice.drivers import DriverError, GpuUuid, MigUuid, Slice
from instaslice.geometry import Placement

ONE, TWO = DeviceId("1g.5gb-0"), DeviceId("1g.5gb.me-1")
HELD = Slice(GpuUuid("GPU-7"), Placement("1g.5gb", 0, 1), 9, 0, MigUuid("MIG-1"))
CTK = """
cdiVersion: "0.5.0"
kind: nvidia.com/gpu
devices: [{name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}]
containerEdits:
  deviceNodes: [{path: /dev/nvidiactl}]
  hooks: [{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, update-ldcache]}]
  mounts: [{hostPath: /lib/libcuda.so, containerPath: /lib/libcuda.so, options: [ro, bind]}]
"""


def test_a_file_names_its_device_as_the_kubelet_asks_for_it():
    told = json.loads(cdi.specification(ONE, Edits(env={"A": "b"}), {"gpu.das.com/pod": "a/b"}))
    assert cdi.device(ONE) == f"{told['kind']}={told['devices'][0]['name']}" == "gpu.das.com/slice=1g.5gb-0"
    assert told["cdiVersion"] == "0.6.0"
    assert told["devices"][0]["containerEdits"] == {"env": ["A=b"]}


def test_the_folder_becomes_what_is_asked_and_leaves_others_alone(tmp_path):
    other = tmp_path / "nvidia.yaml"
    other.write_text("theirs")
    folder = CdiFolder(tmp_path)
    folder.replace({ONE: b"one", TWO: b"two"})
    assert CdiFolder(tmp_path).devices() == {ONE, TWO}
    CdiFolder(tmp_path).replace({TWO: b"new"})
    assert CdiFolder(tmp_path).devices() == {TWO}
    folder.remove(TWO)
    folder.remove(TWO)
    assert [each.name for each in tmp_path.iterdir()] == ["nvidia.yaml"]


def test_an_emulated_slice_is_a_name_and_no_device():
    assert EmulatedWiring().edits(HELD).document() == {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}


@pytest.fixture
def host(tmp_path):
    """A machine with two GPUs, as far as files tell."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    for name in ("nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    (tmp_path / "proc/devices").write_text("Character devices:\n195 nvidia\n511 nvidia-caps\n")
    return tmp_path


def wiring(host, minors=(120, 121), specs=()):
    return NvidiaWiring(lambda _gpu: 1, lambda _held: minors, dev=host / "dev", proc=host / "proc", specs=specs)


def test_a_real_slice_brings_its_gpu_both_capabilities_and_what_the_driver_has(host):
    spec = host / "nvidia.yaml"
    spec.write_text(CTK)
    told = wiring(host, specs=(host / "missing.yaml", spec)).edits(HELD).document()
    assert [node["path"] for node in told["deviceNodes"]] == [
        "/dev/nvidia1",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-caps/nvidia-cap120",
        "/dev/nvidia-caps/nvidia-cap121",
    ]
    assert told["deviceNodes"][-1]["major"] == 511
    assert told["mounts"][0]["hostPath"] == "/lib/libcuda.so"
    assert told["hooks"][0]["path"] == "/usr/bin/nvidia-cdi-hook"
    assert told["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]


def test_a_slice_without_capabilities_is_refused_with_the_remedy(host):
    with pytest.raises(DriverError, match="--proc"):
        wiring(host, minors=(120,)).edits(HELD)


def test_a_specification_that_is_none_is_named(host):
    bad = host / "nvidia.yaml"
    bad.write_text("- nothing\n- of it")
    with pytest.raises(DriverError, match=r"nvidia\.yaml"):
        wiring(host, specs=(bad,)).edits(HELD)


def test_a_module_without_capabilities_is_named_with_the_remedy(host):
    (host / "proc/devices").write_text("Character devices:\n195 nvidia\n")
    with pytest.raises(DriverError, match="load the nvidia module with MIG support"):
        wiring(host).edits(HELD)
