"""What the NVML driver says of GPUs that are not well, and when they are well again."""

import pytest
from fake_nvml import FakeNvml, h200, refused

from instaslice.drivers.nvml import NvmlDriver
from instaslice.drivers.nvml.health import HARMLESS, RENEWAL, SETTLED
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


@pytest.mark.parametrize(
    "kind, data, says",
    [
        pytest.param(XID_EVENT, 79, "Xid 79", id="fallen off the bus"),
        pytest.param(XID_EVENT, 48, "Xid 48", id="double bit"),
        pytest.param(ECC_EVENT, 0, "ECC error", id="an uncorrectable ECC error"),
        *[pytest.param(XID_EVENT, xid, "", id=f"Xid {xid} is a program's own") for xid in sorted(HARMLESS)],
    ],
)
def test_events_mark_the_gpu_that_they_are_about(driver, nvml, kind, data, says):
    assert driver.watch_health({}, 0) == {}
    nvml.events.append((nvml.cards[1], kind, data))
    ills = driver.watch_health({}, 0)
    assert list(ills) == (["GPU-two"] if says else [])
    assert all(says in words for words in ills.values())


def test_an_event_of_which_the_gpu_is_not_told_marks_all(driver, nvml):
    driver.watch_health({}, 0)
    nvml.events.append((None, XID_EVENT, 79))
    assert set(driver.watch_health({}, 0)) == {"GPU-one", "GPU-two"}


def test_a_gpu_is_well_again_when_the_driver_wants_nothing_more_done_to_it(driver, nvml, time):
    driver.watch_health({}, 0)
    nvml.events.append((nvml.cards[0], XID_EVENT, 48))
    nvml.cards[0].action = 1
    assert driver.watch_health({}, 0) == {"GPU-one": "the driver says: the GPU must be reset"}
    time.sleep(SETTLED * 2)
    assert driver.watch_health({}, 0)
    nvml.cards[0].action = 0
    assert driver.watch_health({}, 0) == {}


def test_a_gpu_without_a_wish_of_its_driver_settles_first(driver, nvml, time):
    driver.watch_health({}, 0)
    nvml.events.append((nvml.cards[0], XID_EVENT, 48))
    assert "Xid 48" in driver.watch_health({}, 0)["GPU-one"]
    time.sleep(SETTLED - 1)
    assert driver.watch_health({}, 0)
    time.sleep(1)
    assert driver.watch_health({}, 0) == {}


def test_a_driver_too_old_to_be_asked_leaves_it_ill(driver, nvml, time):
    nvml.cards[0].action = None
    assert driver.watch_health({}, 0) == {}
    nvml.events.append((nvml.cards[0], XID_EVENT, 48))
    driver.watch_health({}, 0)
    time.sleep(SETTLED * 100)
    assert "Xid 48" in driver.watch_health({}, 0)["GPU-one"]


def test_broken_rows_without_a_spare_are_told(driver, nvml):
    nvml.cards[1].rows_failed = True
    assert driver.watch_health({}, 0) == {"GPU-two": "memory rows are broken and no spare is left: replace the GPU"}


def test_a_lost_gpu_is_told_and_found_again_in_a_new_session(driver, nvml, time):
    assert driver.watch_health({}, 0) == {}
    nvml.cards[0].lost = True
    ills = driver.watch_health({}, 60)
    assert "GPU is lost" in ills["GPU-one"] and time.now < 60
    opened = nvml.calls.count("nvmlInit")
    nvml.cards[0].lost = False
    time.sleep(RENEWAL)
    assert driver.watch_health(ills, 0) == {}
    assert opened == 2 and nvml.sessions == 1
    nvml.events.append((nvml.cards[0], XID_EVENT, 79))
    assert driver.watch_health({}, 0), "and events are told again"


def test_no_session_is_renewed_under_a_call(driver, nvml, time):
    driver.watch_health({}, 0)

    def before(name):
        if name == "nvmlGpuInstanceCreateComputeInstance":
            nvml.cards[0].lost = True
            assert list(driver.watch_health({}, 0)) == ["GPU-one"]

    nvml.before = before
    assert driver.create("GPU-two", "1g.18gb", 0).whole
    assert nvml.calls.count("nvmlInit") == 1
    time.sleep(RENEWAL)
    driver.watch_health({}, 0)
    assert nvml.calls.count("nvmlInit") == 2, "but afterwards"


def test_a_session_that_cannot_be_opened_again_is_tried_later(driver, nvml, time):
    assert driver.watch_health({}, 0) == {}
    nvml.installed, nvml.cards[0].lost = False, True
    driver.watch_health({}, 0)
    assert set(driver.watch_health({}, 0)) == {"GPU-one", "GPU-two"}
    nvml.installed, nvml.cards[0].lost = True, False
    time.sleep(RENEWAL)
    driver.watch_health({}, 0)
    assert driver.watch_health({}, 0) == {}


def test_whoever_watches_is_told_at_once_and_else_after_the_time(driver, nvml, time):
    real = nvml.nvmlEventSetWait_v2

    def waits(events, milliseconds):
        time.sleep(milliseconds / 1000)
        if time.now >= 20:
            nvml.cards[0].action = 2
        return real(events, milliseconds)

    nvml.nvmlEventSetWait_v2 = waits
    assert driver.watch_health({}, 10) == {} and time.now == 10
    assert driver.watch_health({}, 60) == {"GPU-one": "the driver says: the node must be rebooted"}
    assert time.now == 20
    assert driver.watch_health({}, 60) and time.now == 20, "what is not known yet is told without waiting"


def test_a_gpu_that_tells_no_events_is_asked(driver, nvml, time, caplog):
    def before(name):
        if name in ("nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes"):
            raise refused("NOT_SUPPORTED")

    nvml.before = before
    assert driver.watch_health({}, 10) == {} and time.now == 10
    assert "its health is asked for every 5 s instead" in caplog.text
    nvml.cards[0].rows_failed = True
    assert list(driver.watch_health({}, 10)) == ["GPU-one"]


def test_events_that_fail_are_set_up_anew(driver, nvml, time):
    driver.watch_health({}, 0)
    broken = [True]

    def before(name):
        if name == "nvmlEventSetWait_v2" and broken:
            broken.pop()
            raise refused("UNKNOWN")

    nvml.before = before
    assert driver.watch_health({}, 0) == {}
    assert driver.watch_health({}, 0) == {}
    assert [gpu for gpu, _ in nvml.registered] == ["GPU-one", "GPU-two"]


def test_closing_ends_the_session(driver, nvml):
    driver.watch_health({}, 0)
    driver.close()
    assert nvml.sessions == 0
