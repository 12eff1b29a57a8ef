"""The controller beside Kueue: one that is there, one that is not, and one that does not let it write."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest
from kueue_world import KueueWorld
from waiting import passes

from instaslice.controller.controller import Controller, Settings
from instaslice.kueue.objects import ADMISSION_CHECKS
from instaslice.placement import policies


@pytest.fixture
def world():
    made = KueueWorld()
    made.controller = None
    made.add_node("a")
    return made


@asynccontextmanager
async def running(world, seconds=5):
    """The controller by itself; agents and Kueue do what there is to do."""
    controller = Controller(
        world.server.client(),
        policies.named("adaptive"),
        clock=world.clock,
        rng=Random(0),
        settings=Settings(admission_check=True),
    )
    task = asyncio.create_task(controller.run())

    async def go_on(seconds):
        for _ in range(round(seconds / 0.5)):
            await passes(world.clock, 0.5)
            while deeds := [deed for deed in world.deeds() if deed[0] in ("agent", "bind", "kueue")]:
                world.do(deeds[0])
                await passes(world.clock, 0)

    await go_on(seconds)
    yield go_on
    assert not task.done(), task
    task.cancel()
    await asyncio.wait([task])


async def test_a_workload_is_answered_and_its_check_is_active(world):
    world.queue("train", "3g.20gb")
    async with running(world) as go_on:
        (check,) = world.server.all(ADMISSION_CHECKS)
        assert [(each.type, each.status) for each in check.status.conditions] == [("Active", "True")]
        assert world.state("train") == "Ready"
        world.queue("large", "7g.40gb")
        await go_on(2)
        assert "needs 8 free memory slices" in world.refusal("large")[0]


async def test_without_kueue_pods_are_placed_and_the_log_says_so_once(world, caplog):
    world.server.refuse("GET", "workloads", 404, times=3)
    uid = world.add_pod("1g.5gb")
    async with running(world) as go_on:
        assert world.running() == [uid]
        await go_on(20)
        world.queue("train", "3g.20gb")
        await go_on(2)
        assert world.state("train") == "Ready", "Kueue has come since"
    assert len([each for each in caplog.messages if "Kueue is not installed" in each]) == 1


async def test_a_permission_that_is_missing_is_named_and_does_not_stop_pods(world, caplog):
    world.server.refuse("GET", "workloads", 403, times=1)
    uid = world.add_pod("1g.5gb")
    async with running(world) as go_on:
        assert world.running() == [uid]
        assert "grant the controller what --admission-check needs" in caplog.text
        world.queue("train", "3g.20gb")
        await go_on(61)
        assert world.state("train") == "Ready"


@pytest.mark.parametrize("status", [403, 500, 409, 422])
async def test_a_write_that_is_refused_is_tried_again(world, status):
    world.server.refuse("PATCH", "workloads", status, "status", times=2)
    world.server.refuse("PATCH", "admissionchecks", status, "status")
    world.queue("train", "3g.20gb")
    async with running(world, 130):
        assert world.answer("train").last_transition_time, "it was written in the end"
        (check,) = world.server.all(ADMISSION_CHECKS)
        assert check.status.conditions


async def test_a_workload_that_cannot_be_read_costs_itself_alone(world, caplog):
    odd = {"metadata": {"namespace": "team", "name": "odd"}, "spec": 7}
    with world.server.silent():
        world.server._write("workloads", ("team", "odd"), odd)
    world.queue("train", "3g.20gb")
    async with running(world):
        assert world.state("train") == "Ready"
    assert "cannot be read" in caplog.text
