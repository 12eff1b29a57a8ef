"""Programs of a cluster are found again, and only they."""

import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from instaslice.local.errors import NotStarted
from instaslice.local.layout import Layout
from instaslice.local.process import CLUSTER_VARIABLE, Processes, ProcessRecord

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def processes(tmp_path):
    made = Processes(Layout(tmp_path))
    yield made
    made.kill_all()


def test_a_started_program_is_found_and_its_output_kept(processes):
    processes.start("echo", [sys.executable, "-c", "print('hello', flush=True); import time; time.sleep(600)"])
    processes.wait("echo", lambda: processes.log("echo").read_text() == "hello\n")
    assert processes.find("echo") is not None
    assert processes.names() == ["echo"]


def test_starting_twice_starts_once(processes):
    processes.start("it", SLEEPS)
    first = processes.find("it").pid
    processes.start("it", SLEEPS)
    assert processes.find("it").pid == first


def test_a_pid_that_is_another_process_by_now_is_not_ours(processes):
    processes.start("it", SLEEPS)
    record = processes.layout.run / "it.json"
    known = msgspec.json.decode(record.read_bytes(), type=ProcessRecord)
    record.write_bytes(msgspec.json.encode(msgspec.structs.replace(known, started=known.started - 100)))
    assert processes.find("it") is None


def test_a_program_that_was_never_recorded_is_ended_by_its_mark(processes):
    """As when `up` is killed between starting it and writing it down."""
    lost = subprocess.Popen(SLEEPS, env={CLUSTER_VARIABLE: str(processes.layout.root)}, start_new_session=True)
    other = subprocess.Popen(SLEEPS, env={CLUSTER_VARIABLE: "/another/cluster"}, start_new_session=True)
    try:
        wait_for_exec(lost, other)
        processes.kill_all()
        assert not alive(lost)
        assert alive(other)
    finally:
        other.kill()
        other.wait()


def test_starting_a_component_ends_one_that_was_never_recorded(processes):
    lost = subprocess.Popen(SLEEPS, env={CLUSTER_VARIABLE: str(processes.layout.root)}, start_new_session=True)
    other = subprocess.Popen(
        [*SLEEPS, "another"], env={CLUSTER_VARIABLE: str(processes.layout.root)}, start_new_session=True
    )
    wait_for_exec(lost, other)
    processes.start("it", ["/usr/bin/env", *SLEEPS])
    assert not alive(lost)
    assert alive(other)


def test_a_program_that_ends_at_its_start_is_reported_with_its_last_words(processes):
    processes.start("bad", [sys.executable, "-c", "print('fine so far'); raise SystemExit('Error: no such flag')"])
    with pytest.raises(NotStarted, match=r"bad ended while starting: Error: no such flag .*bad\.log"):
        processes.wait("bad", lambda: False)


def test_a_program_that_never_gets_ready_is_reported(processes):
    processes.start("slow", SLEEPS)
    with pytest.raises(NotStarted, match="slow is not ready"):
        processes.wait("slow", lambda: False, seconds=0)


def alive(started: subprocess.Popen[bytes]) -> bool:
    return psutil.pid_exists(started.pid) and psutil.Process(started.pid).status() != psutil.STATUS_ZOMBIE


def wait_for_exec(*started: subprocess.Popen[bytes]) -> None:
    """Until a new process shows its own environment, not ours from before the exec."""
    deadline = time.monotonic() + 10
    while any(CLUSTER_VARIABLE not in psutil.Process(each.pid).environ() for each in started):
        assert time.monotonic() < deadline
