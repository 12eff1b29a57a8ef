"""A progress bar appears after three seconds, on a terminal only."""

from io import StringIO

import pytest
from fake_clock import FakeClock
from rich.console import Console

from instaslice.cli.terminal.late_progress import LateProgress


def drawn(*steps, terminal=True, total=100):
    """What is on the screen after each step; a step is when, and how much more is done."""
    clock, screen, found = FakeClock(start=0.0), StringIO(), []
    console = Console(file=screen, force_terminal=terminal, width=80)
    with LateProgress(total, console, clock.monotonic) as progress:
        for at, more in steps:
            clock.advance(at - clock.monotonic())
            progress("adaptive", more)
            if progress._bar is not None:
                progress._bar.refresh()
            found.append(screen.getvalue())
    return found


@pytest.mark.parametrize("total", [pytest.param(100, id="known"), pytest.param(None, id="unknown")])
def test_nothing_is_drawn_before_three_seconds(total):
    before, after = drawn((2.9, 40), (3.0, 10), total=total)
    assert before == ""
    assert "adaptive" in after


def test_what_was_done_before_counts():
    assert "50%" in drawn((1.0, 40), (3.0, 10))[-1]


def test_nothing_is_drawn_where_nobody_looks():
    assert drawn((5.0, 40), (60.0, 10), terminal=False) == ["", ""]
