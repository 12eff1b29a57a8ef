"""With our AdmissionCheck Kueue admits what has its quota and can be placed; without it, what has its quota."""

import asyncio

from stage import pod

from instaslice.api import names

NO_ROOM = "0: has no room for the slices on its GPUs"
"""Of the story's node, although it has the memory; the cluster's other node has the room and is not selected."""


async def fragmented(stage):
    """One GPU with 25 GB free and no room for a slice of 10 GB: the pods that are in the way."""
    await stage.node()
    filling = [f"filling-{number}" for number in range(7)]
    await stage.create(*(pod(name) for name in filling))
    await stage.running(*filling)
    starts = {name: stage.held(name)[0].start for name in filling}
    for name in filling:
        if starts[name] % 2 == 0:
            await stage.delete(name, grace_seconds=0)
    return [name for name in filling if starts[name] % 2]


async def test_a_job_waits_in_kueue_until_its_slot_is_there(stage):
    in_the_way = await fragmented(stage)
    await stage.queue(20, **await stage.placement_check())
    await stage.job("large", "3g.20gb")
    await stage.refused("large", NO_ROOM)
    await stage.job_waits("large")
    # Its quota is free, and there are places for others.
    await stage.job("small")
    (small,) = await stage.job_runs("small")
    assert small.metadata.annotations[names.HELD_FOR].endswith("/main")
    await stage.quota(5, pending=1)
    await stage.delete_job("small")
    for name in in_the_way:
        await stage.delete(name, grace_seconds=0)
    await stage.job_runs("large")
    await stage.charged(20)


async def test_without_the_check_it_holds_its_quota_and_waits_outside(stage):
    in_the_way = await fragmented(stage)
    await stage.queue(20)
    await stage.job("large", "3g.20gb")
    (waits,) = await stage.until("a pod of large", lambda: stage.pods_of("large"))
    assert NO_ROOM in await stage.waits(waits.metadata.name)
    await stage.job("small")
    await stage.quota(20, pending=1)
    assert stage.pods_of("small") == [], "there is a place for it, and no quota"
    for name in in_the_way:
        await stage.delete(name, grace_seconds=0)
    await stage.job_runs("large")


async def test_a_blocked_large_job_does_not_keep_small_ones_waiting(stage):
    await stage.node()
    await stage.create(pod("stranger"))
    await stage.running("stranger")
    await stage.queue(40, **await stage.placement_check())
    await stage.job("large", "7g.40gb")
    await stage.refused("large", NO_ROOM)
    for number in range(4):
        await stage.job(f"small-{number}")
    for number in range(4):
        await stage.job_runs(f"small-{number}")
    await stage.quota(20, pending=1)
    await stage.delete("stranger", grace_seconds=0)
    for number in range(4):
        await stage.delete_job(f"small-{number}")
    await stage.job_runs("large")
    await stage.charged(40)


async def test_plain_pods_and_gangs_are_checked_too(stage):
    await stage.node()
    await stage.queue(80, **await stage.placement_check())
    await stage.job("gang", "3g.20gb", count=3)
    await stage.refused("gang", "2 of its 3 pods would fit now, all at once do not")
    assert stage.held() == [], "all of them or none"
    await stage.create(stage.queued_pod("whole", "7g.40gb"))
    await stage.running("whole")
    await stage.create(stage.queued_pod("train", "1g.5gb"))
    await stage.refused("train", NO_ROOM)
    assert stage.held("train") == []
    await stage.delete("whole", grace_seconds=0)
    await stage.running("train")


async def test_a_controller_that_is_killed_in_the_middle_costs_nobody_a_place(stage, queued):
    await stage.some_nodes(2)
    await stage.queue(80, **await stage.placement_check())
    for number in range(3):
        await stage.job(f"early-{number}", "2g.10gb", count=2)
    queued.kill("instaslice-controller")
    await stage.job("late", "1g.5gb", count=2)
    await asyncio.to_thread(queued.start, "instaslice-controller")
    for number in range(3):
        await stage.job_runs(f"early-{number}", 2)
    await stage.job_runs("late", 2)
    await stage.charged(70)
