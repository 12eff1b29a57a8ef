"""How far a long step is, and how long it will still take."""

import pytest

from instaslice.local import progress
from instaslice.local.progress import INTERVAL, ConsoleProgress


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_from_time_to_time_with_the_time_left(clock, capsys):
    with ConsoleProgress("building etcd") as shown:
        shown.step(1, 100)
        clock[0] += INTERVAL
        shown.step(10, 100)
        shown.step(11, 100)
        clock[0] += 60
        shown.step(80, 100)
    assert capsys.readouterr().err.splitlines() == [
        "building etcd",
        "building etcd: 10%, about 3 min left",
        "building etcd: 80%, about 20 s left",
    ]


def test_the_time_left_is_estimated_once_enough_is_done(clock, capsys):
    with ConsoleProgress("building kubernetes") as shown:
        clock[0] += INTERVAL
        shown.step(1, 1500)
    assert capsys.readouterr().err.splitlines()[1:] == ["building kubernetes: 0%"]


@pytest.mark.parametrize("done, total", [(0, 0), (5, 0), (0, 10)], ids=["nothing known", "no total", "nothing done"])
def test_nothing_is_estimated_from_nothing(clock, capsys, done, total):
    with ConsoleProgress("downloading") as shown:
        clock[0] += INTERVAL
        shown.step(done, total)
    assert capsys.readouterr().err == "downloading\n"
