"""Kueue goes first: no slice is placed for what it has not admitted, and it is placed as soon as it has."""

from instaslice.api import names
from instaslice.kueue.objects import ADMISSION_GATE


async def test_a_pod_gets_its_slice_when_kueue_has_admitted_it(stage):
    await stage.node()
    await stage.queue(0)
    await stage.create(stage.queued_pod("train"))
    await stage.gated_by_kueue("train")
    assert names.MEMORY in await stage.until("Kueue's reason", lambda: stage.why_not_admitted("train"))
    waiting = stage.pod("train")
    assert {names.GATE, ADMISSION_GATE} <= {each.name for each in waiting.spec.scheduling_gates}
    assert "gpu.das.com/mig-1g.5gb" in waiting.spec.containers[0].resources.limits, "our webhook saw it before Kueue"
    assert stage.held("train") == []
    await stage.queue(5)
    await stage.running("train")
    await stage.charged(5)


async def test_a_suspended_job_has_no_pods_and_no_slices(stage):
    await stage.node()
    await stage.queue(0)
    await stage.job("train")
    await stage.job_waits("train")
    await stage.charged(0, pending=1)
    assert stage.held() == []
    await stage.queue(5)
    await stage.job_runs("train")
    await stage.charged(5)


async def test_quota_is_charged_while_the_slice_is_waited_for(stage):
    """Admitted, and no GPU has room: the pod is explained by us, and its quota is reserved."""
    await stage.node()
    await stage.queue(80)
    await stage.create(stage.queued_pod("whole", "7g.40gb"))
    await stage.running("whole")
    await stage.create(stage.queued_pod("small"))
    message = await stage.waits("small")
    assert "1g.5gb" in message
    await stage.quota(45)
    await stage.delete("whole", grace_seconds=0)
    await stage.running("small")
    await stage.charged(5)
