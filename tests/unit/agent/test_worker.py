"""When things are tried again, and what is left alone."""

import msgspec
import pytest
from agent_bench import Bench

from instaslice.drivers import Unhealthy


def test_a_held_slice_is_tried_again_ever_slower_and_goes_when_it_is_let_go():
    bench = Bench()
    bench.write(bench.wants("a-0"))
    bench.work()
    bench.driver.faults.hold(bench.gpus[0], 0, "pid 4711 (python)")
    bench.write(bench.wants("a-0", state="deleting"))
    waits = []
    for _ in range(8):
        assert bench.work() == {"a-0": "deleting"}
        assert "pid 4711 (python)" in bench.written.slices[0].reason
        waits.append(bench.agent.next_due())
        bench.clock.advance(waits[-1])
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    bench.driver.faults.release(bench.gpus[0], 0)
    assert bench.work() == {"a-0": "deleted"}
    assert bench.agent.next_due() is None


def test_what_kept_a_slice_that_is_gone_by_now_is_not_said_of_the_next_in_its_place():
    bench = Bench(keep_foreign=True)
    bench.write(bench.wants("a-0"))
    bench.work()
    bench.driver.faults.hold(bench.gpus[0], 0, "pid 4711 (python)")
    bench.write(bench.wants("a-0", state="deleting"))
    bench.work()
    bench.driver.faults.release(bench.gpus[0], 0)
    (held,) = bench.driver.slices(bench.gpus[0])
    bench.driver.destroy(held)
    bench.agent.reread()
    bench.write()
    bench.work()
    bench.driver.create(bench.gpus[0], "1g.5gb", 0)
    bench.agent.reread()
    bench.work()
    assert [(each.state, each.reason) for each in bench.written.slices] == [("foreign", "")]


def test_a_refused_create_is_said_once_and_not_tried_again():
    bench = Bench()
    bench.driver.faults.refuse(bench.gpus[0])
    bench.write(bench.wants("a-0"))
    for _ in range(3):
        assert bench.work() == {"a-0": "failed"}
    assert len(bench.failures) == 1
    bench.restart()
    assert bench.work() == {"a-0": "failed"}
    assert len(bench.failures) == 1


def test_a_slice_that_somebody_made_in_the_very_place_is_taken_over():
    bench = Bench()
    bench.work()
    bench.driver.create(bench.gpus[0], "1g.5gb", 0)
    bench.write(bench.wants("a-0"))
    assert bench.work() == {"a-0": "created"}


def test_what_is_in_the_way_is_reported_and_the_create_fails():
    bench = Bench(keep_foreign=True)
    bench.work()
    made = bench.driver.create(bench.gpus[0], "2g.10gb", 0)
    bench.write(bench.wants("a-0"))
    assert bench.work() == {"a-0": "failed", made.mig_uuid: "foreign"}


@pytest.mark.parametrize(
    "keep, left", [pytest.param(False, [], id="destroyed"), pytest.param(True, [("2g.10gb", 2)], id="kept")]
)
def test_a_foreign_slice_after_the_grace(keep, left):
    bench = Bench(grace=60, keep_foreign=keep)
    bench.driver.create(bench.gpus[0], "2g.10gb", 2)
    bench.work()
    assert bench.agent.next_due() == (None if keep else 60)
    bench.clock.advance(59)
    bench.work()
    assert bench.there() == [("2g.10gb", 2)]
    bench.clock.advance(1)
    bench.work()
    assert bench.there() == left


def test_where_slices_of_others_are_kept_ours_go_all_the_same():
    bench = Bench(grace=60, keep_foreign=True)
    bench.driver.create(bench.gpus[0], "2g.10gb", 2)
    bench.write(bench.wants("a-0"))
    bench.work()
    bench.write()  # its allocation left without waiting for it
    bench.work()
    bench.write(bench.wants("b-0", start=1))  # which is decided upon anew meanwhile
    bench.work()
    bench.clock.advance(60)
    bench.work()
    assert bench.there() == [("1g.5gb", 1), ("2g.10gb", 2)]


def test_a_slice_whose_allocation_comes_back_within_the_grace_is_kept():
    bench = Bench(grace=60)
    bench.write(bench.wants("a-0", state="creating"))
    bench.work()
    bench.write()
    bench.work()
    bench.clock.advance(59)
    bench.write(bench.wants("a-0", state="ungated"))
    assert bench.work() == {"a-0": "created"}
    bench.clock.advance(3600)
    assert bench.work() == {"a-0": "created"}


def test_a_gpu_that_is_well_again_is_tried_at_once():
    bench = Bench()
    bench.write(bench.wants("a-0"))
    bench.work()
    bench.driver.faults.fail(bench.gpus[0], "Xid 79")
    bench.write(bench.wants("a-0", state="deleting"))
    assert bench.work() == {"a-0": "deleting"}
    assert bench.agent.next_due() > 0, "the next try is still to come"
    bench.driver.faults.heal(bench.gpus[0])
    assert bench.work() == {"a-0": "deleted"}


def test_what_a_reset_took_from_a_gpu_is_missed_when_it_is_well_again():
    bench = Bench()
    bench.write(bench.wants("a-0"))
    bench.work()
    bench.write(bench.wants("a-0", state="ungated"))
    unhealthy = [Unhealthy("Xid 48")]
    bench.driver.watch_health = lambda *_: unhealthy[0]
    bench.work()
    bench.driver.destroy(bench.driver.slices(bench.gpus[0])[0])
    unhealthy[0] = None
    assert bench.work() == {"a-0": "failed"}
    assert bench.written.slices[0].reason == "slice lost: it is not on the GPU any more"


def test_a_slice_that_goes_missing_long_after_a_boot_is_not_laid_to_it():
    bench = Bench()
    bench.work()
    bench.driver.reboot()
    bench.work()
    bench.write(bench.wants("a-0"))
    bench.work()
    bench.write(bench.wants("a-0", state="ungated"))
    bench.work()
    bench.driver.destroy(bench.driver.slices(bench.gpus[0])[0])
    bench.agent.reread()
    assert bench.work() == {"a-0": "failed"}
    assert bench.written.slices[0].reason == "slice lost: it is not on the GPU any more"


def test_a_boot_under_a_running_pod_is_told_as_what_took_its_slice():
    bench = Bench()
    bench.write(bench.wants("a-0"))
    bench.work()
    bench.write(bench.wants("a-0", state="ungated"))
    bench.work()
    bench.driver.reboot()
    assert bench.work() == {"a-0": "failed"}
    assert bench.written.slices[0].reason.startswith("slice lost: the node was restarted (boot ")


@pytest.mark.parametrize("state, told", [("creating", "failed"), ("ungated", "failed"), ("deleting", "deleted")])
def test_an_allocation_on_a_gpu_that_is_not_in_the_node(state, told):
    bench = Bench()
    bench.write(msgspec.structs.replace(bench.wants("a-0", state=state), gpu="GPU-elsewhere"))
    assert bench.work() == {"a-0": told}
    assert ("is not in this node (it has GPU-" in bench.written.slices[0].reason) == (told == "failed")
