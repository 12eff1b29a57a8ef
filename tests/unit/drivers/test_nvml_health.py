"""What the NVML driver says of GPUs that are not well, and when they are well again."""

import threading

import pytest
from fake_nvml import FakeNvml, h200, refused

from instaslice.drivers import Stuck, Unhealthy, UnhealthyReason
from instaslice.drivers.nvml import NvmlDriver
from instaslice.drivers.nvml.health import RENEWAL, SETTLED
from instaslice.drivers.nvml.library import ECC_EVENT, XID_EVENT


class Time:
    """Goes on by what is slept, and whenever NVML is waited for in vain."""

    def __init__(self):
        self.now = 0.0

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def nvml():
    return FakeNvml(h200("GPU-one"), h200("GPU-two"))


@pytest.fixture
def driver(nvml, time):
    return NvmlDriver(nvml=nvml, clock=lambda: time.now, sleep=time.sleep)


def all_unhealthy(driver):
    """What ails which GPU now, in words."""
    told = {gpu: driver.watch_health(gpu, None, 0) for gpu in ("GPU-one", "GPU-two")}
    return {gpu: unhealthy.message for gpu, unhealthy in told.items() if unhealthy}


@pytest.mark.parametrize(
    "kind, data, says",
    [
        pytest.param(XID_EVENT, 79, "Xid 79", id="fallen off the bus"),
        pytest.param(XID_EVENT, 48, "Xid 48", id="double bit"),
        pytest.param(ECC_EVENT, 0, "ECC error", id="an uncorrectable ECC error"),
        pytest.param(XID_EVENT, 62, "Xid 62", id="its microcontroller halted"),
        pytest.param(XID_EVENT, 64, "Xid 64", id="rows that could not be retired"),
        pytest.param(XID_EVENT, 74, "Xid 74", id="NVLink"),
        pytest.param(XID_EVENT, 95, "Xid 95", id="an uncontained error"),
        pytest.param(XID_EVENT, 119, "Xid 119", id="its system processor does not answer"),
        pytest.param(XID_EVENT, 13, "", id="a program's exception"),
        pytest.param(XID_EVENT, 31, "", id="a program's page fault"),
        pytest.param(XID_EVENT, 43, "", id="a program that was stopped"),
        pytest.param(XID_EVENT, 45, "", id="a program that was ended"),
        pytest.param(XID_EVENT, 63, "", id="a row that was retired"),
        pytest.param(XID_EVENT, 68, "", id="a video decoder's exception"),
        pytest.param(XID_EVENT, 92, "", id="many errors that were corrected"),
        pytest.param(XID_EVENT, 94, "", id="an error that was contained to its program"),
        pytest.param(XID_EVENT, 109, "", id="a program that was too long at it"),
    ],
)
def test_events_mark_the_gpu_that_they_are_about(driver, nvml, kind, data, says):
    assert all_unhealthy(driver) == {}
    nvml.events.append((nvml.cards[1], kind, data))
    told = all_unhealthy(driver)
    assert list(told) == (["GPU-two"] if says else [])
    assert all(says in words for words in told.values())


def test_a_gpu_is_well_again_when_the_driver_wants_nothing_more_done_to_it(driver, nvml, time):
    all_unhealthy(driver)
    nvml.events.append((nvml.cards[0], XID_EVENT, 48))
    nvml.cards[0].action = 1
    unhealthy = driver.watch_health("GPU-one", None, 0)
    assert unhealthy.message.startswith(
        "the driver says: the GPU must be reset; drain the node and run nvidia-smi --gpu-reset"
    )
    assert unhealthy.reason is UnhealthyReason.RESET
    time.sleep(SETTLED * 2)
    assert all_unhealthy(driver)
    nvml.cards[0].action = 0
    assert all_unhealthy(driver) == {}


def test_a_gpu_without_a_wish_of_its_driver_settles_first(driver, nvml, time):
    all_unhealthy(driver)
    nvml.events.append((nvml.cards[0], XID_EVENT, 48))
    assert "Xid 48" in all_unhealthy(driver)["GPU-one"]
    time.sleep(SETTLED - 1)
    assert all_unhealthy(driver)
    time.sleep(1)
    assert all_unhealthy(driver) == {}


def test_a_driver_too_old_to_be_asked_leaves_it_unhealthy(driver, nvml, time):
    nvml.cards[0].action = None
    assert all_unhealthy(driver) == {}
    nvml.events.append((nvml.cards[0], XID_EVENT, 48))
    all_unhealthy(driver)
    time.sleep(SETTLED * 100)
    assert "Xid 48" in all_unhealthy(driver)["GPU-one"]


def test_broken_rows_without_a_spare_are_told(driver, nvml):
    nvml.cards[1].rows_failed = True
    assert all_unhealthy(driver) == {"GPU-two": "memory rows are broken and no spare is left: replace the GPU"}


def test_a_lost_gpu_is_told_and_found_again_in_a_new_session(driver, nvml, time):
    assert all_unhealthy(driver) == {}
    nvml.cards[0].lost = True
    unhealthy = driver.watch_health("GPU-one", None, 60)
    assert "GPU is lost" in unhealthy.message and time.now < 60
    opened = nvml.calls.count("nvmlInit")
    nvml.cards[0].lost = False
    time.sleep(RENEWAL)
    assert driver.watch_health("GPU-one", unhealthy, 60) is None, "at once"
    assert all_unhealthy(driver) == {} and time.now < RENEWAL + 60
    assert opened == 2 and nvml.sessions == 1
    nvml.events.append((nvml.cards[0], XID_EVENT, 79))
    assert all_unhealthy(driver), "and events are told again"


