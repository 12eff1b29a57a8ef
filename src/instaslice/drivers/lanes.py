"""How an async caller waits for a driver: one lane a GPU, in it one call at a time, each with a deadline.

A lane has a thread only while it has work, so a process that plays a thousand emulated nodes has as many threads as
GPUs are busy. The threads are daemons: a hung driver must not keep the agent from ending.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from instaslice.drivers.driver import GpuUuid
from instaslice.drivers.errors import Hung

T = TypeVar("T")


class Lanes:
    """Runs blocking calls, those of one GPU in the order in which they came, those of different GPUs in parallel."""

    def __init__(self, deadline: float = 60.0) -> None:
        self.deadline = deadline
        self._lanes: dict[GpuUuid, _Lane] = {}

    async def call(self, gpu: GpuUuid, what: str, work: Callable[[], T]) -> T:
        """The result of `work()`, run in the lane of the GPU; `what` names it in messages.

        Raises what it raises, and Hung when it has not come back within the deadline, queueing included. A call that
        was already running goes on in its thread and may still take effect; one that had not begun never will.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        lane = self._lanes.setdefault(gpu, _Lane(gpu))
        job = _Job(work, answer, loop)
        lane.put(job)
        try:
            await asyncio.wait([answer], timeout=self.deadline)
            if answer.done():
                return answer.result()
            behind = "" if job.begun else ", behind another call that hangs"
            raise Hung(gpu, f"{what} has not come back after {self.deadline:g} s{behind}")
        finally:
            job.abandon()
            answer.cancel()


class _Job:
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


class _Lane:
    """A queue with a thread while there is something in it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._running = False

    def put(self, job: _Job) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._drain, name=self._name, daemon=True).start()

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running = False
                    return
                job = self._jobs.popleft()
            job.run()
