"""The condition that says which GPUs cannot be used, and a GPU that does not answer when the agent starts."""

import pytest
from agent_bench import Bench

from instaslice.api.bounds import MAX_MESSAGE
from instaslice.api.instaslice import Health
from instaslice.drivers import Unhealthy, UnhealthyReason

RESET = Unhealthy("MIG mode will be enabled by the next reset: nvidia-smi --gpu-reset", UnhealthyReason.RESET)
HUNG = Unhealthy("it has not said how it is; reset it", UnhealthyReason.HUNG)
XID = Unhealthy("Xid 79")


def condition(bench, name="GpusReady"):
    (found,) = [each for each in bench.written.conditions if each.type == name]
    return found


def ail(bench, *unhealthy):
    """What the driver says of each GPU from now on."""
    told = dict(zip(bench.gpus, unhealthy, strict=False))
    bench.driver.watch_health = lambda gpu, known, seconds: told.get(gpu)
    bench.work()


@pytest.mark.parametrize(
    "unhealthy, status, reason, says",
    [
        pytest.param([], "True", "AllWell", [], id="all well"),
        pytest.param([None, RESET], "False", "ResetNeeded", ["GPU 1 (GPU-", RESET.message], id="an Ampere waits"),
        pytest.param([HUNG], "False", "GpuHung", ["GPU 0 (GPU-", HUNG.message], id="one hangs"),
        pytest.param([XID], "False", "GpuUnhealthy", ["Xid 79"], id="an Xid"),
        pytest.param([XID, RESET], "False", "ResetNeeded", ["Xid 79", RESET.message], id="the worst is the reason"),
        pytest.param([RESET, HUNG], "False", "GpuHung", [RESET.message, HUNG.message], id="and all are named"),
    ],
)
def test_the_condition_names_every_gpu_that_cannot_be_used(unhealthy, status, reason, says):
    bench = Bench(gpus=2)
    ail(bench, *unhealthy)
    told = condition(bench)
    assert (told.status, told.reason) == (status, reason)
    assert all(each in told.message for each in says)
    assert [gpu.health is Health.HEALTHY for gpu in bench.written.gpus] == [
        not (unhealthy[number] if number < len(unhealthy) else None) for number in range(2)
    ]
    assert condition(bench, "Ready").status == "True", "the agent serves all the same"


def test_where_no_kubelet_listens_the_node_is_not_ready_and_says_why():
    bench = Bench(gpus=1)
    bench.work()
    silent = bench.agent.status("no kubelet at /var/lib/kubelet").conditions[0]
    assert (silent.type, silent.status, silent.reason) == ("Ready", "False", "KubeletSilent")
    assert silent.message == "no kubelet at /var/lib/kubelet"
    assert bench.agent.status().conditions[0].reason == "Serving"


def test_nothing_is_made_where_a_reset_is_needed_until_it_was_done():
    bench = Bench(gpus=2)
    ail(bench, RESET)
    bench.write(bench.wants("a-0"), bench.wants("a-1", gpu=1))
    assert bench.work() == {"a-0": "failed", "a-1": "created"}
    assert (bench.there(0), bench.there(1)) == ([], [("1g.5gb", 0)])
    ail(bench)
    bench.write(bench.wants("a-2"), bench.wants("a-1", gpu=1))
    assert bench.work()["a-2"] == "created"
    assert condition(bench).status == "True"


def test_the_condition_keeps_its_time_while_its_status_stays_also_over_a_restart():
    bench = Bench(gpus=2)
    ail(bench, XID)
    since = condition(bench).last_transition_time
    bench.clock.advance(100)
    ail(bench, HUNG)
    assert (condition(bench).reason, condition(bench).last_transition_time) == ("GpuHung", since)
    bench.restart()
    bench.work()
    assert condition(bench).last_transition_time == since
    ail(bench)
    assert condition(bench).last_transition_time > since
    assert condition(bench, "Ready").last_transition_time < condition(bench).last_transition_time