def test_no_session_is_renewed_under_a_call(driver, nvml, time):
    all_unhealthy(driver)
    driver._session._drain_timeout = 0.01

    def before(name):
        if name == "nvmlGpuInstanceCreateComputeInstance":
            nvml.cards[0].lost = True
            assert driver.watch_health("GPU-one", None, 0)

    nvml.before = before
    assert driver.create("GPU-two", "1g.18gb", 0).whole
    assert nvml.calls.count("nvmlInit") == 1
    time.sleep(RENEWAL)
    all_unhealthy(driver)
    assert nvml.calls.count("nvmlInit") == 2, "but afterwards"


def test_a_new_session_that_does_not_come_back_ends_whoever_needs_one(driver, nvml, time):
    assert all_unhealthy(driver) == {}
    driver._session._stuck_timeout = 0.01
    opening, answer = threading.Event(), threading.Event()

    def before(name):
        if name == "nvmlInit":
            opening.set()
            answer.wait()

    nvml.before, nvml.cards[0].lost = before, True
    finder = threading.Thread(target=lambda: driver.watch_health("GPU-one", None, 0))
    finder.start()
    opening.wait()
    with pytest.raises(Stuck, match="reboot the node"):
        driver.slices("GPU-two")
    answer.set()
    finder.join()
    assert driver.slices("GPU-two") == ()


def test_a_gpu_that_hangs_keeps_others_from_a_new_session_and_from_nothing_else(driver, nvml, time):
    assert all_unhealthy(driver) == {}
    driver._session._drain_timeout = 0.01
    nvml.cards[0].hangs["nvmlDeviceGetMigMode"] = threading.Event()
    hung = threading.Thread(target=lambda: driver.watch_health("GPU-one", None, 0))
    hung.start()
    while not driver._session._in_progress:
        threading.Event().wait(0.01)
    nvml.cards[1].lost = True
    assert "GPU is lost" in driver.watch_health("GPU-two", None, 0).message
    nvml.cards[1].lost = False
    assert driver.create("GPU-two", "1g.18gb", 0).whole
    assert nvml.calls.count("nvmlInit") == 1
    nvml.cards[0].hangs.pop("nvmlDeviceGetMigMode").set()
    hung.join()


def test_another_gpu_in_the_place_of_one_that_was_lost_is_not_taken_for_it(driver, nvml, time):
    assert all_unhealthy(driver) == {}
    nvml.cards[0].lost = True
    assert all_unhealthy(driver)
    nvml.cards[0] = h200("GPU-other")
    time.sleep(RENEWAL)
    all_unhealthy(driver)
    assert "no longer in this machine" in all_unhealthy(driver)["GPU-one"]


def test_a_session_that_cannot_be_opened_again_is_tried_later(driver, nvml, time):
    assert all_unhealthy(driver) == {}
    nvml.installed, nvml.cards[0].lost = False, True
    all_unhealthy(driver)
    assert set(all_unhealthy(driver)) == {"GPU-one", "GPU-two"}
    nvml.installed, nvml.cards[0].lost = True, False
    time.sleep(RENEWAL)
    all_unhealthy(driver)
    assert all_unhealthy(driver) == {}


def test_whoever_watches_is_told_at_once_and_else_after_the_time(driver, nvml, time):
    real = nvml.nvmlEventSetWait_v2

    def waits(events, milliseconds):
        time.sleep(milliseconds / 1000)
        if time.now >= 20:
            nvml.cards[0].action = 2
        return real(events, milliseconds)

    nvml.nvmlEventSetWait_v2 = waits
    assert driver.watch_health("GPU-one", None, 10) is None and time.now == 10
    unhealthy = driver.watch_health("GPU-one", None, 60)
    assert unhealthy == Unhealthy("the driver says: the node must be rebooted")
    assert time.now == 20
    assert driver.watch_health("GPU-one", None, 60) and time.now == 20, "what is not known yet is told without waiting"


def test_a_gpu_that_tells_no_events_is_asked(driver, nvml, time, caplog):
    def before(name):
        if name in ("nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes"):
            raise refused("NOT_SUPPORTED")

    nvml.before = before
    assert driver.watch_health("GPU-one", None, 10) is None and time.now == 10
    assert "its health is queried every 5 s instead" in caplog.text
    nvml.cards[0].rows_failed = True
    assert driver.watch_health("GPU-one", None, 10)


def test_events_that_fail_are_set_up_again(driver, nvml, time):
    all_unhealthy(driver)
    broken = [True]

    def before(name):
        if name == "nvmlEventSetWait_v2" and broken:
            broken.pop()
            raise refused("UNKNOWN")

    nvml.before = before
    assert all_unhealthy(driver) == {}
    assert all_unhealthy(driver) == {}
    assert sorted(gpu for gpu, _ in nvml.registered) == ["GPU-one", "GPU-two"]


def test_closing_ends_the_session(driver, nvml):
    all_unhealthy(driver)
    driver.close()
    assert nvml.sessions == 0
