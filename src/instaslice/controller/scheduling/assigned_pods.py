"""The pods that count when another pod is filtered: bound to a node, or with slices reserved on one.

Pods are found by namespace and labels without a scan. The index for a label key of a namespace is built at its first
use, so a cluster without affinity and spread constraints pays for none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from instaslice.controller.scheduling.groups import discard
from instaslice.controller.scheduling.label_selector import LabelMatcher
from instaslice.kube.core import Pod
from instaslice.placement import NodeName

MOST_KEYS: Final = 64
"""Label keys of one namespace that are indexed; for further keys its pods are scanned."""


class AssignedPod(NamedTuple):
    node: NodeName
    pod: Pod


_Found = dict[str, AssignedPod]
"""By uid."""


class AssignedPods:
    def __init__(self) -> None:
        self._pods: _Found = {}
        self._of: dict[str, _Found] = {}
        self._by_label: dict[str, dict[str, dict[str, _Found]]] = {}
        """Namespace → label key → value → pods."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> AssignedPod | None:
        return self._pods.get(uid)

    def assign(self, pod: Pod, node: NodeName) -> None:
        """Replaces what was known of the pod. Safe to repeat."""
        self.remove(pod.metadata.uid)
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        made = self._pods[uid] = AssignedPod(node, pod)
        self._of.setdefault(namespace, {})[uid] = made
        for key, values in self._indexes(namespace, pod.metadata.labels):
            values.setdefault(pod.metadata.labels[key], {})[uid] = made

    def remove(self, uid: str) -> AssignedPod | None:
        """What was known of it."""
        gone = self._pods.pop(uid, None)
        if gone is None:
            return None
        meta = gone.pod.metadata
        discard(self._of, meta.namespace, uid)
        for key, values in self._indexes(meta.namespace, meta.labels):
            discard(values, meta.labels[key], uid)
        if meta.namespace not in self._of:
            self._by_label.pop(meta.namespace, None)
        return gone

    def matching(
        self, namespaces: Iterable[str] | None, selector: LabelMatcher, but: str = ""
    ) -> Iterator[AssignedPod]:
        """Pods of these namespaces (None: of all) that the selector matches, except the one with the uid `but`."""
        for namespace in self._of if namespaces is None else namespaces:
            candidates, exact = self._candidates(namespace, selector)
            for found in candidates:
                for uid, each in found.items():
                    if uid != but and (exact or selector.matches(each.pod.metadata.labels)):
                        yield each

    def _candidates(self, namespace: str, selector: LabelMatcher) -> tuple[Iterable[_Found], bool]:
        """Pods that may match, and whether all of them do."""
        here = self._of.get(namespace)
        if not here:
            return (), True
        best: list[_Found] | None = None
        for requirement in selector.requirements:
            wanted, key = requirement.one_of, requirement.key
            if wanted is not None and (values := self._index(namespace, key)) is not None:
                found = [values[value] for value in wanted if value in values]
                if best is None or sum(map(len, found)) < sum(map(len, best)):
                    best = found
        return ((here,), selector.matches_everything) if best is None else (best, len(selector.requirements) == 1)

    def _index(self, namespace: str, key: str) -> Mapping[str, _Found] | None:
        keys = self._by_label.setdefault(namespace, {})
        if key not in keys:
            if len(keys) >= MOST_KEYS:
                return None
            values = keys[key] = {}
            for uid, each in self._of[namespace].items():
                if (value := each.pod.metadata.labels.get(key)) is not None:
                    values.setdefault(value, {})[uid] = each
        return keys[key]

    def _indexes(self, namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[str, dict[str, _Found]]]:
        if keys := self._by_label.get(namespace):
            yield from ((key, keys[key]) for key in labels if key in keys)
