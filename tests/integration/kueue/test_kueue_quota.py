"""A queue of 50 GB: at every step Kueue has charged what the slices have, whoever asks for them."""

import manifests
import pytest
from stage import container


async def a_queue_of_fifty(stage):
    """Two GPUs of 40 GB hold more than the queue gives out: what waits, waits for quota."""
    await stage.some_nodes(2)
    await stage.queue(50)


async def start(stage, kind, name):
    """One that asks for 5 GB."""
    if kind == "job":
        await stage.job(name)
    elif kind == "pod":
        await stage.create(stage.queued_pod(name))
    else:
        await stage.deployment(name)


async def runs(stage, kind, name):
    await (stage.running(name) if kind == "pod" else stage.job_runs(name))


async def end(stage, kind, name):
    if kind == "pod":
        await stage.delete(name, grace_seconds=0)
    elif kind == "job":
        await stage.delete_job(name)
    else:
        await stage.scale(name, 0)


@pytest.mark.parametrize(
    "kinds, last",
    [
        pytest.param(["job"] * 10, "job", id="Jobs, charged from their template"),
        pytest.param(["pod"] * 10, "pod", id="pods, charged as they are stored"),
        pytest.param(["job", "pod", "deployment"] * 3 + ["pod"], "job", id="a mixture with Deployments"),
    ],
)
async def test_ten_run_and_the_eleventh_starts_when_one_ends(stage, kinds, last):
    await a_queue_of_fifty(stage)
    for number, kind in enumerate(kinds):
        await start(stage, kind, f"{kind}-{number}")
        await runs(stage, kind, f"{kind}-{number}")
        await stage.charged(5 * (number + 1))
    await start(stage, last, "eleventh")
    await stage.charged(50, pending=1)
    await (stage.job_waits("eleventh") if last == "job" else stage.gated_by_kueue("eleventh"))
    assert stage.held("eleventh") == []
    await end(stage, kinds[3], f"{kinds[3]}-3")
    await runs(stage, last, "eleventh")
    await stage.charged(50)


async def test_ends_of_pods_give_back_their_part(stage):
    """A Job of three pods on a GPU; each is charged until it ends, and a pod that has succeeded until it is over."""
    await stage.node()
    await stage.queue(20)
    await stage.job("sweep", count=3)
    first, *_ = await stage.job_runs("sweep", count=3)
    await stage.charged(15)
    await stage.create(stage.queued_pod("next", "2g.10gb"), stage.queued_pod("short", run_for="1s"))
    await stage.phase("short", "Succeeded")
    await stage.gated_by_kueue("next")
    await stage.charged(15, pending=1)
    await stage.finish(first.metadata.name)
    await stage.running("next")
    await stage.charged(20)


@pytest.mark.parametrize(
    "slices, gb",
    [
        pytest.param({"1g.5gb": 2}, 10, id="two slices of a profile"),
        pytest.param({"1g.5gb": 1, "2g.10gb": 1}, 15, id="two profiles"),
        pytest.param({"nvidia.com/mig-1g.5gb.me": 1}, 5, id="with media engines"),
    ],
)
async def test_what_a_pod_with_several_slices_is_charged(stage, slices, gb):
    await stage.node(gpus=2)
    await stage.queue(2 * gb)
    await stage.job("job", slices)
    await stage.job_runs("job")
    await stage.charged(gb)
    await stage.create(stage.queued_pod("pod", slices))
    await stage.charged(2 * gb)


async def test_an_init_container_of_another_profile(stage):
    """Both of its slices are reserved. A Job is charged for both, a plain pod for the larger: see docs/kueue.md."""
    await stage.node(gpus=2)
    await stage.queue(80)
    spec = {"containers": [container("main", "1g.5gb")], "initContainers": [container("prepare", "3g.20gb")]}
    await stage.job("job", **spec)
    await stage.job_runs("job")
    await stage.charged(25)
    await stage.create(stage.queued_pod("pod", **spec))
    await stage.running("pod")
    assert stage.labels() == 50
    await stage.quota(45)


async def test_one_container_asks_by_profile_and_another_by_memory(stage):
    """Kueue sums both up, whatever order it takes them in."""
    await stage.queue(13)
    spec = {"containers": [container("a", "1g.5gb"), container("b", {"gpu.das.com/mem": 8})]}
    await stage.job("job", **spec)
    await stage.quota(13)


@pytest.mark.parametrize(
    "limits, told",
    [
        pytest.param({"gpu.das.com/mig-1g.5gb": 1}, "write nvidia.com/mig-* instead", id="our name"),
        pytest.param({"nvidia.com/mig-1g.5gb": 1, "gpu.das.com/mem": 5}, "leave out gpu.das.com/mem", id="both"),
        pytest.param({"gpu.das.com/mem": "8Gi"}, "give a whole number from 1 on, without a unit", id="a unit"),
        pytest.param({"gpu.das.com/mem": 0}, "give a whole number from 1 on, without a unit", id="nothing"),
    ],
)
async def test_a_job_that_would_not_be_charged_once_is_refused(stage, limits, told):
    await stage.queue(50)
    await stage.job_policy()
    assert told in await stage.refused_job(limits)
    assert not await stage.refused_job(limits, queue="")  # without a queue nobody charges it
    await stage.delete_job("refused")


async def test_nor_can_a_job_that_waits_be_changed_into_one(stage):
    await stage.queue(4)
    await stage.job_policy()
    await stage.job("train")
    await stage.job_waits("train")
    assert "write nvidia.com/mig-* instead" in await stage.refused_limits("train", {"gpu.das.com/mig-1g.5gb": 1})
    assert not await stage.refused_limits("train", {"nvidia.com/mig-1g.10gb": 1})
    await stage.delete_job("train")


@pytest.mark.parametrize(
    "limits, told",
    [
        pytest.param({"gpu.das.com/mig-1g.5gb": 1}, "is charged 0 GB of GPU memory", id="our name"),
        pytest.param({"nvidia.com/mig-1g.5gb": 1, "gpu.das.com/mem": 5}, "is charged 10 GB of GPU memory", id="both"),
    ],
)
async def test_without_the_policy_the_doctor_finds_such_a_job(stage, limits, told):
    await stage.node()
    await stage.queue(50)
    await stage.job("train", containers=[manifests.container(limits=limits)])
    await stage.job_runs("train")
    (found,) = [each for each in await stage.found_by_the_doctor() if "  workload " in each]
    assert told in found
    assert "for slices of 5 GB" in found
    await stage.delete_job("train")


async def test_a_profile_that_no_queue_knows_waits_for_good_and_is_told_so(stage):
    """Kueue refuses what a queue does not cover: what the configuration lacks is not charged wrongly."""
    await stage.queue(50)
    await stage.create(stage.queued_pod("odd", {"example.com/fpga": 1}))
    await stage.gated_by_kueue("odd")
    reason = await stage.until("a reason", lambda: stage.why_not_admitted("odd"))
    assert "example.com/fpga" in reason
