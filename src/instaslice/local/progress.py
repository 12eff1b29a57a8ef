"""Say how long work is getting on: a bar on a terminal, a line now and then in a log."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

Say = Callable[[str], None]


class Progress(Protocol):
    """What a long step reports to."""

    def step(self, done: int, total: int) -> None: ...


class Silent:
    """For callers that show nothing, such as tests."""

    def step(self, done: int, total: int) -> None:
        return


class Shown:
    """One long step, shown on stderr. Use as a context; leaving it ends the line."""

    EVERY = 20.0
    """Seconds between two lines where there is no terminal."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._bar: object | None = None
        self._next = 0.0

    def __enter__(self) -> "Shown":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
            )
            self._bars.start()
            self._task = self._bars.add_task(self.title, total=None)
            self._bar = self._bars
        else:
            print(self.title, file=sys.stderr, flush=True)
            self._next = time.monotonic() + self.EVERY
        return self

    def step(self, done: int, total: int) -> None:
        if self._bar is not None:
            self._bars.update(self._task, completed=done, total=total)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self.EVERY
            print(f"{self.title}: {done} of {total}", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bars.stop()
