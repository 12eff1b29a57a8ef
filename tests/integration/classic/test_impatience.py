"""What takes too long: a controller that loses patience after seconds instead of minutes."""

import asyncio

import pytest
from stage import pod

from instaslice.api.instaslice import AllocationState
from instaslice.doctor import Invariant
from instaslice.kube.core import NODES
from instaslice.kube.meta import Key
from instaslice.local.objects import ClusterObjects
from instaslice.local.operator import CONTROLLER

PATIENCE = 4
FLAGS = [f"--{name}={PATIENCE}" for name in ("patience", "bind-timeout", "node-timeout", "create-timeout")]


@pytest.fixture(scope="module", autouse=True)
def impatient(sliced):
    """Takes the place of the cluster's controller for the stories of this file."""
    ours = sliced.operator()

    async def ready():
        async with ClusterObjects.connect(sliced.kubeconfig) as objects:
            await ours.ready(CONTROLLER, objects)

    sliced.kill(CONTROLLER)
    sliced.processes.start(CONTROLLER, [*ours.commands()[CONTROLLER], *FLAGS])
    asyncio.run(ready())
    yield
    sliced.start(CONTROLLER)


async def test_a_large_pod_is_not_passed_for_ever(stage):
    """Small ones come and go without end; each leaves room for the next, and none for the large one."""
    await stage.node(gpus=1)
    names = iter(f"small-{number}" for number in range(10**6))
    large = asyncio.create_task(_runs(stage, "large"))

    async def come_and_go():
        """There are always some of them: each is deleted only when its successor runs, or must wait."""
        before = next(names)
        await stage.create(pod(before))
        await stage.running(before)
        while True:
            after = next(names)
            await stage.create(pod(after))
            await stage.until("its turn", lambda after=after: _settled(stage, after))
            await stage.delete(before)
            before = after

    streams = [asyncio.create_task(come_and_go()) for _ in range(2)]
    try:
        done, _ = await asyncio.wait([large, *streams], return_when=asyncio.FIRST_COMPLETED)
        assert large in done, [each.exception() for each in done]
        await large
    finally:
        for each in streams:
            each.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def _runs(stage, name):
    await stage.until("small ones", lambda: len([each for each in stage.pods if each.status.phase == "Running"]) >= 2)
    await stage.create(pod(name, "7g.40gb"))
    await stage.waits(name)
    await stage.running(name)


def _settled(stage, name):
    found = stage.pod(name)
    return found and (found.status.phase == "Running" or found.condition("gpu.das.com/SliceReady"))


async def test_a_pod_that_nobody_binds_gives_back_its_slices_when_another_needs_them_and_says_why(stage, sliced):
    await stage.node(gpus=1)
    sliced.pause("kube-scheduler")
    try:
        await stage.create(pod("unbound", "7g.40gb"))
        assert "keeps its slices" in (await stage.said("unbound", "NotBound")).message
        await stage.create(pod("next", "7g.40gb"))
        failed = await stage.phase("unbound", "Failed")
    finally:
        sliced.resume("kube-scheduler")
    assert failed.status.reason == "SliceReleased"
    assert f"within {PATIENCE} s" in failed.status.message
    assert failed.status.message in await stage.event("unbound", "SliceReleased")
    await stage.running("next")


async def test_a_node_whose_agent_does_not_answer_is_left_alone_until_it_does(stage):
    silent, other = await stage.some_nodes(2, gpus=1)
    await stage.create(pod("first", "7g.40gb"))
    (first,) = await stage.running("first")
    free = ({silent, other} - {first.spec.node_name}).pop()
    await stage.fault(free, "0 hang")
    await stage.create(pod("second", "7g.40gb"))
    await stage.allocated("second", AllocationState.CREATING)
    words = await stage.waits("second")
    assert f"GPU 0 of {free} (the agent of node {free} has not answered for {PATIENCE} s)" in words, words
    await stage.fault(free, "")
    await stage.running("second")


async def test_a_node_that_is_not_ready_is_given_up_and_takes_pods_again_when_it_is_back(stage, invariants):
    # The pod that Kubernetes has deleted there is never gone by itself.
    invariants.allow(Invariant.POD_HAS_SLICES)
    evicted = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    evicted[0]["tolerationSeconds"] = 1
    node = await stage.node(gpus=1)
    await stage.create(pod("runs", "3g.20gb", tolerations=evicted))
    await stage.running("runs")
    # kwok lets go of the node, and its kubelet is silent.
    await stage.client.merge(NODES, Key("", node), {"metadata": {"labels": {"type": None}}})
    not_ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "a story"}
    await stage.client.strategic_merge(
        NODES, Key("", node), {"status": {"conditions": [not_ready]}}, subresource="status"
    )
    await stage.create(pod("waits", "3g.20gb"))
    assert f"{node}: is not ready" in await stage.waits("waits")
    await stage.until("an eviction", lambda: stage.pod("runs").metadata.deletion_timestamp)
    await stage.until("its slices back", lambda: not stage.held("runs"))
    assert f"node {node} is not ready" in await stage.event("runs", "SliceLost")
    await stage.client.merge(NODES, Key("", node), {"metadata": {"labels": {"type": "kwok"}}})
    await stage.running("waits")
    await stage.gone("runs")
