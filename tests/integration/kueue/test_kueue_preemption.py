"""Quota is lent, taken back and preempted, and slices follow: nothing is left behind, and nobody waits in vain."""

RECLAIM = {"preemption": {"reclaimWithinCohort": "Any"}}
BY_PRIORITY = {"preemption": {"withinClusterQueue": "LowerPriority"}}


async def test_what_a_cohort_lent_is_taken_back_and_the_slices_follow(stage):
    await stage.some_nodes(2)
    await stage.queue(20, name="a", cohort="all")
    await stage.queue(20, name="b", cohort="all")
    for number in range(7):
        await stage.job(f"of-a-{number}", queue="a")
        await stage.job_runs(f"of-a-{number}")
    await stage.charged(35, name="a")  # 15 of them borrowed
    await stage.job("of-b", "2g.10gb", queue="b")
    await stage.job_runs("of-b")
    await stage.charged(10, name="b")
    await stage.charged(30, pending=1, name="a")
    await stage.job_waits(stage.preempted()[0])
    await stage.delete_job("of-b")
    await stage.charged(35, name="a")


async def test_pods_of_a_deployment_wait_for_themselves(stage):
    await stage.node()
    await stage.queue(10)
    await stage.deployment("web", replicas=3)
    await stage.job_runs("web", count=2)
    await stage.charged(10, pending=1)
    await stage.scale("web", 1)
    await stage.job_runs("web", count=1)
    await stage.charged(5)
    await stage.scale("web", 2)
    await stage.job_runs("web", count=2)
    await stage.charged(10)


async def test_a_deployment_that_is_preempted_waits_again(stage):
    await stage.node()
    await stage.priorities(low=1, high=10)
    await stage.queue(20, **BY_PRIORITY)
    await stage.deployment("web", "2g.10gb", replicas=2, priority="low")
    await stage.job_runs("web", count=2)
    await stage.job("urgent", "2g.10gb", priority="high")
    await stage.job_runs("urgent")
    await stage.charged(20, pending=1)
    await stage.delete_job("urgent")
    await stage.job_runs("web", count=2)
    await stage.charged(20)


async def test_a_job_that_is_stopped_and_resumed(stage):
    await stage.node()
    await stage.queue(10)
    await stage.job("train", count=2)
    await stage.job_runs("train", count=2)
    await stage.activate("train", False)
    await stage.job_waits("train")
    await stage.free()
    await stage.charged(0)
    await stage.activate("train", True)
    await stage.job_runs("train", count=2)
    await stage.charged(10)


async def test_two_jobs_that_belong_together(stage):
    """As a JobSet makes them: one leads, the others work. Each waits for itself, and both go together."""
    await stage.node()
    await stage.queue(25)
    leader = await stage.job("set-leader")
    await stage.job("set-workers", "2g.10gb", count=2, owned_by=leader)
    await stage.job_runs("set-leader")
    await stage.job_runs("set-workers", count=2)
    await stage.charged(25)
    await stage.delete_job("set-leader")
    await stage.free()
    await stage.charged(0)


async def test_freed_quota_need_not_be_a_slot(stage):
    """Kueue preempts by sums: 20 GB are free in pieces, and a 4g.20gb has one legal start. It is explained, and placed
    as soon as the slot is free."""
    await stage.node()
    await stage.priorities(low=1, high=10)
    await stage.queue(35, **BY_PRIORITY)
    # Three pods without a queue take the places that a 4g.20gb has no use for.
    fillers = [f"filler-{number}" for number in range(3)]
    for each in fillers:
        await stage.create(stage.queued_pod(each, queue=""))
        await stage.running(each)
    for number in range(4):
        await stage.job(f"low-{number}", priority="low")
        await stage.job_runs(f"low-{number}")
    kept = [each for each in stage.held() if each.pod.name.startswith("low-")]
    assert {each.start for each in kept} & {0, 1, 2, 3}
    await stage.delete(*fillers, grace_seconds=0)
    for number in range(4, 7):
        await stage.job(f"low-{number}", priority="low")
        await stage.job_runs(f"low-{number}")
    await stage.charged(35)
    await stage.job("high", "4g.20gb", priority="high")
    # The four that were admitted last make way, and the others hold what it needs.
    (pod,) = await stage.until("its pod", lambda: stage.pods_of("high"))
    message = await stage.waits(pod.metadata.name)
    assert "4g.20gb" in message
    await stage.quota(35, pending=4)
    # Those that wait would take what the others leave.
    for name in sorted((f"low-{number}" for number in range(7)), key=lambda each: len(stage.pods_of(each))):
        await stage.delete_job(name)
    await stage.job_runs("high")
    await stage.charged(20)


async def test_a_queue_that_is_drained_gives_everything_back(stage):
    await stage.node()
    await stage.queue(10)
    await stage.job("train")
    await stage.create(stage.queued_pod("serve"))
    await stage.job_runs("train")
    await stage.running("serve")
    await stage.charged(10)
    await stage.queue(10, stopPolicy="HoldAndDrain", active=False)
    await stage.job_waits("train")
    await stage.gone("serve")
    await stage.free()
    await stage.quota(0, pending=None)
    await stage.queue(10, stopPolicy="None")
    await stage.job_runs("train")
