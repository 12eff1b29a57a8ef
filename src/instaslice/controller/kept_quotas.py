"""Quotas on `nvidia.com/mig-*` keep counting, where the administrator wants it.

The webhook renames the resources of new pods, so that such a quota counts none of them. Beside each one stands a
companion of ours, in the same namespace, with the new names and what the old quota has left: the pods from before
InstaSlice, which it still counts, are taken off. The companion has the old quota as its owner and goes with it; the
old one is never written. designs/0012-quotas-on-old-names.md has the reasons.

Level-based: each reconciliation compares one quota with its companion.
"""

import asyncio
import hashlib
import logging
from contextlib import suppress
from random import Random
from typing import Any

from instaslice.api import names
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.errors import Conflict, NotFound
from instaslice.kube.meta import Key, key_of
from instaslice.kube.quantities import NANO, nano, whole
from instaslice.kube.queue import Queue
from instaslice.kube.quotas import RESOURCE_QUOTAS, ResourceQuota
from instaslice.kube.watch import Reflector

log = logging.getLogger(__name__)

MANAGER = "instaslice-kept-quotas"
SUFFIX = "-instaslice"
LONGEST = 253
"""Characters of a name."""


class KeptQuotas:
    """Without `wanted`, the flag `--keep-quotas`, it does nothing: the permission to look comes with the flag."""

    def __init__(self, client: Client, clock: Clock, rng: Random, *, wanted: bool) -> None:
        self._client = client
        self._wanted = wanted
        self._quotas: Cache[ResourceQuota] = Cache()
        self._reflector = Reflector(client, RESOURCE_QUOTAS, self._quotas, clock=clock, rng=rng)
        self._queue: Queue[Key] = Queue(clock=clock)

    async def run(self) -> None:
        """Runs until cancelled. Requests that fail are repeated with backoff."""
        if not self._wanted:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            # A companion that is not in the cache yet must not look like a missing one.
            await self._quotas.synced()
            self._quotas.on_change(self._enqueue)
            group.create_task(self._queue.work(self._reconcile))

    def _enqueue(self, old: ResourceQuota | None, new: ResourceQuota | None) -> None:
        quota = new or old
        assert quota is not None
        key = key_of(quota)
        # Not by its name where it has an owner: that of a long name was cut, and nobody has what is left of it.
        owners = {each.name for each in quota.metadata.owner_references if each.kind == RESOURCE_QUOTAS.kind}
        # Also one of this name that is not ours, and stood in the way.
        for name in {key.name} | (owners or {key.name.removesuffix(SUFFIX)}):
            self._queue.add(Key(key.namespace, name))

    async def _reconcile(self, key: Key) -> None:
        """Of one quota, by its name. A companion is one that has no companion."""
        quota, present = self._quotas.get(key), self._quotas.get(companion_key(key))
        hard = remaining(quota) if quota is not None else {}
        # By its owner too: without the label, which anybody can take away, it would stay as it is.
        if present is not None and not (is_companion(present) or (quota is not None and _belongs_to(present, quota))):
            if hard:
                log.warning("resourcequota %s is not ours: nothing is kept of %s; rename it", key_of(present), key)
            return
        if present is not None and not (quota is not None and hard and _is_of(present, quota)):
            with suppress(NotFound, Conflict):
                await self._client.delete(RESOURCE_QUOTAS, key_of(present), uid=present.metadata.uid)
            # The watch brings us back where the quota was created again meanwhile.
            return
        if quota is None or not hard or (present is not None and _says(present, quota, hard)):
            return
        await self._client.apply(RESOURCE_QUOTAS, _companion(quota, hard), manager=MANAGER, force=True)


def companion_key(key: Key) -> Key:
    """A long name is cut, with a digest in place of what is missing."""
    name = key.name
    if len(name) + len(SUFFIX) > LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: LONGEST - len(SUFFIX) - len(digest) - 1].rstrip('.-')}-{digest}"
    return Key(key.namespace, name + SUFFIX)


def is_companion(quota: ResourceQuota) -> bool:
    return names.COMPANION in quota.metadata.labels


def remaining(quota: ResourceQuota) -> dict[str, str]:
    """What the companion allows, by the new names: what the quota does, less what it still counts by the old ones. Of
    two spellings of one name, `mig-1g.05gb`, the smaller amount holds, as both quotas did."""
    left: dict[str, int] = {}
    for item, most in quota.spec.hard.items():
        if new := names.renamed_in_quota(item):
            # Down: with 1500m the quota allows one slice.
            amount = max(0, nano(most) - nano(quota.status.used.get(item, 0))) // NANO
            left[new] = min(amount, left.get(new, amount))
    return {name: str(amount) for name, amount in sorted(left.items())}


def _companion(quota: ResourceQuota, hard: dict[str, str]) -> dict[str, Any]:
    key, meta, spec = companion_key(key_of(quota)), quota.metadata, quota.spec
    owner = {
        "apiVersion": RESOURCE_QUOTAS.api_version,
        "kind": RESOURCE_QUOTAS.kind,
        "name": meta.name,
        "uid": meta.uid,
    }
    scoped = {"scopes": spec.scopes, "scopeSelector": spec.scope_selector}
    return {
        "metadata": {
            "namespace": key.namespace,
            "name": key.name,
            "labels": {names.COMPANION: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"hard": hard, **{field: value for field, value in scoped.items() if value}},
    }


def _belongs_to(companion: ResourceQuota, quota: ResourceQuota) -> bool:
    return any(each.uid == quota.metadata.uid for each in companion.metadata.owner_references)


def _is_of(companion: ResourceQuota, quota: ResourceQuota) -> bool:
    """Its scopes cannot be changed: one for other pods has to go first."""
    return _belongs_to(companion, quota) and (companion.spec.scopes or []) == (quota.spec.scopes or [])


def _says(companion: ResourceQuota, quota: ResourceQuota, hard: dict[str, str]) -> bool:
    amounts = {item: str(whole(most)) for item, most in companion.spec.hard.items()}
    same = amounts == hard and companion.spec.scope_selector == quota.spec.scope_selector
    return same and is_companion(companion)
