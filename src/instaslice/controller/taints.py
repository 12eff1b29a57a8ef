"""The taint `gpu.das.com/managed:NoSchedule`: on every node whose GPUs are ours, where the administrator wants it.

It keeps pods without slices off GPU nodes; the webhook adds the toleration to pods with slices. A node is ours while it
has an Instaslice object. A node that registers with the taint, so that no pod starts before our agent, keeps it: we
remove only a taint that we added, which we mark with an annotation.

Level-based: each reconciliation compares one node with its wanted state.
"""

import logging
from collections.abc import Sized

from instaslice.api import names
from instaslice.api.instaslice import Instaslice
from instaslice.api.names import MANAGED, TAINTED
from instaslice.controller.missing_permission import MissingPermission
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, JsonOp, escaped
from instaslice.kube.clock import Clock
from instaslice.kube.core import NODES, Node, Taint
from instaslice.kube.errors import Forbidden, NotFound
from instaslice.kube.meta import Key, Object, key_of
from instaslice.kube.queue import Queue

log = logging.getLogger(__name__)

TAINT = Taint(key=MANAGED, effect="NoSchedule")


class Taints:
    """The caller keeps the two caches up to date. `wanted` is the flag `--taint-nodes`; without it, taints that were
    added earlier are removed."""

    def __init__(
        self, client: Client, nodes: Cache[Node], instaslices: Cache[Instaslice], clock: Clock, *, wanted: bool
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._instaslices = instaslices
        self._wanted = wanted
        self._forbidden: set[Key] = set()
        """Nodes whose taint we may not remove."""
        self._missing = MissingPermission("--taint-nodes", clock)
        self._queue: Queue[Key] = Queue(clock=clock)

    async def run(self) -> None:
        """Runs until cancelled. Requests that fail are repeated with backoff."""
        # An Instaslice that is not in the cache yet must not look like an unmanaged node.
        await self._nodes.synced()
        await self._instaslices.synced()
        self._nodes.on_change(self._enqueue)
        self._instaslices.on_change(self._enqueue)
        await self._queue.work(self._reconcile)

    def _enqueue(self, old: Object | None, new: Object | None) -> None:
        thing = new or old
        if thing is not None:
            self._queue.add(key_of(thing))

    async def _reconcile(self, key: Key) -> float | None:
        """Returns the seconds after which to try again."""
        node = self._nodes.get(key)
        if node is None or key in self._forbidden:
            return None
        steps = steps_to(node, wanted=self._wanted and self._instaslices.get(key) is not None)
        if not steps:
            return None
        try:
            await self._client.patch(NODES, key, steps, manager=names.CONTROLLER)
        except NotFound:
            return None
        except Forbidden as error:
            if self._wanted:
                return self._missing.report(error)
            # The permission is granted with the flag only. Nodes change often: one warning each is enough.
            self._forbidden.add(key)
            command = f"kubectl taint node {key} {TAINT.key}- && kubectl annotate node {key} {TAINTED}-"
            log.warning("%s; remove the taint of an earlier --taint-nodes by hand: %s", error, command)
        return None


def steps_to(node: Node, *, wanted: bool) -> list[JsonOp]:
    """The JSON patch that adds or removes our taint; empty if nothing has to change.

    It tests what it relies on, so that it fails, and is computed again, if the taints have changed meanwhile. It only
    touches single entries: we do not decode all fields of other taints and could not write them back.
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
        # There is no entry to test, so test the version of the node: if the taint is back, it must keep our mark.
        return [JsonOp(op="test", path="/metadata/resourceVersion", value=node.metadata.resource_version), unmark]
    path = f"/spec/taints/{there}"
    return [
        unmark,
        JsonOp(op="test", path=f"{path}/key", value=TAINT.key),
        JsonOp(op="test", path=f"{path}/effect", value=TAINT.effect),
        JsonOp(op="remove", path=path),
    ]


_MARK = escaped(TAINTED)


def _added(path: str, at: str, value: object, into: Sized) -> list[JsonOp]:
    """Adds an entry to a list or map. An empty one is created as a whole; the test keeps that from replacing one that
    was created meanwhile."""
    if len(into):
        return [JsonOp(op="add", path=f"{path}/{at}", value=value)]
    whole = [value] if at == "-" else {at.replace("~1", "/"): value}
    return [JsonOp(op="test", path=path, value=None), JsonOp(op="add", path=path, value=whole)]
