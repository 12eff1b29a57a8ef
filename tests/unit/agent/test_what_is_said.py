"""The small pieces: what a node advertises, which part of a status is written, how faults are spelled."""

import msgspec
import pytest
from agent_bench import A100, Bench

from instaslice.agent import fault_annotation, report
from instaslice.agent.resources import advertised, correction
from instaslice.api.instaslice import INSTASLICES, SliceState
from instaslice.errors import BadInput
from instaslice.geometry import models
from instaslice.kube.core import NodeStatus


@pytest.mark.parametrize(
    "gpus, told",
    [
        pytest.param(
            ["A100-40GB"] * 2,
            {"1g.5gb": 14, "1g.5gb.me": 2, "1g.10gb": 8, "2g.10gb": 6, "3g.20gb": 4, "4g.20gb": 2, "7g.40gb": 2},
            id="two A100s",
        ),
        pytest.param(["A100-40GB", "H200-141GB"], {"1g.5gb": 7, "1g.18gb": 7, "7g.141gb": 1}, id="of two kinds"),
    ],
)
def test_a_node_advertises_the_most_of_each_profile(gpus, told):
    found = advertised([models.named(each) for each in gpus])
    assert {name: int(found[f"gpu.das.com/mig-{name}"]) for name in told} == told


def test_memory_is_the_largest_sum_of_labels():
    assert advertised([models.named("H200-141GB")])["gpu.das.com/mem"] == "143"


@pytest.mark.parametrize("gpus, most", [(["A100-40GB"], "7"), (["A30", "A100-40GB"], "11"), (["H200-141GB"] * 8, "56")])
def test_slices_of_whatever_profile_are_as_many_as_the_gpus_hold(gpus, most):
    assert advertised([models.named(each) for each in gpus])["gpu.das.com/mig-any"] == most


def test_only_what_differs_on_a_node_is_corrected_and_what_is_no_longer_there_is_removed():
    wanted = {"gpu.das.com/mem": "40"}
    right = {"cpu": "8", "gpu.das.com/mem": "40"}
    stale = {"cpu": "8", "gpu.das.com/mem": "80", "gpu.das.com/mig-1g.5gb": "7"}
    assert correction(NodeStatus(capacity=right, allocatable=right), wanted) == {}
    assert correction(NodeStatus(capacity=right, allocatable=stale), wanted) == {
        "status": {"allocatable": {"gpu.das.com/mem": "40", "gpu.das.com/mig-1g.5gb": None}}
    }


def test_only_the_fields_that_changed_are_written():
    bench = Bench()
    bench.work()
    first = bench.written
    assert [op.path for op in report.patch(None, first)] == ["/status"]
    assert report.patch(first, first) == []
    bench.write(bench.wants("a-0"))
    bench.work()
    ops = report.patch(first, bench.written)
    assert [op.path for op in ops] == ["/status/observedGeneration", "/status/slices", "/status/summary"]
    gone = msgspec.structs.replace(bench.written, slices=())
    assert msgspec.json.encode(report.patch(bench.written, gone)[0].value) == b"[]"


def test_nobody_waits_to_hear_which_spec_was_seen_or_that_an_entry_is_gone():
    bench = Bench()
    bench.work()
    first = bench.written
    bench.write(bench.wants("a-0"))
    bench.work()
    made = bench.written
    assert report.urgent(None, first)
    assert report.urgent(first, made), "its pod waits for it"
    gone = msgspec.structs.replace(made, observed_generation=9, slices=(), summary=None)
    assert not report.urgent(made, gone)
    assert report.urgent(made, msgspec.structs.replace(gone, boot_id="another"))
    assert not report.urgent(made, made)


def test_somebody_may_wait_for_the_slot_of_a_slice_that_nobody_asked_for():
    bench = Bench(grace=60)
    bench.driver.create(bench.gpus[0], "2g.10gb", 2)
    bench.work()
    before = bench.written
    assert before.slices[0].state is SliceState.FOREIGN
    assert report.urgent(before, msgspec.structs.replace(before, slices=()))


