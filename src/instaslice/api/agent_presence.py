"""Whether the agent of a node runs, as far as objects tell it while nothing is ordered there.

Two signs, and neither costs a write per node. A kubelet sets what a node offers of our resources to 0 when the device
plugin of the agent is gone. Emulated nodes have no kubelet: the one process that serves them all renews a Lease, which
the status of each names. designs/0016-an-agent-that-is-gone.md has the reasons.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from instaslice.api import names
from instaslice.api.instaslice import Health, InstasliceStatus
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import LEASES, Lease, Node
from instaslice.kube.errors import Forbidden, NotFound
from instaslice.kube.heartbeat import RENEW_SECONDS
from instaslice.kube.meta import Key

LOOKED_AGAIN_SECONDS = 1.5 * RENEW_SECONDS
"""Within which an agent that runs renews its Lease."""


def missing_agent(status: InstasliceStatus, node: Node | None, silent: Collection[str]) -> str:
    """Why no pod could start on a node, as its agent does not run; "" where nothing says so. `silent` are the names of
    Leases that are not renewed any more."""
    if status.lease:
        return f"its agent does not run: nobody renews lease {status.lease}" if status.lease in silent else ""
    if node is None or not any(gpu.health is Health.HEALTHY for gpu in status.gpus) or offers_slices(node):
        return ""
    return f"its agent does not run: the node offers no {names.RESOURCE}* (0 allocatable), though its GPUs are healthy"


def offers_slices(node: Node) -> bool:
    """Whether any of our resources can be allocated there."""
    return any(
        name.startswith((names.RESOURCE, names.MEMORY)) and quantity not in ("", "0")
        for name, quantity in node.status.allocatable.items()
    )


async def silent_leases(client: Client, clock: Clock) -> frozenset[str]:
    """The names of the agents' Leases that nobody renews. One that has run out by our clock is looked at again some
    seconds later, as clocks differ. Nothing is said where it may not be read."""
    key = Key(names.NAMESPACE, names.EMULATION)
    try:
        lease = await client.get(LEASES, key)
        if not _expired(lease, clock.now()):
            return frozenset()
        await clock.sleep(LOOKED_AGAIN_SECONDS)
        again = await client.get(LEASES, key)
    except (NotFound, Forbidden):
        return frozenset()
    return frozenset({key.name}) if again.spec == lease.spec else frozenset()


def _expired(lease: Lease, now: datetime) -> bool:
    if not lease.spec.renew_time:
        return True
    age = now - datetime.fromisoformat(lease.spec.renew_time)
    return abs(age) > timedelta(seconds=lease.spec.lease_duration_seconds)
