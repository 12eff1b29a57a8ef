"""A progress bar for what may take minutes, or a blink: it appears when three seconds have passed."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import Progress

SHOWN_AFTER: Final = 3.0


class LateProgress:
    """Called with what goes on and how much more of it is done. Draws on a terminal only. `total` may be unknown."""

    def __init__(
        self, total: int | None, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._begun = clock()
        self._total = total
        self._done = 0
        self._bar: Progress | None = None

    def __call__(self, what: str, more: int) -> None:
        self._done += more
        if self._bar is None:
            if not self._console.is_terminal or self._clock() - self._begun < SHOWN_AFTER:
                return
            self._bar = Progress(console=self._console, transient=True)
            self._bar.add_task(what, total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=what, completed=self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