def test_more_is_to_come_while_a_slice_is_made_or_destroyed():
    bench = Bench()
    bench.write(bench.wants("a-0"))
    bench.work()
    (made,) = bench.written.slices
    for state in SliceState:
        status = msgspec.structs.replace(bench.written, slices=(msgspec.structs.replace(made, state=state),))
        assert report.in_progress(status) == (state in (SliceState.CREATING, SliceState.DELETING)), state


def test_who_holds_a_slice_is_said_of_those_that_no_allocation_names_alone():
    bench = Bench()
    bench.write(bench.wants("a-0"), bench.wants("b-0", "1g.5gb", 1))
    bench.work()
    mine, other = bench.written.slices
    other = msgspec.structs.replace(other, id="MIG-1", state=SliceState.FOREIGN)
    status = msgspec.structs.replace(bench.written, slices=(mine, other))
    said = report.with_holders(status, lambda place: f"holder of {place.profile} at {place.start}")
    assert [each.holder for each in said.slices] == [None, f"holder of {other.profile} at {other.start}"]


def test_a_status_is_the_same_when_it_comes_back():
    bench = Bench(gpus=2)
    bench.write(bench.wants("a-0", "3g.20gb", 4))
    bench.work()
    back = INSTASLICES.decoder.decode(msgspec.json.encode({"metadata": {"name": "node"}, "status": bench.written}))
    assert back.status == bench.written, "otherwise it would be written anew each minute"


@pytest.mark.parametrize(
    "text, read",
    [
        pytest.param("", [], id="none"),
        pytest.param("0 lost", [(0, "lost", "", 0)], id="a failing GPU"),
        pytest.param("1 lost Xid 48: DBE", [(1, "lost", "Xid 48: DBE", 0)], id="for a reason"),
        pytest.param("0 hang; 1 held 4 ;", [(0, "hang", "", 0), (1, "held", "", 4)], id="two"),
        pytest.param("0 refuse", [(0, "refuse", "", fault_annotation.EVERY)], id="every create"),
        pytest.param("0 refuse 3", [(0, "refuse", "", 3)], id="three creates"),
        pytest.param("0 monitored 2", [(0, "monitored", "", 2)], id="a monitor"),
    ],
)
def test_how_faults_are_spelled(text, read):
    assert [(each.gpu, each.kind, each.message, each.number) for each in fault_annotation.parse(text)] == read


@pytest.mark.parametrize("text", ["lost", "0", "0 melts", "0 held", "0 held x", "0 hang 3", "a lost", "0 refuse many"])
def test_what_is_no_fault_is_refused_with_what_would_be_one(text):
    with pytest.raises(BadInput, match="is not a fault; write `0 lost`"):
        fault_annotation.parse(text)


def test_faults_become_what_is_written_and_no_more():
    bench = Bench(gpus=2)
    first, second = bench.gpus
    told = bench.driver.faults
    fault_annotation.apply(fault_annotation.parse("0 lost; 1 hang; 1 refuse 1; 0 monitored 4"), told, bench.gpus)
    assert told.watch(first, None, 0).message.startswith("Xid 79: GPU has fallen off the bus; ")
    assert (told.hangs(first), told.hangs(second)) == (False, True)
    assert told.held(first, 4).monitor
    fault_annotation.apply(fault_annotation.parse("1 hang; 0 held 4"), told, bench.gpus)
    assert (told.watch(first, None, 0), told.hangs(second), told.take_refusal(second)) == (None, True, False)
    assert not told.held(first, 4).monitor


def test_a_fault_on_a_gpu_that_is_not_there():
    bench = Bench(gpus=2)
    with pytest.raises(BadInput, match="fault on GPU 2: the node has 2"):
        fault_annotation.apply(fault_annotation.parse("2 lost"), bench.driver.faults, bench.gpus)


def test_free_memory_and_slices_stand_in_the_summary():
    bench = Bench(gpus=2)
    bench.write(bench.wants("a-0", "3g.20gb", 4))
    bench.work()
    assert (bench.written.summary.slices, bench.written.summary.free_memory) == (1, "60/80 GB")
    assert [each.name for each in bench.written.models] == [A100.name]
