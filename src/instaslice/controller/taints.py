"""The taint `gpu.das.com/managed:NoSchedule`: on every node whose GPUs are ours, where the administrator wants it.

It keeps pods without slices off GPU nodes; the webhook gives pods with slices the toleration. A node is ours while it
has an Instaslice object. The taint's key is ours too: it is taken from every other node, whoever put it there.

Level-based: each look compares one node with what it should be.
"""

from instaslice.api.instaslice import Instaslice
from instaslice.api.names import MANAGED
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, JsonOp
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
    there = [index for index, each in enumerate(taints) if (each.key, each.effect) == (TAINT.key, TAINT.effect)]
    if wanted == bool(there):
        return []
    if not wanted:
        place = f"/spec/taints/{there[0]}"
        return [
            JsonOp(op="test", path=f"{place}/key", value=TAINT.key),
            JsonOp(op="test", path=f"{place}/effect", value=TAINT.effect),
            JsonOp(op="remove", path=place),
        ]
    if taints:
        return [JsonOp(op="add", path="/spec/taints/-", value=TAINT)]
    # Without the test a list that came into being since would be replaced.
    return [
        JsonOp(op="test", path="/spec/taints", value=None),
        JsonOp(op="add", path="/spec/taints", value=[TAINT]),
    ]
