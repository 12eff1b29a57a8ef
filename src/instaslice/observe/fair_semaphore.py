"""A semaphore that is fair between addresses, and that ends what only occupies it while somebody waits.

Knows nothing of connections: whoever acquires a permit says what it is doing with it, and how it is ended.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from instaslice.kube.clock import Clock, Timer

Revoke = Callable[[], bool]
"""End what holds the permit, which is to release it soon. False where that turned out not to be idle."""


class PermitState(Enum):
    CLIENTS_TURN = "client's turn"
    """Nothing can be done before the client does: finish its handshake or its request, or read the answer."""
    WORKING = "working"
    """It is our turn. Never revoked."""
    IDLE = "idle"
    """Between two requests: the first to be revoked."""
    ENDING = "ending"


class Permit:
    """Held until `release`. It begins with the client's turn."""

    def __init__(self, semaphore: "FairSemaphore", address: str, revoke: Revoke, now: float) -> None:
        self.address: Final = address
        self.revoke: Final = revoke
        self.state = PermitState.CLIENTS_TURN
        self.since = now
        self._semaphore = semaphore

    def enter(self, state: PermitState) -> None:
        """What is being done with it from now on. One that is ending stays so."""
        if self.state not in (state, PermitState.ENDING):
            self._semaphore.enter(self, state)

    def yielded(self) -> bool:
        """Whether to end after the work at hand, because somebody waits or enough are idle. It is ending then."""
        return self._semaphore.yielded(self)

    def release(self) -> None:
        """Safe to repeat."""
        self._semaphore.release(self)


