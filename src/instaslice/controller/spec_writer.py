"""Write what is reserved into the Instaslice objects: one patch in flight per object, with all that gathered.

Every patch tests the generation it is based on. The generation changes with the spec and with nothing else, so a leader
that was replaced without noticing is refused, and status reports do not interfere.
"""

from dataclasses import dataclass
from functools import partial

from instaslice.api.instaslice import INSTASLICES, Instaslice, InstasliceSpec
from instaslice.api.writing import QUIET_SECONDS, SPEC_COOLDOWN, cooldown, initial_delay
from instaslice.controller.errors import Deposed
from instaslice.controller.ledger import Ledger
from instaslice.kube.client import Client, JsonOp
from instaslice.kube.clock import Clock
from instaslice.kube.coalescing_writer import CoalescingWriter
from instaslice.kube.errors import Invalid, NotFound
from instaslice.kube.meta import Key
from instaslice.placement import NodeName


@dataclass(slots=True)
class _Object:
    """An Instaslice object in the server, as far as we know it."""

    writer: CoalescingWriter[Instaslice, InstasliceSpec]
    generation: int
    seen: int = 0
    """The highest generation that the watch brought; more than ours only until a write is answered."""
    begin_at: float | None = None
    """Until when a first change waits for others; None where nothing has changed since the last write."""


class SpecWriter:
    def __init__(self, client: Client, ledger: Ledger, manager: str, clock: Clock) -> None:
        self._clock = clock
        self._client = client
        self._ledger = ledger
        self._manager = manager
        self._objects: dict[NodeName, _Object] = {}
        self._took = 0.0
        """Seconds that the last write of any object took."""
        self._changed_at = 0.0

    def seen(self, old: Instaslice | None, new: Instaslice | None) -> None:
        """A change from the watch. The spec counts only for objects that are new to us; from then on ours does. Raises
        Deposed for a spec that we did not write: one that we never write again would stay unknown to us."""
        thing = new or old
        assert thing is not None, "a change is of an object"
        name = NodeName(thing.metadata.name)
        known = self._objects.get(name)
        if new is None:
            self._objects.pop(name, None)
        elif known is None or known.writer.uid != new.metadata.uid:
            writer = CoalescingWriter(
                self._client,
                INSTASLICES,
                name,
                new.metadata.uid,
                manager=self._manager,
                clock=self._clock,
                cooldown=partial(cooldown, times=SPEC_COOLDOWN),
                written=new.spec,
            )
            self._objects[name] = _Object(writer, new.metadata.generation)
        else:
            known.seen = max(known.seen, new.metadata.generation)
            if known.writer.unanswered is None and known.seen > known.generation:
                raise _changed_by_another(name)

    def changed(self, node: NodeName) -> float:
        """There is a change that a pod waits for; the seconds after which to call `write`."""
        now = self._clock.monotonic()
        coming = now - self._changed_at < QUIET_SECONDS
        self._changed_at = now
        known = self._objects.get(node)
        if known is None:
            return 0.0
        if self._ledger.fleet.full(node):
            known.begin_at = now  # nothing more can be reserved there, so no other change will come
        elif known.begin_at is None:
            known.begin_at = now + initial_delay(self._took, arriving=coming)
        return max(0.0, min(known.begin_at - now, QUIET_SECONDS))

    async def write(self, node: NodeName) -> float | None:
        """Make the object say what the ledger says; the seconds after which to call again, where changes still gather.
        Never two at once for one node: the queue sees to that."""
        known, record = self._objects.get(node), self._ledger.nodes.get(node)
        if known is None or record is None:
            return None
        writer = known.writer
        if writer.unanswered is not None:
            await self._read_back(node, known)
        spec = record.spec()
        if spec == writer.written:
            known.begin_at = None
            return None
        ready = max(writer.free_at, known.begin_at or 0.0)
        wait = min(ready, self._changed_at + QUIET_SECONDS) - self._clock.monotonic()
        if wait > 0:
            return wait
        known.begin_at = None
        same_generation = JsonOp(op="test", path="/metadata/generation", value=known.generation)
        try:
            answer = await writer.patch(spec, [same_generation, JsonOp(op="add", path="/spec", value=spec)])
        except Invalid:
            await self._read_back(node, known)
            raise
        if answer is not None:
            known.generation, self._took = answer.metadata.generation, writer.took
            if known.seen > known.generation:
                raise _changed_by_another(node)  # after our write, and before its answer came
        return None

    async def _read_back(self, node: NodeName, known: _Object) -> None:
        """What became of a write without an answer. Raises Deposed where somebody else wrote."""
        try:
            found = await self._client.get(INSTASLICES, Key("", node))
        except NotFound:
            return
        if found.metadata.uid != known.writer.uid:
            return
        if found.metadata.generation != known.generation and found.spec != known.writer.unanswered:
            raise _changed_by_another(node)
        known.generation = found.metadata.generation
        known.writer.confirm(found.spec)


def _changed_by_another(node: NodeName) -> Deposed:
    return Deposed(f"instaslice {node}: its spec was changed by another process; starting again from what is there")
