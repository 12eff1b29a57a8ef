"""Show the progress of long steps: a bar with the time left on a terminal, a line from time to time in a log."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

INTERVAL: Final = 20.0
"""Seconds between two lines where there is no terminal."""
FORESEEABLE: Final = 0.03
"""The part that must be done before the time left is estimated: before that, one slow start makes it hours."""


class Progress(Protocol):
    """What a long step reports to."""

    def step(self, done: int, total: int) -> None: ...


class NoProgress:
    """For callers that show nothing, such as tests."""

    def step(self, done: int, total: int) -> None:
        return


class ConsoleProgress:
    """One long step, shown on stderr. Use it as a context manager."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._bar: RichProgress | None = None
        self._began = self._next = 0.0

    def __enter__(self) -> "ConsoleProgress":
        print(self.title, file=sys.stderr, flush=True)
        self._began = time.monotonic()
        self._next = self._began + INTERVAL
        if sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._bar.add_task("", total=None)
        return self

    def step(self, done: int, total: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        elif done and total and (now := time.monotonic()) >= self._next:
            self._next = now + INTERVAL
            left = (now - self._began) / done * (total - done)
            estimate = f", {in_minutes(left)} left" if done >= FORESEEABLE * total else ""
            print(f"{self.title}: {done / total:.0%}{estimate}", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def in_minutes(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {seconds:.0f} s"


def _bar() -> "RichProgress":
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TimeElapsedColumn(), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("left"))
    # The speed over five minutes: packages take from a tenth of a second to half a minute.
    return RichProgress(*columns, console=Console(stderr=True), speed_estimate_period=300)
