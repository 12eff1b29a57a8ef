"""What Kueue charges, as far as it covers GPU memory: its ClusterQueues and Workloads.

Where Kueue is not installed there is nothing to say. Where it is and may not be read, that is a finding `not-checked`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from instaslice.api import names
from instaslice.doctor.findings import Finding
from instaslice.doctor.kind_reader import KindReader
from instaslice.kube.client import Client
from instaslice.kube.errors import NotFound
from instaslice.kueue.objects import CLUSTER_QUEUES, GROUP, KUEUE_WORKLOADS, VERSION, ClusterQueue, KueueWorkload


@dataclass(frozen=True)
class KueueQuota:
    """None is what could not be read, [] what is not there."""

    queues: Sequence[ClusterQueue] | None = ()
    workloads: Sequence[KueueWorkload] | None = ()
    not_checked: Sequence[Finding] = ()

    @classmethod
    async def read(cls, client: Client) -> "KueueQuota":
        """Raises Unreachable."""
        try:
            # Everybody may ask what is served. Who may not list a kind is told just that, also where there is none.
            await client.raw("GET", f"/apis/{GROUP}/{VERSION}")
        except NotFound:
            return cls()
        reader = KindReader(client)
        queues = await reader.all(CLUSTER_QUEUES)
        workloads = await reader.all(KUEUE_WORKLOADS)
        return cls(queues, workloads, reader.notes)

    @cached_property
    def counting(self) -> dict[str, ClusterQueue]:
        """The ClusterQueues that cover GPU memory, by name. The others are not asked to count it."""
        return {
            each.metadata.name: each
            for each in self.queues or ()
            for group in each.spec.resource_groups or ()
            if names.MEMORY in (group.covered_resources or ())
        }

    @cached_property
    def admitted(self) -> list[KueueWorkload]:
        """Workloads that hold quota of those queues, and have not ended."""
        return [
            each
            for each in self.workloads or ()
            if each.status.admission is not None
            and each.status.admission.cluster_queue in self.counting
            and not ended(each)
        ]


def ended(workload: KueueWorkload) -> bool:
    return any(each.type == "Finished" and each.status == "True" for each in workload.status.conditions or ())
