"""The controller tells of waiting pods whenever it has decided, not only once."""

import asyncio
import random

from instaslice.controller import controller as controllers
from instaslice.controller.controller import Controller, Settings
from instaslice.kube.clock import SystemClock
from instaslice.placement import policies


async def test_hints_follow_every_decision(monkeypatch):
    monkeypatch.setattr(controllers, "HINT_SECONDS", 0.0)
    made = Controller(
        None, policies.named("adaptive"), clock=SystemClock(), rng=random.Random(0), settings=Settings(hints=1)
    )
    told = asyncio.Queue()
    monkeypatch.setattr(made._hints, "set", lambda waiting, memory: told.put_nowait(waiting))
    work = asyncio.create_task(made._hinting.work(made._hint))
    async with asyncio.timeout(5):
        for _ in range(2):
            made._decide()
            assert await told.get() == {}
    work.cancel()
