"""The labels of a static MIG layout on every node whose GPUs are ours, where the administrator wants them.

People who planned MIG layouts select nodes by what NVIDIA's feature discovery wrote there. A node is ours while it has
an Instaslice object, and its labels follow from the GPUs in that object's status. They are written by server-side
apply under a manager of their own: a label that somebody else has written with another value is left to them, and all
of ours go in one request.

Level-based: each reconciliation compares one node with its wanted state. The annotation on the node says what was
applied, so that a node that needs nothing costs no request, and a new process finds what an earlier one wrote.
"""

import hashlib
import logging
from collections.abc import Mapping

import msgspec

from instaslice.api import nvidia_labels
from instaslice.api.instaslice import Instaslice
from instaslice.api.names import STATIC_MIG_LABELS
from instaslice.controller.missing_permission import MissingPermission
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import NODES, Node
from instaslice.kube.errors import Conflict, Forbidden, NotFound
from instaslice.kube.meta import Key, Object, key_of
from instaslice.kube.queue import Queue

log = logging.getLogger(__name__)

MANAGER = "instaslice-static-mig-labels"
_FIELD = ".metadata.labels."
"""How the API server begins the name of a label that two managers want."""


class StaticMigLabels:
    """The caller keeps the two caches up to date. `wanted` is the flag `--static-mig-labels`; without it, labels that
    were written earlier are removed."""

    def __init__(
        self, client: Client, nodes: Cache[Node], instaslices: Cache[Instaslice], clock: Clock, *, wanted: bool
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._instaslices = instaslices
        self._wanted = wanted
        self._others: dict[Key, dict[str, str]] = {}
        """Node → labels that somebody else wrote, with the values that they had then."""
        self._forbidden: set[Key] = set()
        """Nodes whose labels we may not remove."""
        self._missing = MissingPermission("--static-mig-labels", clock)
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
        if node is None:
            self._others.pop(key, None)
            return None
        written = STATIC_MIG_LABELS in node.metadata.annotations
        if key in self._forbidden or not (self._wanted or written):
            return None
        labels = labels_of(self._instaslices.get(key)) if self._wanted else {}
        # Tried again once their value changes: then it was written again, or removed.
        others = {name: value for name, value in self._others.get(key, {}).items() if _has(node, name, value)}
        labels = {name: value for name, value in labels.items() if name not in others}
        if not (labels or written) or _is_applied(node, labels):
            return None
        try:
            await self._apply(node, labels)
        except NotFound:
            return None
        except Conflict as error:
            taken = {field.removeprefix(_FIELD) for field in error.fields} & labels.keys()
            if not taken:
                raise
            log.warning("node %s: %s; these labels are left to whoever wrote them", key, error)
            await self._apply(node, {name: value for name, value in labels.items() if name not in taken})
            # What the cache has may be older than what they wrote: then this is tried once more.
            self._others[key] = others | {name: node.metadata.labels.get(name, "") for name in taken}
        except Forbidden as error:
            if self._wanted:
                return self._missing.report(error)
            # The permission is granted with the flag only. Nodes change often: one warning each is enough.
            self._forbidden.add(key)
            log.warning("%s; remove the labels of an earlier --static-mig-labels by hand: %s", error, _by_hand(key))
        return None

    async def _apply(self, node: Node, labels: Mapping[str, str]) -> None:
        meta = {
            "name": node.metadata.name,
            "uid": node.metadata.uid,  # refused where the node is gone: an apply would create one
            **({"labels": labels, "annotations": {STATIC_MIG_LABELS: _digest(labels)}} if labels else {}),
        }
        await self._client.apply(NODES, {"metadata": meta}, manager=MANAGER)


def _by_hand(node: Key) -> str:
    """Removes what we own alone, the annotation too: a label that somebody else applied as well stays."""
    empty = f'{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{node}"}}}}'
    return f"echo '{empty}' | kubectl apply --server-side --field-manager={MANAGER} -f -"


def labels_of(instaslice: Instaslice | None) -> dict[str, str]:
    """The labels of the node with this object; none where no GPU is reported."""
    if instaslice is None:
        return {}
    geometries = {each.name: each.model() for each in instaslice.status.models}
    return nvidia_labels.static_layout(
        [geometries[gpu.model] for gpu in instaslice.status.gpus if gpu.model in geometries]
    )


def _is_applied(node: Node, labels: Mapping[str, str]) -> bool:
    applied = node.metadata.annotations.get(STATIC_MIG_LABELS)
    wanted = _digest(labels) if labels else None
    return applied == wanted and all(_has(node, name, value) for name, value in labels.items())


def _has(node: Node, name: str, value: str) -> bool:
    return node.metadata.labels.get(name) == value


def _digest(labels: Mapping[str, str]) -> str:
    """Also of labels that were applied earlier and are not wanted any more."""
    return hashlib.sha256(msgspec.json.encode(dict(labels), order="sorted")).hexdigest()[:16]
