"""Blocking calls of a driver for an async caller: one thread per GPU, one call at a time, each with a deadline.

A thread is kept for a while when it is idle: NVIDIA's driver is slower in a new one, a destroy by a tenth. Only so many
are kept, so a process that emulates a thousand nodes has few more threads than busy GPUs. Threads are daemons: a hung
driver must not prevent the agent from ending.
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
"""Longer than an agent goes without a call to its GPUs."""
KEPT_THREADS = 64
"""More than a machine has GPUs."""


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class GpuExecutor:
    """Runs the blocking calls of one GPU in their order, and those of different GPUs in parallel.

    Deadlines use `call_later`, by default the event loop's.
    """

    def __init__(self, deadline: float = 60.0, call_later: CallLater | None = None) -> None:
        self.deadline = deadline
        self._call_later = call_later
        self._threads: dict[GpuUuid, _GpuThread] = {}
        self._kept = threading.Semaphore(KEPT_THREADS)

    async def call(self, gpu: GpuUuid, what: str, work: Callable[[], T]) -> T:
        """The result of `work()`, run in the thread of the GPU; `what` names it in messages.

        Raises what it raises, and Hung when it has not returned within the deadline, time in the queue included. A call
        that is already running continues in its thread and may still take effect; one that has not begun never will.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        thread = self._threads.setdefault(gpu, _GpuThread(gpu, self._kept))
        call = _Call(work, answer, loop)
        thread.put(call)

        def expire() -> None:
            if not answer.done():
                behind = "" if call.begun else ", behind another call that hangs"
                answer.set_exception(Hung(gpu, f"{what} has not returned after {self.deadline:g} s{behind}"))

        timer = (self._call_later or loop.call_later)(self.deadline, expire)
        try:
            return await answer
        finally:
            timer.cancel()
            call.abandon()
            answer.cancel()


class _Call:
    """One call and its caller. Whichever is first decides: the thread that begins it or the caller that gives up."""

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
            self._resolve(self._answer.set_exception, error)
        else:
            self._resolve(self._answer.set_result, result)

    def _resolve(self, settle: Callable[[Any], None], value: object) -> None:
        def set_it() -> None:
            if not self._answer.done():
                settle(value)

        with suppress(RuntimeError):  # the loop has ended, and its callers with it
            self._loop.call_soon_threadsafe(set_it)


class _GpuThread:
    """A queue of calls, with a thread while it has any and for a while after."""

    def __init__(self, name: str, kept: threading.Semaphore) -> None:
        self._name = name
        self._kept = kept
        self._calls: deque[_Call] = deque()
        self._changed = threading.Condition()
        self._running = False

    def put(self, call: _Call) -> None:
        with self._changed:
            self._calls.append(call)
            if self._running:
                self._changed.notify()
                return
            self._running = True
        threading.Thread(target=self._drain, name=self._name, daemon=True).start()

    def _drain(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            del call

    def _next(self) -> _Call | None:
        """None when the thread is to end."""
        with self._changed:
            if not self._calls and self._kept.acquire(blocking=False):
                self._changed.wait_for(lambda: self._calls, KEPT_SECONDS)
                self._kept.release()
            if self._calls:
                return self._calls.popleft()
            self._running = False
            return None
