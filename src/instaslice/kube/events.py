"""Say on an object what happened to it, so that `kubectl describe` explains it.

Recording never waits and never fails the caller. The same thing said again becomes one Event with a count, written at
most once every `REPEAT_SECONDS`: a pod that waits for an hour does not fill etcd with its waiting.
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import EVENTS, Event, EventSeries, ObjectReference
from instaslice.kube.errors import Forbidden, KubeError, NotFound, ServerError, TooManyRequests, Unreachable
from instaslice.kube.lease import micro_time
from instaslice.kube.meta import Key, Object, ObjectMeta
from instaslice.kube.queue import Queue
from instaslice.kube.resource import Resource

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)

REPEAT_SECONDS = 60.0
MAX_REMEMBERED = 4096
MAX_NOTE = 1024
MAX_TRIES = 6
RETRY_SECONDS = 2.0
"""After the first failure, longer after each further one: an event outlasts half a minute without a server."""


class EventKey(NamedTuple):
    """What makes two events the same."""

    regarding: ObjectReference
    warning: bool
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class _Memory:
    count: int = 0
    written: int = 0
    tries: int = 0
    key: Key | None = None
    last_write: float = 0.0


class Recorder:
    """Run `run` beside everything else; call `record` from anywhere on the loop."""

    def __init__(self, client: Client, *, controller: str, instance: str, clock: Clock) -> None:
        self._client = client
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._memory: OrderedDict[EventKey, _Memory] = OrderedDict()
        self._queue: Queue[EventKey] = Queue(clock=clock)
        self._number = 0
        self.lost = 0
        """Events that the server did not take, or that were too many to remember: for metrics."""

    def record(self, said: EventKey) -> None:
        """Have it written soon. Safe at any rate and before `run`; beyond MOST_REMEMBERED different ones the oldest is
        forgotten."""
        memory = self._memory.get(said)
        if memory is None:
            memory = self._memory[said] = _Memory()
            if len(self._memory) > MAX_REMEMBERED:
                _, oldest = self._memory.popitem(last=False)
                self.lost += oldest.written == 0
        self._memory.move_to_end(said)
        memory.count += 1
        if memory.written == 0:
            self._queue.add(said)
        else:
            wait = memory.last_write + REPEAT_SECONDS - self._clock.monotonic()
            self._queue.add_after(said, max(0.0, wait))

    async def run(self) -> None:
        """Write what is recorded until cancelled, or until `close` and all is written."""
        await self._queue.work(self._write)

    def close(self) -> None:
        self._queue.shut_down()

    async def _write(self, said: EventKey) -> float | None:
        memory = self._memory.get(said)
        if memory is None or memory.written == memory.count:
            return None
        count = memory.count
        try:
            if memory.key is not None:
                await self._repeat(memory.key, count)
            else:
                memory.key = await self._create(said, count)
        except NotFound:
            # The server forgets Events after an hour, and everything in a namespace that is going away.
            again = memory.key is not None
            memory.key = None
            if again:
                return 0.0
            self._lose(said)
        except (Forbidden, ServerError, TooManyRequests, Unreachable) as error:
            # A server that was just started refuses us until it has read its roles.
            log.warning("%s", error)
            memory.tries += 1
            if memory.tries < MAX_TRIES:
                return RETRY_SECONDS * memory.tries
            self._lose(said)
        except KubeError as error:
            log.warning("%s", error)
            self._lose(said)
        else:
            memory.written, memory.tries = count, 0
            memory.last_write = self._clock.monotonic()
        return None

    async def _create(self, said: EventKey, count: int) -> Key:
        moment = self._clock.now()
        now = micro_time(moment)
        self._number += 1
        # As client-go names them: the object, then a number that another recorder will hardly hit upon.
        number = int(moment.timestamp() * 1_000_000) + self._number
        key = Key(said.regarding.namespace or "default", f"{said.regarding.name[:220]}.{number:x}")
        event = Event(
            metadata=ObjectMeta(namespace=key.namespace, name=key.name),
            regarding=said.regarding,
            type="Warning" if said.warning else "Normal",
            event_time=now,
            reason=said.reason,
            action=said.action,
            note=said.note[:MAX_NOTE],
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            series=EventSeries(count=count, last_observed_time=now) if count > 1 else None,
        )
        await self._client.create(EVENTS, event)
        return key

    async def _repeat(self, key: Key, count: int) -> None:
        series = EventSeries(count=count, last_observed_time=micro_time(self._clock.now()))
        await self._client.merge(EVENTS, key, {"series": msgspec.to_builtins(series)})

    def _lose(self, said: EventKey) -> None:
        self.lost += 1
        self._memory.pop(said, None)


def reference(resource: Resource[T], thing: T) -> ObjectReference:
    """What an Event regards."""
    meta = thing.metadata
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
    )
