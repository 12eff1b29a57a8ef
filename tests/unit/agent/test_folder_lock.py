"""Two agents of one node: the next waits until the last has ended, and says so."""

import asyncio

from fake_clock import FakeClock
from waiting import passes, settled

from instaslice.agent.folder_lock import locked


async def test_the_next_agent_waits_until_the_last_has_ended(tmp_path):
    clock, seen = FakeClock(), []
    end = asyncio.Event()

    async def agent(name, until):
        async with locked(tmp_path / "state", clock, waits=lambda: seen.append(f"{name} waits")):
            seen.append(f"{name} serves")
            await until.wait()

    last = asyncio.create_task(agent("last", end))
    await settled()
    following = asyncio.create_task(agent("next", asyncio.Event()))
    await passes(clock, 5)
    assert seen == ["last serves", "next waits"]
    end.set()
    await last
    await passes(clock, 1)
    assert seen == ["last serves", "next waits", "next serves"]
    following.cancel()
