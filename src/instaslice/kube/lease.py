"""One leader among several replicas, by a Lease object that the leader renews.

A candidate judges the holder by its own monotonic clock since the record last changed, never by the times written in
it: the clocks of two machines differ. A leader that could not renew for `renew_deadline` stops before others may take
over at `duration`. A lease does not fence: a write still needs its resource version or its field manager.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from instaslice.kube.client import Client
from instaslice.kube.clock import Clock, timeout
from instaslice.kube.core import LEASES, Lease, LeaseSpec
from instaslice.kube.errors import Conflict, KubeError, LeaseLost, NotFound
from instaslice.kube.meta import Key, ObjectMeta

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Timing:
    """Seconds. duration > renew_deadline > retry, or a healthy leader is replaced."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


class Election:
    _seen_at: float
    """When what is in `_seen` was new."""

    def __init__(
        self,
        client: Client,
        key: Key,
        *,
        identity: str,
        clock: Clock,
        rng: random.Random,
        timing: Timing | None = None,
    ) -> None:
        """`identity` must be unique among the replicas: the pod's name."""
        self._client = client
        self._key = key
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._timing = timing or Timing()
        self._seen: Lease | None = None
        self.is_leader = False
        self._renewed = clock.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether we lead and nobody else can yet: false at once after a pause of this process, before the renewal
        has noticed. For what must not be done twice."""
        return self.is_leader and self._clock.monotonic() - self._renewed < self._timing.renew_deadline

    @property
    def age(self) -> float:
        """Seconds since we renewed the lease, or last tried to get it."""
        return self._clock.monotonic() - self._renewed

    @property
    def stuck(self) -> bool:
        """Whether a leader neither renews nor ends: a task of it has died unnoticed."""
        return self.is_leader and self.age > 2 * self._timing.renew_deadline

    @property
    def seen(self) -> bool:
        """Whether the API server has shown us the lease, or let us make it."""
        return self._seen is not None

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait to be the leader, then run `lead` until it ends; give the lease back on the way out, however that is.

        Raises LeaseLost, after `lead` was cancelled, when the lease could not be renewed in time: let it end the
        process. What `lead` raises is raised unchanged.
        """
        while True:
            self._renewed = self._clock.monotonic()
            # What an attempt got that hung, as the API server did, may be over already: it is renewed before we lead.
            if await self._attempt() and self.age < self._timing.renew_deadline:
                break
            await self._clock.sleep(self._timing.retry * (1 + 0.2 * self._rng.random()))
        log.info("lease %s: %s leads", self._key, self._identity)
        self.is_leader = True
        try:
            await self._led(lead)
        finally:
            self.is_leader = False
            await self._release()

    async def _led(self, lead: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                renewal = group.create_task(self._renew(), name=f"renew lease {self._key}")
                await lead()
                renewal.cancel()
        except BaseExceptionGroup as failed:
            if len(failed.exceptions) == 1:
                raise failed.exceptions[0] from None
            raise

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._timing.retry)
            left = self._renewed + self._timing.renew_deadline - self._clock.monotonic()
            try:
                # A request that hangs must not outlive the deadline either.
                async with timeout(self._clock, max(left, 0)):
                    asked = self._clock.monotonic()
                    if await self._attempt():
                        self._renewed = asked
                        continue
                    held = f"{self._seen.spec.holder_identity} holds it" if self._seen else "it cannot be read"
            except TimeoutError:
                held = "the API server does not answer"
            if self._clock.monotonic() - self._renewed >= self._timing.renew_deadline or self._taken():
                raise LeaseLost(f"renew lease {self._key}: not renewed in time by {self._identity} ({held})")

    async def _attempt(self) -> bool:
        """Take or renew the lease if that may be done now. Never raises a KubeError: what failed is tried again."""
        try:
            return await self._take()
        except Conflict:
            # Another candidate was faster. What it wrote is read at the next attempt.
            return False
        except KubeError as error:
            log.warning("%s", error)
            return False

    async def _take(self) -> bool:
        now = micro_time(self._clock.now())
        seconds = max(1, round(self._timing.duration))
        mine = LeaseSpec(
            holder_identity=self._identity, lease_duration_seconds=seconds, acquire_time=now, renew_time=now
        )
        try:
            self._observe(await self._client.get(LEASES, self._key))
        except NotFound:
            meta = ObjectMeta(namespace=self._key.namespace, name=self._key.name)
            self._observe(await self._client.create(LEASES, Lease(metadata=meta, spec=mine)))
            return True
        assert self._seen is not None
        held = self._seen.spec
        if held.holder_identity == self._identity:
            mine = msgspec.structs.replace(
                mine, acquire_time=held.acquire_time, lease_transitions=held.lease_transitions
            )
        elif self._taken():
            return False
        else:
            mine = msgspec.structs.replace(mine, lease_transitions=held.lease_transitions + 1)
        await self._write(mine)
        return True

    def _taken(self) -> bool:
        """Somebody else holds it, and renewed it within the duration that it asked for."""
        if self._seen is None or self._seen.spec.holder_identity in ("", self._identity):
            return False
        return self._clock.monotonic() - self._seen_at < max(
            self._timing.duration, self._seen.spec.lease_duration_seconds
        )

    def _observe(self, lease: Lease) -> None:
        if self._seen is None or lease.metadata.resource_version != self._seen.metadata.resource_version:
            self._seen = lease
            self._seen_at = self._clock.monotonic()

    async def _write(self, spec: LeaseSpec) -> None:
        assert self._seen is not None
        # The resource version inside the metadata makes this a compare-and-swap.
        self._observe(await self._client.replace(LEASES, Lease(metadata=self._seen.metadata, spec=spec)))

    async def _release(self) -> None:
        """So that the next leader need not wait for the lease to expire. Only if it is still ours."""
        if self._seen is None or self._seen.spec.holder_identity != self._identity:
            return
        spec = msgspec.structs.replace(self._seen.spec, holder_identity="", lease_duration_seconds=1)
        try:
            async with timeout(self._clock, self._timing.retry):
                await self._write(spec)
        except (KubeError, TimeoutError) as error:
            log.warning("release lease %s: %s; others wait until it expires", self._key, error or "no answer")


def micro_time(moment: datetime) -> str:
    """RFC 3339 with exactly six digits after the second, the only form the server takes for a MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
