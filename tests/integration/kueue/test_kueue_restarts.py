"""Kueue, our controller or the API server is killed while Jobs and pods arrive: nothing is charged twice or lost."""

import asyncio

import pytest

JOBS, PODS = 8, 4


@pytest.mark.parametrize("component", ["kueue", "instaslice-controller", "kube-apiserver"])
async def test_a_kill_in_the_middle_costs_nobody_anything(stage, queued, component):
    await stage.some_nodes(2)
    await stage.queue(50)
    await stage.job("first")
    await stage.job_runs("first")
    for number in range(1, JOBS):
        await stage.job(f"job-{number}")
    await stage.create(*(stage.queued_pod(f"pod-{number}") for number in range(PODS)))
    queued.kill(component)
    await asyncio.to_thread(queued.start, component)
    # Ten of twelve have their quota, and their slices; two wait.
    await stage.charged(50, pending=2)
    assert len(stage.running_pods("first")) == 1, "it was not disturbed"
    await stage.delete_job("first")
    await stage.charged(50, pending=1)
    queued.kill(component)
    running = [
        each.metadata.name for each in stage.pods if each.status.phase == "Running" and "job-" in each.metadata.name
    ]
    await asyncio.to_thread(queued.start, component)
    await stage.charged(50, pending=1)
    assert {each.metadata.name for each in stage.pods} >= set(running), "nor were these"
