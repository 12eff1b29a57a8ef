"""Faults of GPUs, asked for by an annotation on the node: what the agent reports, and how it recovers."""

import asyncio

import pytest
from machines import now, wanted

from instaslice.api import names
from instaslice.api.instaslice import AllocationState, Health
from instaslice.kube.client import Selector
from instaslice.kube.core import EVENTS


@pytest.fixture
async def node(machine, agent):
    made = await machine()
    await agent.start("--deadline", "1", "--grace", "1")
    await made.serving()
    return made


async def test_a_slot_that_is_taken_fails_and_the_next_try_succeeds(client, node):
    thing = await node.object()
    await node.annotate(names.FAULT, "0 refuse 1")
    await asyncio.sleep(1)  # level-based, but not the same watch as the spec
    one, two = wanted(thing, "a-0"), wanted(thing, "a-1")
    await node.write(one)
    (failed,) = (await node.reported(a_0="failed")).values()
    assert "does not fit beside what is there: nothing that can be listed" in failed.reason
    await node.write(now(one, AllocationState.DELETING))
    await node.reported(a_0="deleted")
    await node.write(two)
    await node.reported(a_1="created")
    told = [each async for each in said(client, node, "SliceFailed")]
    assert any("1g.5gb at 0: " in each.note for each in told)


async def test_a_slice_in_use_stays_and_goes_when_it_is_let_go(node):
    thing = await node.object()
    one = wanted(thing, "a-0", "3g.20gb", 4)
    await node.write(one)
    await node.reported(a_0="created")
    await node.annotate(names.FAULT, "0 held 4")
    await asyncio.sleep(1)
    await node.write(now(one, AllocationState.DELETING))
    held = await node.until(lambda status: status.slices[0].state == "deleting" and status.slices[0].reason, "held")
    assert "is in use by" in held.status.slices[0].reason
    await node.annotate(names.FAULT, None)
    await node.reported(a_0="deleted")


async def test_a_monitor_keeps_the_slot_until_it_lets_go(node):
    thing = await node.object()
    one = wanted(thing, "a-0")
    await node.write(one)
    await node.reported(a_0="created")
    await node.annotate(names.FAULT, "0 monitored 0")
    await asyncio.sleep(1)
    await node.write(now(one, AllocationState.DELETING))
    half = await node.until(lambda status: status.slices[0].state == "deleting" and status.slices[0].ci is None, "half")
    assert half.status.summary.slices == 1
    await node.annotate(names.FAULT, None)
    await node.reported(a_0="deleted")


async def test_a_failing_gpu_is_reported_and_the_other_one_serves(node):
    thing = await node.object()
    old, new = wanted(thing, "a-0", start=0), wanted(thing, "a-1", start=1)
    await node.write(old)
    await node.reported(a_0="created")
    await node.annotate(names.FAULT, "0 lost Xid 48: double bit error")
    assert (await node.health(0, Health.UNHEALTHY)).reason == "Xid 48: double bit error"
    await node.write(now(old, AllocationState.DELETING), new, wanted(thing, "b-0", gpu=1))
    told = await node.reported(a_0="deleting", a_1="failed", b_0="created")
    assert "Xid 48" in told["a-1"].reason
    assert (await node.object()).status.summary.gpus == "2x A100-40GB (1 unhealthy)"
    await node.annotate(names.FAULT, None)
    await node.health(0, Health.HEALTHY)
    await node.reported(a_0="deleted", a_1="failed", b_0="created")
    await node.write(now(new, AllocationState.DELETING))
    await node.until(
        lambda status: {each.id: each.state for each in status.slices}.get("a-1") == "deleted", "a-1 deleted"
    )


async def test_a_hung_gpu_fails_its_creates_and_what_comes_late_is_removed(node):
    thing = await node.object()
    await node.annotate(names.FAULT, "0 hang")
    await asyncio.sleep(1)
    stuck = wanted(thing, "a-0")
    await node.write(stuck, wanted(thing, "b-0", gpu=1))
    told = await node.reported(a_0="failed", b_0="created")
    assert "has not returned after 1 s" in told["a-0"].reason
    assert "has not returned" in (await node.health(0, Health.UNHEALTHY)).reason
    await node.annotate(names.FAULT, None)
    # The call that hung goes on and makes a slice that nobody waits for any more.
    await node.health(0, Health.HEALTHY)
    await node.reported(a_0="failed", b_0="created")
    await node.write(now(stuck, AllocationState.DELETING), wanted(thing, "c-0"))
    await node.until(
        lambda status: {each.id: each.state for each in status.slices}.get("c-0") == "created", "c-0 created"
    )


async def test_a_fault_that_cannot_be_read_is_said(client, node):
    await node.annotate(names.FAULT, "0 melts")
    async with asyncio.timeout(60):
        while not (told := [each async for each in said(client, node, "BadFault")]):
            await asyncio.sleep(0.1)
    assert "'0 melts' is not a fault; write `0 lost`" in told[0].note


async def said(client, node, reason):
    for each in await client.list(EVENTS, Selector(namespace="default")):
        if each.regarding.name == node.name and each.reason == reason:
            yield each
