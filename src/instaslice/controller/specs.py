"""Writes what is promised into the Instaslice objects: one patch in flight an object, with all that gathered.

Every patch carries the generation that it goes by. The generation changes with the spec and with nothing else, so a
leader that was replaced without noticing is refused, and status reports are in nobody's way.
"""

from dataclasses import dataclass

from instaslice.api.instaslice import INSTASLICES, Instaslice, InstasliceSpec
from instaslice.api.writing import QUIET_SECONDS, SPEC_COOLDOWN, cooldown, initial_delay
from instaslice.controller.errors import Deposed
from instaslice.controller.ledger import Ledger
from instaslice.kube.client import Client, JsonOp
from instaslice.kube.clock import Clock
from instaslice.kube.errors import Invalid, NotFound
from instaslice.kube.meta import Key
from instaslice.placement import NodeName


@dataclass(slots=True)
class _Known:
    """What stands in the server as far as we know."""

    uid: str
    generation: int
    spec: InstasliceSpec
    free_at: float = 0.0
    """When it may be written again."""
    begin_at: float | None = None
    """Until when a first change waits for company; None where nothing has changed since the last write."""
    tried: InstasliceSpec | None = None
    """What a write says that had no answer: it may have been carried out."""


class Specs:
    def __init__(self, client: Client, ledger: Ledger, manager: str, clock: Clock) -> None:
        self._clock = clock
        self._client = client
        self._ledger = ledger
        self._manager = manager
        self._known: dict[NodeName, _Known] = {}
        self._took = 0.0
        """Seconds, the last write of any object."""
        self._changed_at = 0.0

    def seen(self, old: Instaslice | None, new: Instaslice | None) -> None:
        """What the watch says. Only of objects that are new to us the spec counts; then ours does. Raises Deposed where
        it tells of a spec that we did not write: one that we never write again would stay unknown to us."""
        thing = new or old
        assert thing is not None, "a change has two sides"
        name = NodeName(thing.metadata.name)
        if new is None:
            self._known.pop(name, None)
        elif name not in self._known or self._known[name].uid != new.metadata.uid:
            self._known[name] = _Known(new.metadata.uid, new.metadata.generation, new.spec)
        elif self._known[name].tried is None and new.metadata.generation > self._known[name].generation:
            raise _by_another(name)

    def changed(self, node: NodeName) -> float:
        """There is something to write that a pod waits for; the seconds after which to begin."""
        now = self._clock.monotonic()
        coming = now - self._changed_at < QUIET_SECONDS
        self._changed_at = now
        known = self._known.get(node)
        if known is None:
            return 0.0
        if self._ledger.fleet.full(node):
            known.begin_at = now  # nothing more can be promised there, so nothing is to come
        elif known.begin_at is None:
            known.begin_at = now + initial_delay(self._took, arriving=coming)
        return max(0.0, min(known.begin_at - now, QUIET_SECONDS))

    async def write(self, node: NodeName) -> float | None:
        """Make the object say what the ledger says; the seconds after which to call again, where it was written just
        now and more may gather. Never two at once for one node: the queue sees to that."""
        known, record = self._known.get(node), self._ledger.nodes.get(node)
        if known is None or record is None:
            return None
        if known.tried is not None:
            await self._look(node, known)
        spec = record.spec()
        if spec == known.spec:
            known.begin_at = None
            return None
        began = self._clock.monotonic()
        ready = max(known.free_at, known.begin_at or 0.0)
        wait = min(ready, self._changed_at + QUIET_SECONDS) - began
        if wait > 0:
            return wait
        known.begin_at = None
        ops = [
            JsonOp(op="test", path="/metadata/uid", value=known.uid),
            JsonOp(op="test", path="/metadata/generation", value=known.generation),
            JsonOp(op="add", path="/spec", value=spec),
        ]
        known.tried = spec
        try:
            answer = await self._client.patch(INSTASLICES, Key("", node), ops, manager=self._manager)
        except NotFound:
            known.tried = None  # the watch will say so
            return None
        except Invalid:
            await self._look(node, known)
            raise
        known.generation, known.spec, known.tried = answer.metadata.generation, spec, None
        now = self._clock.monotonic()
        self._took = now - began
        known.free_at = now + cooldown(self._took, SPEC_COOLDOWN)
        return None

    async def _look(self, node: NodeName, known: _Known) -> None:
        """What became of a write without an answer. Raises Deposed where somebody else wrote."""
        try:
            there = await self._client.get(INSTASLICES, Key("", node))
        except NotFound:
            return
        if there.metadata.uid != known.uid:
            return
        if there.metadata.generation != known.generation and there.spec != known.tried:
            raise _by_another(node)
        known.generation, known.spec, known.tried = there.metadata.generation, there.spec, None


def _by_another(node: NodeName) -> Deposed:
    return Deposed(f"instaslice {node}: its spec was changed by another hand; starting anew from what is there")
