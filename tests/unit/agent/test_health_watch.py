"""Hardware under an event loop: a GPU that hangs holds up itself alone, is named, and joins when it answers."""

import asyncio
import threading
import time
from functools import partial

import pytest
from fake_clock import ThreadsClock
from fake_nvml import FakeNvml, a100, h200
from waiting import until
from watching import running

from instaslice.agent import gpu_source, health_watch
from instaslice.agent.gpu_source import Hardware
from instaslice.agent.health_watch import WatchedDriver
from instaslice.drivers import DriverError, Stuck, UnhealthyReason
from instaslice.drivers.nvml import NvmlDriver

DEADLINE = 1.0


async def found(nvml, clock=None, hangs=None, **more):
    """`hangs` is the call that will not come back: its deadline passes, and no other."""
    nvml.pause = lambda seconds: time.sleep(min(seconds, 0.02))
    clock = clock or ThreadsClock()
    finding = asyncio.create_task(WatchedDriver.open(partial(NvmlDriver, nvml=nvml, **more), DEADLINE, clock))
    if hangs:
        await passes(hangs, clock)
    return await finding


async def passes(hangs, clock):
    """The deadline of a call that hangs. All others that have begun by then come back first."""
    assert await asyncio.to_thread(hangs.begun.wait, 30)
    await clock.expire(1)


