"""What Prometheus and dcgm-exporter are told of a node: the slices that exist now, and how the hardware did."""

import json
import logging

import msgspec
import pytest
from process_bench import Bench, wants

from instaslice.agent.job_mapping import RECORD, JobMapping
from instaslice.api.instaslice import InstasliceStatus
from instaslice.errors import BadInput
from instaslice.kube.errors import Unreachable


@pytest.fixture
async def bench(tmp_path):
    async with Bench(jobs=tmp_path / "jobs") as made:
        yield made


def value(bench, name, **labels):
    return bench.registry.get_sample_value(f"instaslice_{name}", labels)


def slices(bench):
    """The labels of each slice that exists."""
    return [
        sample.labels
        for family in bench.registry.collect()
        if family.name == "instaslice_slice"
        for sample in family.samples
    ]


def files(bench):
    """File → what it says, without our record."""
    return {each.name: each.read_text() for each in bench.jobs.iterdir() if each.name != RECORD}


async def test_a_slice_is_known_from_its_creation_to_its_end(bench):
    driver = await bench.node()
    assert (slices(bench), files(bench)) == ([], {})
    bench.promise(wants(driver, "train", profile="3g.20gb", start=4))
    await bench.passes(0)
    gpu = driver.discover()[0].uuid
    (held,) = driver.slices(gpu)
    assert slices(bench) == [
        {
            "UUID": gpu, "GPU_I_ID": str(held.gi), "GPU_I_PROFILE": "3g.20gb", "mig_uuid": held.mig_uuid,
            "namespace": "team", "pod": "train", "container": "main",
        }
    ]  # fmt: skip
    assert files(bench) == {f"0.{held.gi}": "team/train\n"}
    assert value(bench, "slices", node="node", state="created") == 1
    bench.promise(wants(driver, "train", profile="3g.20gb", start=4, state="deleting"))
    await bench.passes(0)
    assert (slices(bench), files(bench)) == ([], {})
    assert value(bench, "slices", node="node", state="deleted") == 1


async def test_a_slice_that_cannot_be_destroyed_is_still_its_pods(bench):
    driver = await bench.node()
    bench.promise(wants(driver, "train"))
    await bench.passes(0)
    driver.faults.hold(driver.discover()[0].uuid, 0, "pid 7 (monitor)")
    bench.promise(wants(driver, "train", state="deleting"))
    await bench.passes(0)
    assert [each["pod"] for each in slices(bench)] == ["train"]
    assert value(bench, "slice_operation_errors_total", operation="destroy", profile="1g.5gb", reason="InUse") == 1


async def test_what_the_hardware_took_and_refused(bench, caplog):
    caplog.set_level(logging.INFO, "instaslice.agent.agent_process")
    driver = await bench.node()
    gpu = driver.discover()[0].uuid
    driver.faults.refuse(gpu)
    bench.promise(wants(driver, "a"), wants(driver, "b", start=1))
    await bench.passes(0)
    assert value(bench, "slice_operation_seconds_count", operation="create", profile="1g.5gb") == 2
    assert value(bench, "slice_operation_errors_total", operation="create", profile="1g.5gb", reason="SlotTaken") == 1
    lines = [
        (each.levelname, each.pod, each.uid, each.node, each.gpu) for each in caplog.records if hasattr(each, "pod")
    ]
    assert lines == [
        ("WARNING", "team/a", "uid-a", "node", gpu),
        ("INFO", "team/b", "uid-b", "node", gpu),
    ]


async def test_a_profile_that_the_gpu_does_not_have_makes_no_series(bench):
    driver = await bench.node()
    bench.promise(msgspec.structs.replace(wants(driver, "a"), profile="17g.1gb"))
    await bench.passes(0)
    assert value(bench, "slice_operation_seconds_count", operation="create", profile="other") == 1
    assert value(bench, "slice_operation_seconds_count", operation="create", profile="17g.1gb") is None


