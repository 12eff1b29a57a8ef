"""The taint `gpu.das.com/managed:NoSchedule`: on every node whose GPUs are ours, where the administrator wants it.

It keeps pods without slices off GPU nodes; the webhook gives pods with slices the toleration. A node is ours while it
has an Instaslice object. A node that registers with the taint, so that nobody is there before our agent, keeps it: only
what we put there, and marked with an annotation, do we take away.

Level-based: each look compares one node with what it should be.
"""

from collections.abc import Sized

from instaslice.api.instaslice import Instaslice
from instaslice.api.names import MANAGED, TAINTED
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, JsonOp, escaped
from instaslice.kube.clock import Clock
from instaslice.kube.core import NODES, Node, Taint
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key, Object, key_of
from instaslice.kube.queue import Queue

TAINT = Taint(key=MANAGED, effect="NoSchedule")
MANAGER = "instaslice-controller"


class Taints:
    """Watches nothing by itself: others keep the two caches true. `wanted` is the administrator's word; without it the
    taints of an earlier time are taken away."""

    def __init__(
        self, client: Client, nodes: Cache[Node], instaslices: Cache[Instaslice], clock: Clock, *, wanted: bool
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._instaslices = instaslices
        self._wanted = wanted
        self._queue: Queue[Key] = Queue(clock=clock)

    async def run(self) -> None:
        """Until cancelled. What the API server refuses is tried again, ever later."""
        # An Instaslice that is not in the cache yet must not look like a node given up.
        await self._nodes.synced()
        await self._instaslices.synced()
        self._nodes.on_change(self._look)
        self._instaslices.on_change(self._look)
        await self._queue.work(self._reconcile)

    def _look(self, old: Object | None, new: Object | None) -> None:
        thing = new or old
        if thing is not None:
            self._queue.add(key_of(thing))

    async def _reconcile(self, key: Key) -> None:
        node = self._nodes.get(key)
        if node is None:
            return
        steps = steps_to(node, wanted=self._wanted and self._instaslices.get(key) is not None)
        if not steps:
            return
        try:
            await self._client.patch(NODES, key, steps, manager=MANAGER)
        except NotFound:
            return


def steps_to(node: Node, *, wanted: bool) -> list[JsonOp]:
    """The JSON patch that puts our taint there or takes it away; nothing where all is well.

    It tests what it stands on, so that it fails, and is made anew, if another changed the taints meanwhile. Only single
    entries are named: we do not read all fields of the others' taints and could not write them back.
    """
    taints = node.spec.taints or []
    there = next((at for at, each in enumerate(taints) if (each.key, each.effect) == (TAINT.key, TAINT.effect)), None)
    marks = node.metadata.annotations
    if wanted:
        if there is not None:
            return []
        return [*_added("/spec/taints", "-", TAINT, taints), *_added("/metadata/annotations", _MARK, "true", marks)]
    if TAINTED not in marks:
        return []
    unmark = JsonOp(op="remove", path=f"/metadata/annotations/{_MARK}")
    if there is None:
        # No entry to test, so the node as a whole: the taint may be back, and without our mark it would stay there.
        return [JsonOp(op="test", path="/metadata/resourceVersion", value=node.metadata.resource_version), unmark]
    place = f"/spec/taints/{there}"
    return [
        unmark,
        JsonOp(op="test", path=f"{place}/key", value=TAINT.key),
        JsonOp(op="test", path=f"{place}/effect", value=TAINT.effect),
        JsonOp(op="remove", path=place),
    ]


_MARK = escaped(TAINTED)


def _added(path: str, at: str, value: object, into: Sized) -> list[JsonOp]:
    """One more entry of a list or map. Where there is none yet the whole comes into being; without the test, one that
    came since would be replaced."""
    if len(into):
        return [JsonOp(op="add", path=f"{path}/{at}", value=value)]
    whole = [value] if at == "-" else {at.replace("~1", "/"): value}
    return [JsonOp(op="test", path=path, value=None), JsonOp(op="add", path=path, value=whole)]