class Hang(threading.Event):
    """A call waits until it is set."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()

    def wait(self, timeout=None):
        self.begun.set()
        return super().wait(timeout)


def all_unhealthy(driver):
    told = {gpu.uuid: driver.watch_health(gpu.uuid, None, 0) for gpu in driver.discover()}
    return {gpu: unhealthy.reason for gpu, unhealthy in told.items() if unhealthy}


@pytest.fixture
def cards():
    return [h200("GPU-one"), h200("GPU-two"), h200("GPU-three")]


@pytest.fixture
def hang(cards):
    """`hang(card, call)`: the call does not come back from the card until the test is over, or `set` is called."""
    hanging = []

    def begin(card, call):
        card.hangs[call] = Hang()
        hanging.append(card.hangs[call])
        return card.hangs[call]

    yield begin
    for each in hanging:
        each.set()


# Looking for GPUs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, uuid",
    [
        pytest.param("nvmlDeviceGetHandleByIndex", None, id="before its UUID is known"),
        pytest.param("nvmlDeviceGetUUID", None, id="when asked for its UUID"),
        pytest.param("nvmlDeviceGetMigMode", "GPU-two", id="when asked for its MIG mode"),
        pytest.param("nvmlDeviceGetGpuInstancePossiblePlacements", "GPU-two", id="when asked for its geometry"),
        pytest.param("nvmlDeviceGetPciInfo", "GPU-two", id="at the last question"),
    ],
)
async def test_a_gpu_that_hangs_at_the_start_is_named_and_the_others_are_found(cards, hang, call, uuid):
    driver = await found(FakeNvml(*cards), hangs=hang(cards[1], call))
    assert [gpu.uuid for gpu in driver.discover()] == ["GPU-one", "GPU-three"]
    (silent,) = driver.unresponsive()
    assert (silent.index, silent.uuid, silent.unhealthy.reason) == (1, uuid, UnhealthyReason.HUNG)
    assert silent.unhealthy.message.startswith(
        "GPU 1: the probe has not returned after 1 s; look for Xid in dmesg, drain"
    )
    assert driver.create("GPU-three", "1g.18gb", 0).whole


async def test_a_gpu_that_hung_at_the_start_joins_when_it_answers(cards, hang):
    answer, clock = hang(cards[1], "nvmlDeviceGetMigMode"), ThreadsClock()
    driver = await found(FakeNvml(*cards), clock, answer)
    made = driver.create("GPU-one", "1g.18gb", 0)
    async with running(driver) as news:
        cards[1].hangs.clear()
        answer.set()
        clock.woken.set()
        await news.wait()
        assert [gpu.uuid for gpu in driver.discover()] == ["GPU-one", "GPU-two", "GPU-three"]
        assert driver.unresponsive() == ()
        assert driver.slices("GPU-one") == (made,)
        news.clear()
        clock.woken.set()
        cards[1].action = 2
        await news.wait()
        assert all_unhealthy(driver) == {"GPU-two": UnhealthyReason.OTHER}, "and its health is watched"


async def test_a_gpu_that_is_lost_at_the_start_joins_when_it_is_back(cards):
    cards[1].lost, clock, nvml = True, ThreadsClock(), FakeNvml(*cards)
    driver = await found(nvml, clock)
    (silent,) = driver.unresponsive()
    assert silent.unhealthy.reason is UnhealthyReason.OTHER and "GPU is lost" in silent.unhealthy.message
    assert [gpu.uuid for gpu in driver.discover()] == ["GPU-one", "GPU-three"]
    async with running(driver) as news:
        looks = nvml.calls.count("nvmlDeviceGetHandleByIndex")
        clock.woken.set()
        await until(lambda: nvml.calls.count("nvmlDeviceGetHandleByIndex") > looks and not clock.woken.is_set())
        assert [gpu.uuid for gpu in driver.discover()] == ["GPU-one", "GPU-three"], "it is lost still"
        assert not news.is_set()
        cards[1].lost = False
        clock.woken.set()
        await news.wait()
        assert [gpu.uuid for gpu in driver.discover()] == ["GPU-one", "GPU-two", "GPU-three"]
        assert driver.unresponsive() == ()
        assert driver.create("GPU-two", "1g.18gb", 0).whole


async def test_a_gpu_that_is_not_given_to_us_is_not_even_asked(cards, hang):
    hang(cards[1], "nvmlDeviceGetHandleByIndex")
    driver = await found(FakeNvml(*cards), gpus=["0"])
    assert [gpu.uuid for gpu in driver.discover()] == ["GPU-one"]
    assert driver.unresponsive() == ()


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
async def test_a_driver_that_hangs_as_a_whole_ends_the_agent_with_the_remedy(cards, call):
    nvml, answer = FakeNvml(*cards), Hang()
    nvml.before = lambda name: answer.wait() if name == call else None
    with pytest.raises(Stuck, match=r"NVIDIA's driver has not answered for 1 s; .* reboot the node"):
        await found(nvml, hangs=answer)
    answer.set()


async def test_without_a_driver_the_remedy_is_told():
    remedy = r"run on a GPU node, and in a pod .*agent\.driver\.runtimeClassName, or agent\.driver\.library\)"
    with pytest.raises(DriverError, match=remedy):
        await found(FakeNvml(installed=False))


async def test_the_hardware_of_a_machine_is_what_its_driver_finds(cards, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_source, "NvmlDriver", partial(NvmlDriver, nvml=FakeNvml(*cards)))
    hardware = await Hardware.open(("0",), enable_mig=False, proc=tmp_path, deadline=DEADLINE, clock=ThreadsClock())
    driver, _ = hardware.connect(None, lambda *_words: None, lambda: None)
    assert [gpu.uuid for gpu in driver.discover()] == ["GPU-one"]


async def test_people_are_told_which_gpu_hangs_and_which_are_left_alone(cards, hang):
    hung = hang(cards[1], "nvmlDeviceGetMigMode")
    cards[2].mig = cards[2].pending = False
    said = []
    Hardware(await found(FakeNvml(*cards), hangs=hung)).connect(None, lambda *words: said.append(words), lambda: None)
    assert [(why, "MIG mode is off" in note or "GPU 1: the probe" in note) for why, _, note in said] == [
        ("GpuLeftAlone", True),
        ("GpuHung", True),
    ]


# Looking after them ----------------------------------------------------------------------------------------------


async def test_a_gpu_that_waits_for_its_reset_is_unhealthy_before_anybody_can_be_placed_there():
    waiting = a100()
    waiting.mig = waiting.pending = False
    driver = await found(FakeNvml(waiting), enable_mig=True)
    unhealthy = driver.watch_health("GPU-a100", None, 0)
    assert unhealthy.reason is UnhealthyReason.RESET
    assert "run nvidia-smi --gpu-reset -i GPU-a100, or reboot" in unhealthy.message


async def test_a_gpu_that_falls_unhealthy_wakes_the_loop(cards):
    driver = await found(FakeNvml(*cards))
    async with running(driver) as news:
        cards[2].rows_failed = True
        await news.wait()
    assert all_unhealthy(driver) == {"GPU-three": UnhealthyReason.OTHER}


@pytest.mark.parametrize("call", ["nvmlDeviceGetMigMode", "nvmlDeviceGetFieldValues", "nvmlEventSetWait_v2"])
async def test_only_the_gpu_that_hangs_is_unhealthy_and_it_is_well_when_it_answers(cards, hang, monkeypatch, call):
    monkeypatch.setattr(health_watch, "WATCH_SECONDS", 0.1)
    clock = ThreadsClock()
    driver = await found(FakeNvml(*cards), clock)
    async with running(driver) as news:
        answer = hang(cards[1], call)
        await passes(answer, clock)
        await news.wait()
        assert all_unhealthy(driver) == {"GPU-two": UnhealthyReason.HUNG}
        assert "nvidia-smi --gpu-reset -i GPU-two" in driver.watch_health("GPU-two", None, 0).message
        news.clear()
        cards[0].action = 1
        await news.wait()
        assert all_unhealthy(driver) == {"GPU-one": UnhealthyReason.RESET, "GPU-two": UnhealthyReason.HUNG}, (
            "others are heard meanwhile"
        )
        news.clear()
        cards[1].hangs.clear()
        answer.set()
        await news.wait()
        assert all_unhealthy(driver) == {"GPU-one": UnhealthyReason.RESET}