@dataclass(eq=False)
class _Waiter:
    revoke: Revoke
    arrived: int
    since: float
    granted: "asyncio.Future[Permit]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class FairSemaphore:
    """At most `most` permits, `most_of_one` for one address.

    The next permit goes to the address that holds fewest; among equals to the one that has kept permits from others for
    the shortest time, in steps of `patience`, so that one that needs moments does not wait behind many that need
    seconds, each time; then to the one whose last permit is longest ago, so that none gains from having many waiting;
    within an address to whoever waits longest.

    For each that waits one permit is revoked: the one that is idle longest, once it has been so, and somebody has
    waited, for `grace` seconds; otherwise the one that has been waiting for its client longest, once that is `patience`
    seconds. Where an address has all it may have, its own are revoked. A permit that would become idle as one of more
    than `most_idle` is told to end (`yielded`).
    """

    def __init__(
        self,
        most: int,
        most_of_one: int,
        *,
        most_idle: float = math.inf,
        grace: float = 0.0,
        patience: float,
        clock: Clock,
    ) -> None:
        self._most, self._most_of_one, self._most_idle = most, most_of_one, most_idle
        self._grace, self._patience = grace, patience
        self._clock = clock
        self._permits: set[Permit] = set()
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiter]] = {}
        self._granted: dict[str, int] = {}
        """When each address that holds permits, or waits for more, got its last one."""
        self._occupied: Counter[str] = Counter()
        """Milliseconds that we waited for clients of each such address, or for the end of what they held, since there
        was last nobody who waits for a permit."""
        self._count = 0
        """Counts arrivals and grants."""
        self._timer: Timer | None = None

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def held(self) -> int:
        return len(self._permits)

    def kept_others(self, address: str) -> int:
        """For how many times `patience` an address has kept permits from others, who wait still."""
        return int(self._occupied[address] // (1000 * self._patience))

    async def acquire(self, address: str, revoke: Revoke) -> Permit:
        self._count += 1
        waiter = _Waiter(revoke, self._count, self._clock.monotonic())
        self._waiting.setdefault(address, deque()).append(waiter)
        self._update()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                waiter.granted.result().release()
            else:
                self._remove(address, waiter)
                self._update()
                self._forget(address)
            raise

    @asynccontextmanager
    async def permit(self, address: str, revoke: Revoke) -> AsyncIterator[Permit]:
        permit = await self.acquire(address, revoke)
        try:
            yield permit
        finally:
            permit.release()

    # Called by permits ----------------------------------------------------------------------------------------------

    def enter(self, permit: Permit, state: PermitState) -> None:
        self._set(permit, state)
        self._update()

    def yielded(self, permit: Permit) -> bool:
        wanted = any(needed > 0 and permit in permits for permits, needed in self._shortages())
        if wanted or self._count_of(PermitState.IDLE) >= self._most_idle:
            self._set(permit, PermitState.ENDING)
        return permit.state is PermitState.ENDING

    def release(self, permit: Permit) -> None:
        if permit not in self._permits:
            return
        self._set(permit, PermitState.ENDING)
        self._permits.remove(permit)
        self._held[permit.address] -= 1
        self._update()
        self._forget(permit.address)

    # Who is next, and who ends for it -------------------------------------------------------------------------------

    def _set(self, permit: Permit, state: PermitState) -> None:
        now = self._clock.monotonic()
        if self._waiting and permit.state in (PermitState.CLIENTS_TURN, PermitState.ENDING):
            self._occupied[permit.address] += round(1000 * (now - permit.since))
        permit.state, permit.since = state, now

    def _update(self) -> None:
        while (address := self._next()) is not None:
            waiter = self._waiting[address][0]
            self._remove(address, waiter)
            # Cancelled, and not yet removed by its task.
            if not waiter.granted.done():
                permit = Permit(self, address, waiter.revoke, self._clock.monotonic())
                self._permits.add(permit)
                self._held[address] += 1
                self._count += 1
                self._granted[address] = self._count
                waiter.granted.set_result(permit)
        if not self._waiting:
            self._occupied.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = min((self._revoke(permits, needed) for permits, needed in self._shortages()), default=math.inf)
        if due < math.inf:
            self._timer = self._clock.call_later(due, self._update)

    def _next(self) -> str | None:
        if len(self._permits) >= self._most:
            return None
        below = (each for each in self._waiting if self._held[each] < self._most_of_one)
        return min(below, key=self._rank, default=None)

    def _rank(self, address: str) -> tuple[int, int, int, int]:
        arrived = self._waiting[address][0].arrived
        return self._held[address], self.kept_others(address), self._granted.get(address, arrived), arrived

    def _remove(self, address: str, waiter: _Waiter) -> None:
        waiters = self._waiting.get(address, deque())
        if waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[address]

    def _count_of(self, state: PermitState) -> int:
        return sum(each.state is state for each in self._permits)

    def _forget(self, address: str) -> None:
        """What is known of an address, once it has neither permits nor wants any."""
        if not self._held[address]:
            del self._held[address]
            if address not in self._waiting:
                self._granted.pop(address, None)
                del self._occupied[address]

    def _shortages(self) -> Iterator[tuple[list[Permit], int]]:
        """Permits some of which must end for those that wait, and how many more of them."""
        for address in list(self._waiting):
            if self._held[address] >= self._most_of_one:
                own = [each for each in self._permits if each.address == address]
                yield own, len(self._waiting[address]) - _ending(own)
        if self._waiting and len(self._permits) >= self._most:
            wanted = sum(
                min(len(waiters), max(0, self._most_of_one - self._held[address]))
                for address, waiters in self._waiting.items()
            )
            yield list(self._permits), wanted - _ending(self._permits)

    def _revoke(self, permits: list[Permit], needed: int) -> float:
        """Revoke so many as far as possible; the seconds until more is possible though nothing happens."""
        if needed <= 0:
            return math.inf
        now = self._clock.monotonic()
        graced = min(waiters[0].since for waiters in self._waiting.values()) + self._grace
        for state in (PermitState.IDLE, PermitState.CLIENTS_TURN):
            for each in sorted((each for each in permits if each.state is state), key=lambda each: each.since):
                if needed <= 0:
                    return math.inf
                idle = state is PermitState.IDLE
                due = max(graced, each.since + self._grace) if idle else each.since + self._patience
                if now < due:
                    return due - now
                if each.revoke():
                    self._set(each, PermitState.ENDING)
                    needed -= 1
                else:
                    self._set(each, PermitState.CLIENTS_TURN)
        return math.inf


def _ending(permits: "set[Permit] | list[Permit]") -> int:
    return sum(each.state is PermitState.ENDING for each in permits)
