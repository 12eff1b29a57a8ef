"""What the API server holds of Kueue at one moment, as far as the caller may read it: workloads and queues.

Commands read it with the rights of their user. The controller never does: Kueue's gate is all that it needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self, TypeVar

from instaslice.kube.client import EVERYTHING, Client, Selector
from instaslice.kube.errors import Forbidden, NotFound
from instaslice.kube.meta import Key, Object, key_of
from instaslice.kube.resource import Resource
from instaslice.kueue.objects import (
    CLUSTER_QUEUES,
    GROUP,
    KUEUE_WORKLOADS,
    LOCAL_QUEUES,
    VERSION,
    ClusterQueue,
    KueueWorkload,
    LocalQueue,
)

K = TypeVar("K", bound=Object)

API_PATH: Final = f"/apis/{GROUP}/{VERSION}"


@dataclass(frozen=True)
class KueueSnapshot:
    """None stands for a list that the caller may not read; `not_read` says which, and what to grant."""

    workloads: Sequence[KueueWorkload] | None = ()
    local_queues: Sequence[LocalQueue] | None = ()
    cluster_queues: Sequence[ClusterQueue] | None = ()
    whole: bool = True
    """Whether workloads and LocalQueues are those of all namespaces, and not of one."""
    not_read: Sequence[str] = ()

    @classmethod
    async def read(cls, client: Client, namespace: str = "") -> Self | None:
        """None where the cluster has no Kueue. `namespace` is the one to fall back to where workloads and LocalQueues
        of all may not be listed."""
        if not await is_served(client):
            return None
        notes: list[str] = []
        workloads, whole = await _list(client, KUEUE_WORKLOADS, notes, namespace)
        local_queues, all_queues = await _list(client, LOCAL_QUEUES, notes, namespace)
        cluster_queues, _ = await _list(client, CLUSTER_QUEUES, notes)
        return cls(workloads, local_queues, cluster_queues, whole and all_queues, notes)

    @cached_property
    def _by_owner(self) -> Mapping[str, KueueWorkload]:
        """The youngest Workload of each owner, by its uid."""
        by_age = sorted(self.workloads or (), key=lambda each: str(each.metadata.creation_timestamp))
        return {owner.uid: each for each in by_age for owner in each.metadata.owner_references}

    @cached_property
    def by_uid(self) -> Mapping[str, KueueWorkload]:
        return {each.metadata.uid: each for each in self.workloads or ()}

    @cached_property
    def _local_queues(self) -> Mapping[Key, LocalQueue]:
        return {key_of(each): each for each in self.local_queues or ()}

    @cached_property
    def _cluster_queues(self) -> Mapping[str, ClusterQueue]:
        return {each.metadata.name: each for each in self.cluster_queues or ()}

    def workload_of(self, *uids: str) -> KueueWorkload | None:
        """The Workload of the first of these owners that has one."""
        return next((self._by_owner[uid] for uid in uids if uid in self._by_owner), None)

    def local_queue(self, workload: KueueWorkload) -> LocalQueue | None:
        return self._local_queues.get(Key(workload.metadata.namespace, workload.spec.queue_name))

    def cluster_queue_name(self, workload: KueueWorkload) -> str:
        """The ClusterQueue that the workload has quota of, or waits for; "" where that is not known."""
        if workload.status.admission is not None:
            return workload.status.admission.cluster_queue
        queue = self.local_queue(workload)
        return queue.spec.cluster_queue if queue is not None else ""

    def cluster_queue(self, name: str) -> ClusterQueue | None:
        return self._cluster_queues.get(name)

    def cohort(self, queue: ClusterQueue) -> list[ClusterQueue]:
        """The ClusterQueues that lend to each other with this one, which is among them."""
        name = queue.spec.cohort_name
        return [each for each in self.cluster_queues or () if name and each.spec.cohort_name == name] or [queue]


async def is_served(client: Client) -> bool:
    """Whether the API server has Kueue's kinds. Everybody may ask that, so "forbidden" is not taken for "installed"."""
    try:
        await client.raw("GET", API_PATH)
    except NotFound:
        return False
    except Forbidden:
        return True
    return True


async def _list(
    client: Client, resource: Resource[K], notes: list[str], namespace: str = ""
) -> tuple[list[K] | None, bool]:
    """What may be listed, and whether that is all."""
    try:
        return await _pages(client, resource, notes), True
    except (Forbidden, NotFound) as error:
        grant = f"grant `list` on {resource.plural}.{resource.group}"
        why = f"may not be listed ({error.status} {error.reason}): {grant}"
    if namespace:
        try:
            found = await _pages(client, resource, notes, Selector(namespace))
        except (Forbidden, NotFound):
            pass
        else:
            notes.append(f"Kueue's {resource.plural} of other namespaces {why} in the whole cluster")
            return found, False
    notes.append(f"Kueue's {resource.plural} {why}")
    return None, False


async def _pages(client: Client, resource: Resource[K], notes: list[str], selector: Selector = EVERYTHING) -> list[K]:
    found: list[K] = []
    async for page in client.pages(resource, selector):
        found += page.items or ()
        notes += [f"{resource.kind} {key_of(each)}: {each.error}" for each in page.unreadable]
    return found
