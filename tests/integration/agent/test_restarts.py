"""Killed agents, machines started anew, slices that nobody owns: all ends as if nothing had been."""

import asyncio
import random

import pytest
from machines import now, wanted

from instaslice.agent.emulation import Emulation
from instaslice.api import names
from instaslice.api.instaslice import AllocationState
from instaslice.kube.core import NODES


@pytest.mark.parametrize("seed", range(3))
async def test_killed_again_and_again_it_still_makes_and_destroys_everything_once(machine, agent, seed):
    rng = random.Random(seed)
    node = await machine()
    await agent.start("--latency", "h200")
    thing = await node.serving()
    places = [(0, "3g.20gb", 4), (0, "1g.5gb", 0), (0, "1g.5gb", 1), (1, "2g.10gb", 0), (1, "1g.5gb", 6)]
    asked = [wanted(thing, f"a-{n}", profile, start, gpu=gpu) for n, (gpu, profile, start) in enumerate(places)]
    # Each step of a slice takes 6 to 300 ms, and a start of the agent about a second: kills fall into all of them.
    await node.write(*asked)
    for _ in range(4):
        await asyncio.sleep(rng.uniform(0.0, 1.4))
        await agent.kill()
        await agent.start("--latency", "h200")
    made = await node.reported(a_0="created", a_1="created", a_2="created", a_3="created", a_4="created")
    assert len({each.mig_uuid for each in made.values()}) == 5

    ending = [now(each, AllocationState.DELETING) for each in asked[:3]]
    await node.write(*ending, *(now(each, AllocationState.UNGATED) for each in asked[3:]))
    for _ in range(3):
        await asyncio.sleep(rng.uniform(0.0, 1.2))
        await agent.kill()
        await agent.start("--latency", "h200")
    kept = await node.reported(a_0="deleted", a_1="deleted", a_2="deleted", a_3="created", a_4="created")
    assert [kept[each].mig_uuid for each in ("a-3", "a-4")] == [made[each].mig_uuid for each in ("a-3", "a-4")]


async def test_what_was_asked_and_ended_while_the_agent_was_away_is_done_when_it_is_back(machine, agent):
    node = await machine()
    await agent.start()
    thing = await node.serving()
    first, second = wanted(thing, "a-0", start=0), wanted(thing, "a-1", start=1)
    await node.write(first)
    await node.reported(a_0="created")
    await agent.kill()
    await node.write(now(first, AllocationState.DELETING), second)
    await agent.start()
    await node.reported(a_0="deleted", a_1="created")


async def test_slices_nobody_owns_go_after_the_grace(machine, agent, tmp_path):
    node = await machine()
    await left_behind(node, tmp_path)
    await agent.start("--grace", "2")
    (foreign,) = await node.foreign()
    assert (foreign.profile, foreign.start, foreign.id) == ("2g.10gb", 2, foreign.mig_uuid)
    await node.empty()


async def test_slices_of_others_stay_when_the_administrator_says_so_and_ours_go(machine, agent, tmp_path):
    node = await machine()
    await left_behind(node, tmp_path)
    await agent.start("--grace", "1", "--keep-foreign")
    await node.foreign()
    thing = await node.serving()
    await node.write(wanted(thing, "a-0", start=0))
    await node.until(lambda status: {"created", "foreign"} == {each.state for each in status.slices}, "both")
    await node.write()  # the controller gave up on it without waiting, as it does for a node that was away
    await node.until(lambda status: len(status.slices) == 1, "ours gone")
    await asyncio.sleep(2)
    (foreign,) = await node.foreign()
    assert foreign.profile == "2g.10gb"


@pytest.mark.parametrize(
    "while_away", [pytest.param(False, id="while the agent runs"), pytest.param(True, id="while it is away")]
)
async def test_after_a_reboot_slices_that_were_reported_are_lost_and_others_are_made(machine, agent, while_away):
    node = await machine()
    await agent.start()
    thing = await node.serving()
    ran, waits = wanted(thing, "a-0", start=0), wanted(thing, "a-1", start=1)
    await node.write(ran, waits)
    await node.reported(a_0="created", a_1="created")
    before = (await node.object()).status.boot_id
    if while_away:
        await agent.kill()
    await node.annotate(names.BOOT, "1")
    if while_away:
        await agent.start()
    # Either pod may be ungated by now, whatever the spec says.
    told = await node.reported(a_0="failed", a_1="failed")
    assert {each.reason.partition(" (")[0] for each in told.values()} == {"slice lost: the node was restarted"}
    thing = await node.object()
    assert thing.status.boot_id != before
    # The same annotation read by another process is not another boot.
    await agent.kill()
    await agent.start()
    again = wanted(thing, "b-1", start=1)
    await node.write(now(ran, AllocationState.DELETING), now(waits, AllocationState.DELETING), again)
    await node.reported(a_0="deleted", a_1="deleted", b_1="created")
    assert (await node.object()).status.boot_id == thing.status.boot_id


async def left_behind(node, folder):
    """A slice that was made before the agent ever ran."""
    driver = Emulation(folder / "gpus").driver(await node.client.get(NODES, node.key))
    driver.create(driver.discover()[0].uuid, "2g.10gb", 2)
