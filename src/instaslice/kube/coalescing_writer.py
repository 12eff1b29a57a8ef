"""Write one object with at most one patch in flight: the next patch carries all changes that gathered meanwhile.

A write costs the API server by the size of the whole object, so after each one changes gather for a time that grows
with how long it took. The caller writes an object from one task at a time, as a work queue ensures, and decides how
long the first change may wait.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Generic, TypeVar

from instaslice.kube.client import Client, JsonOp
from instaslice.kube.clock import Clock
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key, Object
from instaslice.kube.resource import Resource

T = TypeVar("T", bound=Object)
V = TypeVar("V")


class CoalescingWriter(Generic[T, V]):
    """The writes of one object; `V` is the part that we write."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        name: str,
        uid: str,
        *,
        manager: str,
        clock: Clock,
        cooldown: Callable[[float], float],
        written: V | None,
        subresource: str = "",
        limit: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """`cooldown` maps the seconds of a write to the seconds that changes gather afterwards; `limit` is held during
        a write."""
        self.uid = uid
        self.written = written
        """What the server holds; None where that is not known: nothing was read yet, or a write got no answer."""
        self.unanswered: V | None = None
        """The value of a write without an answer: it may have been carried out."""
        self.took = 0.0
        """Seconds that the last write took."""
        self.wrote_at = self.free_at = 0.0
        """When the last write ended, and until when changes gather after it."""
        self._client, self._resource, self._key = client, resource, Key("", name)
        self._manager, self._subresource = manager, subresource
        self._clock, self._cooldown = clock, cooldown
        self._limit = limit or nullcontext()

    async def patch(self, value: V, ops: Sequence[JsonOp]) -> T | None:
        """Make the object hold `value` with these steps. None where it is gone, which the watch will say. Raises
        KubeError, Invalid also where the name belongs to another object by now."""
        began, before = self._clock.monotonic(), self.written
        self.written, self.unanswered = None, value
        try:
            async with self._limit:
                answer = await self._client.patch(
                    self._resource,
                    self._key,
                    [same_object(self.uid), *ops],
                    manager=self._manager,
                    subresource=self._subresource,
                )
        except NotFound:
            self.written, self.unanswered = before, None
            return None
        self.confirm(value)
        self.wrote_at = self._clock.monotonic()
        self.took = self.wrote_at - began
        self.free_at = self.wrote_at + self._cooldown(self.took)
        return answer

    def confirm(self, value: V) -> None:
        """The server holds this."""
        self.written, self.unanswered = value, None


def same_object(uid: str) -> JsonOp:
    """Refuses a patch of another object that was created under the same name since."""
    return JsonOp(op="test", path="/metadata/uid", value=uid)