async def test_the_health_of_gpus_and_node(bench):
    driver = await bench.node(gpus=2)
    first, second = (each.uuid for each in driver.discover())
    labels = {"node": "node", "model": "A100-40GB"}
    assert value(bench, "gpu_healthy", UUID=second, gpu="1", **labels) == 1
    assert value(bench, "node_ready", node="node") == 1
    driver.faults.fail(second)
    await bench.passes(61)
    assert value(bench, "gpu_healthy", UUID=second, gpu="1", **labels) == 0
    assert value(bench, "gpu_healthy", UUID=first, gpu="0", **labels) == 1


async def test_an_agent_is_ready_once_its_node_is_reported():
    bench = Bench()
    async with bench:
        assert bench.agent.not_ready.startswith("there is no node")
        bench.server.error = Unreachable("away")
        await bench.node()
        assert bench.agent.not_ready == "1 of 1 nodes are not reported yet"
        bench.server.error = None
        await bench.passes(3)
        assert bench.agent.not_ready == ""


async def test_a_status_that_could_not_be_written_is_not_reported(bench):
    driver = await bench.node()
    assert bench.agent.not_ready == ""
    await bench.stop()
    bench.promise(wants(driver, "train"))
    bench.server.error = Unreachable("away")
    bench.start()
    await bench.passes(0)
    assert bench.agent.not_ready == "1 of 1 nodes are not reported yet"
    bench.server.error = None
    await bench.passes(3)
    assert bench.agent.not_ready == ""


async def test_an_agent_that_says_why_it_cannot_serve_is_ready():
    async with Bench() as bench:
        await bench.node(model="no-such-gpu")
        assert bench.condition("Ready").reason == "NoDriver"
        assert bench.agent.not_ready == ""


# Files for dcgm-exporter ----------------------------------------------------------------------------------------------


async def test_files_that_an_earlier_process_left_go_and_those_of_others_stay(bench):
    driver = await bench.node()
    bench.promise(wants(driver, "train"))
    await bench.passes(0)
    (ours,) = files(bench)
    (bench.jobs / "0.99").write_text("slurm-17\n")
    await bench.stop()
    bench.promise()
    driver.destroy(driver.slices(driver.discover()[0].uuid)[0])
    bench.start()
    await bench.passes(0)
    assert files(bench) == {"0.99": "slurm-17\n"}
    assert ours not in json.loads((bench.jobs / RECORD).read_text())


async def test_a_file_of_another_is_not_overwritten(bench, caplog):
    driver = await bench.node()
    first = wants(driver, "train")
    bench.promise(first)
    await bench.passes(0)
    (name,) = files(bench)
    bench.promise(msgspec.structs.replace(first, state="deleting"))
    await bench.passes(0)
    (bench.jobs / name).write_text("slurm-17\n")
    bench.promise(wants(driver, "again"))
    await bench.passes(61)
    assert files(bench) == {name: "slurm-17\n"}
    assert len([each for each in caplog.messages if f"{bench.jobs / name} is not ours" in each]) == 1


async def test_a_folder_that_cannot_be_written_any_more_stops_no_slice(bench, caplog):
    driver = await bench.node()
    for each in bench.jobs.iterdir():
        each.unlink()
    bench.jobs.rmdir()
    bench.jobs.write_text("a file in its place")
    bench.promise(wants(driver, "train"))
    await bench.passes(0)
    assert bench.states() == {"train": "created"}
    assert "dcgm-exporter is not told which pods have slices" in caplog.text


def test_a_folder_that_cannot_be_made_is_an_error_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"--dcgm-job-mapping-dir .*/file: .*; give a folder that the agent may write"):
        JobMapping(tmp_path / "file")


@pytest.mark.parametrize("record", [b"", b'["0.', b"\xff", b"{}", b'["../precious"]', b'["0.1", "7"]'])
def test_a_record_that_makes_no_sense_is_written_again_and_removes_nothing(tmp_path, caplog, record):
    (tmp_path / RECORD).write_bytes(record)
    (tmp_path / "0.1").write_text("slurm-17\n")
    JobMapping(tmp_path).update(InstasliceStatus(observed_generation=1), {})
    assert (tmp_path / RECORD).read_bytes() == b"[]"
    assert (tmp_path / "0.1").exists()
    assert "remove the files" in caplog.text
