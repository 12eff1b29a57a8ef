"""Events on an object, so that `kubectl describe` explains what happened to it.

Recording never waits and never fails the caller. A repetition becomes one Event with a count, written at most once
every `REPEAT_SECONDS`: a pod that waits for an hour does not fill etcd.
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
MAX_RECORDS = 4096
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
class _Record:
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
        self._records: OrderedDict[EventKey, _Record] = OrderedDict()
        self._queue: Queue[EventKey] = Queue(clock=clock)
        self._number = 0
        self.lost = 0
        """Events that the server did not accept, or that were too many to track: for metrics."""

    def record(self, event: EventKey) -> None:
        """Have it written soon. Safe at any rate and before `run`; beyond MAX_RECORDS different ones the oldest is
        dropped."""
        record = self._records.get(event)
        if record is None:
            record = self._records[event] = _Record()
            if len(self._records) > MAX_RECORDS:
                _, oldest = self._records.popitem(last=False)
                self.lost += oldest.written == 0
        self._records.move_to_end(event)
        record.count += 1
        if record.written == 0:
            self._queue.add(event)
        else:
            wait = record.last_write + REPEAT_SECONDS - self._clock.monotonic()
            self._queue.add_after(event, max(0.0, wait))

    async def run(self) -> None:
        """Write what is recorded until cancelled, or until `close` and all is written."""
        await self._queue.work(self._write)

    def close(self) -> None:
        self._queue.shut_down()

    async def _write(self, event: EventKey) -> float | None:
        record = self._records.get(event)
        if record is None or record.written == record.count:
            return None
        count = record.count
        try:
            if record.key is not None:
                await self._repeat(record.key, count)
            else:
                record.key = await self._create(event, count)
        except NotFound:
            # The server forgets Events after an hour, and everything in a namespace that is going away.
            gone = record.key is not None
            record.key = None
            if gone:
                return 0.0
            self._drop(event)
        except (Forbidden, ServerError, TooManyRequests, Unreachable) as error:
            # A server that has just started forbids everything until it has read its roles.
            log.warning("%s", error)
            record.tries += 1
            if record.tries < MAX_TRIES:
                return RETRY_SECONDS * record.tries
            self._drop(event)
        except KubeError as error:
            log.warning("%s", error)
            self._drop(event)
        else:
            record.written, record.tries = count, 0
            record.last_write = self._clock.monotonic()
        return None

    async def _create(self, event: EventKey, count: int) -> Key:
        moment = self._clock.now()
        now = micro_time(moment)
        self._number += 1
        # As client-go names them: the object, then a number that another recorder is unlikely to use.
        number = int(moment.timestamp() * 1_000_000) + self._number
        key = Key(event.regarding.namespace or "default", f"{event.regarding.name[:220]}.{number:x}")
        document = Event(
            metadata=ObjectMeta(namespace=key.namespace, name=key.name),
            regarding=event.regarding,
            type="Warning" if event.warning else "Normal",
            event_time=now,
            reason=event.reason,
            action=event.action,
            note=event.note[:MAX_NOTE],
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            series=EventSeries(count=count, last_observed_time=now) if count > 1 else None,
        )
        await self._client.create(EVENTS, document)
        return key

    async def _repeat(self, key: Key, count: int) -> None:
        series = EventSeries(count=count, last_observed_time=micro_time(self._clock.now()))
        await self._client.merge(EVENTS, key, {"series": msgspec.to_builtins(series)})

    def _drop(self, event: EventKey) -> None:
        self.lost += 1
        self._records.pop(event, None)


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
