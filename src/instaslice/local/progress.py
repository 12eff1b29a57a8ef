"""Say how long work is getting on: a bar on a terminal, a line now and then in a log."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


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
        self._bars: Bars | None = None
        self._next = 0.0

    def __enter__(self) -> "Shown":
        if sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
            self._bars.add_task(self.title, total=None)
        else:
            print(self.title, file=sys.stderr, flush=True)
            self._next = time.monotonic() + self.EVERY
        return self

    def step(self, done: int, total: int) -> None:
        if self._bars is not None:
            self._bars.update(self._bars.task_ids[0], completed=done, total=total)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self.EVERY
            print(f"{self.title}: {done} of {total}", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()


def _bars() -> "Bars":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Bars(*columns, console=Console(stderr=True))
