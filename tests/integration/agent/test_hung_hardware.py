"""Hardware that hangs, as the object of its node tells it: the agent of one node over a fake of NVML."""

import asyncio
import random
import sys
import threading
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from machines import wanted

from instaslice.agent import health_watch
from instaslice.agent.agent_process import AgentProcess
from instaslice.agent.gpu_source import Hardware
from instaslice.agent.health_watch import WatchedDriver
from instaslice.api.instaslice import AllocationState
from instaslice.drivers.nvml import NvmlDriver
from instaslice.kube.client import Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import EVENTS

sys.path.insert(0, str(Path(__file__).parents[2] / "unit/drivers"))
from fake_nvml import FakeNvml, a100, h200

CALL = "nvmlDeviceGetMigMode"


@asynccontextmanager
async def an_agent(client, node, nvml, **more):
    """The agent of the node, in this process; stopped without a word at the end."""
    clock = SystemClock()
    found = await WatchedDriver.open(partial(NvmlDriver, nvml=nvml, **more), 1.0, clock)
    selector = Selector(fields=f"metadata.name={node.name}")
    agent = AgentProcess(client, Hardware(found), selector=selector, clock=clock, rng=random.Random(1))
    task = asyncio.create_task(agent.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def cards():
    made = [h200("GPU-one"), h200("GPU-two")]
    yield made
    for card in made:
        let_go(card)


@pytest.fixture
def nvml(cards, monkeypatch):
    monkeypatch.setattr(health_watch, "PROBE_SECONDS", 0.2)
    made = FakeNvml(*cards)
    made.pause = lambda seconds: time.sleep(min(seconds, 0.02))
    return made


def let_go(card):
    for answer in card.hangs.values():
        answer.set()
    card.hangs.clear()


def says(status, truth):
    """The condition, where it has this status."""
    return next((each for each in status.conditions if (each.type, each.status) == ("GpusReady", truth)), None)


async def test_a_gpu_that_hangs_at_every_start_disturbs_nobody_and_joins_when_it_answers(client, machine, cards, nvml):
    node = await machine(model="H200-141GB")
    cards[1].hangs[CALL] = threading.Event()
    async with an_agent(client, node, nvml):
        thing = await node.until(lambda status: says(status, "False"), "GpusReady False")
        told = says(thing.status, "False")
        assert told.reason == "GpuHung"
        assert "GPU 1 (GPU-two): the probe has not returned after 1 s" in told.message
        assert [gpu.uuid for gpu in thing.status.gpus] == ["GPU-one"]
        one = wanted(thing, "a-0", "1g.18gb")
        await node.write(one)
        made = (await node.reported(a_0="created"))["a-0"].mig_uuid

        let_go(cards[1])
        thing = await node.until(lambda status: says(status, "True"), "GpusReady True")
        assert [gpu.uuid for gpu in thing.status.gpus] == ["GPU-one", "GPU-two"]
        two = wanted(thing, "b-0", "1g.18gb", gpu=1)
        await node.write(one, two)
        slices = await node.reported(a_0="created", b_0="created")
        assert slices["a-0"].mig_uuid == made
    events = [each for each in await client.list(EVENTS, Selector()) if each.regarding.name == node.name]
    assert "GpuHung" in {each.reason for each in events}

    ran = [wanted(thing, "a-0", "1g.18gb", state=AllocationState.UNGATED), wanted(thing, "b-0", "1g.18gb", gpu=1)]
    cards[1].hangs[CALL] = threading.Event()
    async with an_agent(client, node, nvml):
        await node.until(lambda status: says(status, "False"), "GpusReady False")
        await node.write(*ran)
        assert await node.reported(a_0="created", b_0="created") == slices
        assert [gpu.health for gpu in (await node.object()).status.gpus] == ["healthy", "unhealthy"]
        let_go(cards[1])
        await node.until(lambda status: says(status, "True"), "GpusReady True")
        assert await node.reported(a_0="created", b_0="created") == slices


async def test_an_ampere_that_waits_for_its_reset_is_in_the_condition_until_it_was_reset(client, machine, nvml):
    card = a100("GPU-ampere")
    card.mig = card.pending = False
    nvml.cards[:] = [card]
    node = await machine()
    async with an_agent(client, node, nvml, enable_mig=True):
        thing = await node.serving()
        assert [gpu.health for gpu in thing.status.gpus] == ["unhealthy"], "from the first report on"
        told = says(thing.status, "False")
        assert told.reason == "ResetNeeded"
        assert "GPU 0 (GPU-ampere)" in told.message and "nvidia-smi --gpu-reset -i GPU-ampere" in told.message
        card.mig = True
        thing = await node.until(lambda status: says(status, "True"), "GpusReady True")
        assert [gpu.health for gpu in thing.status.gpus] == ["healthy"]
