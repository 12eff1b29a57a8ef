"""A Lease that a process renews to show that it runs, and how others judge that.

Whoever judges takes his own clock since the Lease last changed, never the times written in it: the clocks of two
machines differ. So a process that is renewed while nobody looks on is given a full duration first.
"""

import logging

from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import LEASES, Lease, LeaseSpec
from instaslice.kube.errors import KubeError
from instaslice.kube.lease import micro_time
from instaslice.kube.meta import Key, ObjectMeta

log = logging.getLogger(__name__)

RENEW_SECONDS = 5.0
"""Between two renewals: 0.2 writes a second, however much the process serves."""
DURATION_SECONDS = 20
"""Without a renewal, after which the process counts as gone: a restart takes less."""


class Heartbeat:
    """Renews one Lease. It is not given back at the end: the next process of that name takes it over, and until then it
    says that there is none."""

    def __init__(self, client: Client, key: Key, *, identity: str, manager: str, clock: Clock) -> None:
        self.key = key
        self._client = client
        self._identity = identity
        self._manager = manager
        self._clock = clock
        self._failed = ""

    async def run(self) -> None:
        """Until cancelled. What is refused is logged once, and tried again."""
        while True:
            try:
                await self._renew()
                self._failed = ""
            except KubeError as error:
                if error.message != self._failed:
                    self._failed = error.message
                    log.warning("%s; others will take this process for gone", error)
            await self._clock.sleep(RENEW_SECONDS)

    async def _renew(self) -> None:
        spec = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=DURATION_SECONDS,
            renew_time=micro_time(self._clock.now()),
        )
        lease = Lease(metadata=ObjectMeta(namespace=self.key.namespace, name=self.key.name), spec=spec)
        await self._client.apply(LEASES, lease, manager=self._manager, force=True)


class Renewals:
    """When Leases were last seen to change. Knows no clock: every call is told the time."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[LeaseSpec, float]] = {}

    def observe(self, lease: Lease, now: float) -> float:
        """Take in a Lease as it is; the time at which it expires unless it changes before."""
        key = Key(lease.metadata.namespace, lease.metadata.name)
        known = self._seen.get(key)
        if known is None or known[0] != lease.spec:
            self._seen[key] = known = lease.spec, now
        return known[1] + lease.spec.lease_duration_seconds

    def forget(self, key: Key) -> None:
        """It is gone, and says nothing any more."""
        self._seen.pop(key, None)

    def expired(self, now: float) -> set[Key]:
        """Those that have not changed for the duration that they name."""
        # The sum that `observe` returns: a difference may be rounded to less at exactly that time.
        return {key for key, (spec, at) in self._seen.items() if now >= at + spec.lease_duration_seconds}