def test_a_condition_is_no_longer_than_the_server_takes():
    bench = Bench(gpus=8)
    ail(bench, *[Unhealthy("word " * 100)] * 8)
    assert len(condition(bench).message) == MAX_MESSAGE


async def test_a_gpu_that_hangs_in_a_call_is_in_the_condition_too(monkeypatch):
    bench = Bench()
    bench.agent._context.executor.deadline = 0.2
    bench.driver.faults.hang(bench.gpus[0])
    bench.work()
    await bench.agent._workers[bench.gpus[0]]._task
    bench.work()
    assert condition(bench).reason == "GpuHung"
    gpu = bench.gpus[0]
    assert condition(bench).message.startswith(f"GPU 0 ({gpu}): list slices has not returned after 0.2 s; look")
    assert f"nvidia-smi --gpu-reset -i {gpu}" in condition(bench).message
    bench.driver.faults.heal(bench.gpus[0])


# A GPU that does not answer when the agent starts ----------------------------------------------------------------


def test_one_that_nobody_knows_yet_is_named_by_its_index_and_served_when_it_answers():
    bench = Bench(gpus=2)
    bench.driver.hushed = (1,)
    bench.restart()
    bench.work()
    assert [gpu.index for gpu in bench.written.gpus] == [0]
    assert condition(bench).reason == "GpuHung"
    assert "GPU 1 (UUID not known): it does not answer" in condition(bench).message
    bench.write(bench.wants("a-0"))
    assert bench.work() == {"a-0": "created"}

    bench.driver.hushed = ()
    bench.write(bench.wants("a-0"), bench.wants("a-1", gpu=1))
    assert bench.work() == {"a-0": "created", "a-1": "created"}
    assert [gpu.index for gpu in bench.written.gpus] == [0, 1]
    assert len(bench.agent.models) == len(bench.agent.gpus) == 2
    assert condition(bench).status == "True"


@pytest.mark.parametrize("grace", [0, 60])
def test_what_is_on_one_that_was_known_before_is_not_taken_for_gone(grace):
    bench = Bench(gpus=2, grace=grace)
    mine = [
        bench.wants("runs", start=0, state="ungated", gpu=1),
        bench.wants("other", start=1, state="ungated"),
        bench.wants("ends", start=2, state="ungated", gpu=1),
    ]
    bench.write(*[bench.wants(each.id, start=each.start, gpu=bench.gpus.index(each.gpu)) for each in mine])
    bench.work()
    bench.write(*mine)
    assert set(bench.work().values()) == {"created"}
    models = bench.written.models

    bench.driver.hushed = (1,)
    bench.restart()
    bench.write(*mine[:2], bench.wants("ends", start=2, state="deleting", gpu=1))
    assert bench.work() == {"runs": "created", "other": "created", "ends": "deleting"}
    assert next(each.reason for each in bench.written.slices if each.id == "ends") == "GPU 1: it does not answer"
    assert [(gpu.index, gpu.health.value) for gpu in bench.written.gpus] == [(0, "healthy"), (1, "unhealthy")]
    assert bench.failures == []
    assert bench.written.models == models, "with others the controller would take its slices for gone"

    bench.driver.hushed = ()
    assert bench.work() == {"runs": "created", "other": "created", "ends": "deleted"}
    assert bench.there(1) == [("1g.5gb", 0)] and bench.written.models == models
    assert bench.failures == [] and condition(bench).status == "True"


def test_one_that_was_known_before_and_is_another_now_is_gone():
    bench = Bench(gpus=2)
    bench.work()
    bench.write(bench.wants("a-1", state="ungated", gpu=1))
    bench.work()
    bench.driver.hushed = (1,)
    bench.restart()
    bench.work()
    bench.driver.unresponsive = lambda: ()
    assert bench.work() == {"a-1": "failed"}
    assert [gpu.index for gpu in bench.written.gpus] == [0]
