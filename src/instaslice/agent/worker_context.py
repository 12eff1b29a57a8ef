"""What the worker of a GPU needs from its process, and what the administrator chose for orphaned slices."""

from asyncio import Task
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instaslice.api.instaslice import PreparedSlice
from instaslice.drivers import Driver, Slice
from instaslice.drivers.executor import GpuExecutor
from instaslice.kube.clock import Clock


@dataclass(frozen=True, slots=True)
class OrphanPolicy:
    """Orphans that no pod uses are destroyed after `grace` seconds; with `keep_foreign` only those that we made."""

    grace: float = 60.0
    keep_foreign: bool = False


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The hardware, the clock and the callbacks of a worker."""

    driver: Driver
    executor: GpuExecutor
    clock: Clock
    orphan_policy: OrphanPolicy
    spawn: Callable[[Coroutine[Any, Any, None]], "Task[None]"]
    """Runs a coroutine whose failure ends the process."""
    changed: Callable[[], None]
    """There is something new to report."""
    failed: Callable[[PreparedSlice], None]
    """Called once for each slice that could not be made or was lost."""
    in_use: Callable[[Sequence[Slice]], Awaitable[Mapping[Slice, str]]]
    """Those of these orphans that must stay, and why: a pod uses them, or it is unknown whether one does."""
