"""The controller tells of waiting pods whenever it has decided, not only once."""

import asyncio
import random

import msgspec
from small_worlds import node, pod

from instaslice.api.names import GATE
from instaslice.controller import controller as controllers
from instaslice.controller.controller import Controller, Settings
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import Volume
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


async def test_no_node_is_asked_for_where_a_pod_waits_for_its_claim(monkeypatch):
    made = Controller(
        None, policies.named("adaptive"), clock=SystemClock(), rng=random.Random(0), settings=Settings(hints=1)
    )
    told = []
    monkeypatch.setattr(made._hints, "set", lambda waiting, memory: told.append(set(waiting)))
    made.dispatcher.node_changed(None, node())
    made._node_shape(None, node())
    made.dispatcher.start()
    waiting, held = pod("w", "1g.5gb", gates=[GATE]), pod("held", "1g.5gb", gates=[GATE])
    volumes = msgspec.convert([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}], list[Volume])
    held = msgspec.structs.replace(held, spec=msgspec.structs.replace(held.spec, volumes=volumes))
    for each in (waiting, held):
        made.dispatcher.pod_changed(None, each)
    await made._hint("")
    assert told == [{waiting.metadata.uid}]
