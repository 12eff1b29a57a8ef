"""How an async caller waits for a driver: one lane a GPU, in it one call at a time, each with a deadline.

A lane keeps its thread for a while when its work is done: NVIDIA's driver is slower in a new one, a destroy by a tenth.
Only so many do, so a process that plays a thousand emulated nodes has little more threads than GPUs are busy. Threads
are daemons: a hung driver must not keep the agent from ending.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from instaslice.drivers.driver import GpuUuid
from instaslice.drivers.errors import Hung

T = TypeVar("T")

KEPT_SECONDS = 90.0
"""Longer than an agent goes without a look at its GPUs."""
KEPT_LANES = 64
"""More than a machine has GPUs."""


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class GpuExecutor:
    """Runs blocking calls, those of one GPU in the order in which they came, those of different GPUs in parallel.

    Deadlines are kept by `call_later`, which is the event loop's where nothing else is given.
    """

    def __init__(self, deadline: float = 60.0, call_later: CallLater | None = None) -> None:
        self.deadline = deadline
        self._call_later = call_later
        self._executor: dict[GpuUuid, _GpuThread] = {}
        self._kept = threading.Semaphore(KEPT_LANES)

    async def call(self, gpu: GpuUuid, what: str, work: Callable[[], T]) -> T:
        """The result of `work()`, run in the lane of the GPU; `what` names it in messages.

        Raises what it raises, and Hung when it has not come back within the deadline, queueing included. A call that
        was already running goes on in its thread and may still take effect; one that had not begun never will.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        lane = self._executor.setdefault(gpu, _GpuThread(gpu, self._kept))
        job = _Call(work, answer, loop)
        lane.put(job)

        def expire() -> None:
            if not answer.done():
                behind = "" if job.begun else ", behind another call that hangs"
                answer.set_exception(Hung(gpu, f"{what} has not come back after {self.deadline:g} s{behind}"))

        timer = (self._call_later or loop.call_later)(self.deadline, expire)
        try:
            return await answer
        finally:
            timer.cancel()
            job.abandon()
            answer.cancel()


class _Call:
    """One call and whom to tell. Whoever is first decides: the thread that begins it or the caller that gives up."""

    def __init__(self, work: Callable[[], Any], answer: asyncio.Future[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.begun = False
        self._abandoned = False
        self._work, self._answer, self._loop = work, answer, loop
        self._lock = threading.Lock()

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True

    def run(self) -> None:
        with self._lock:
            if self._abandoned:
                return
            self.begun = True
        try:
            result = self._work()
        except BaseException as error:
            self._tell(self._answer.set_exception, error)
        else:
            self._tell(self._answer.set_result, result)

    def _tell(self, settle: Callable[[Any], None], value: object) -> None:
        def told() -> None:
            if not self._answer.done():
                settle(value)

        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            self._loop.call_soon_threadsafe(told)


class _GpuThread:
    """A queue with a thread while there is something in it, and for a while after."""

    def __init__(self, name: str, kept: threading.Semaphore) -> None:
        self._name = name
        self._kept = kept
        self._jobs: deque[_Call] = deque()
        self._news = threading.Condition()
        self._running = False

    def put(self, job: _Call) -> None:
        with self._news:
            self._jobs.append(job)
            if self._running:
                self._news.notify()
                return
            self._running = True
        threading.Thread(target=self._drain, name=self._name, daemon=True).start()

    def _drain(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            del job

    def _next(self) -> _Call | None:
        """None when the thread shall end."""
        with self._news:
            if not self._jobs and self._kept.acquire(blocking=False):
                self._news.wait_for(lambda: self._jobs, KEPT_SECONDS)
                self._kept.release()
            if self._jobs:
                return self._jobs.popleft()
            self._running = False
            return None
