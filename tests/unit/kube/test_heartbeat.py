"""A Lease that shows that a process runs, and how others judge it."""

import asyncio
import logging

import pytest
from fake_clock import FakeClock
from memory_server import MemoryServer

from instaslice.kube.core import LEASES, Lease, LeaseSpec
from instaslice.kube.heartbeat import DURATION_SECONDS, RENEW_SECONDS, Heartbeat, Renewals
from instaslice.kube.meta import Key, ObjectMeta

KEY = Key("here", "beat")


def lease(renewed, seconds=20):
    spec = LeaseSpec(holder_identity="one", lease_duration_seconds=seconds, renew_time=renewed)
    return Lease(metadata=ObjectMeta(namespace=KEY.namespace, name=KEY.name), spec=spec)


async def turns():
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def beating():
    """A server and the clock of a process that renews its Lease there."""
    clock = FakeClock()
    server = MemoryServer(now=clock.now)
    beat = Heartbeat(server.client(), KEY, identity="one", manager="agent", clock=clock)
    task = asyncio.create_task(beat.run())
    await turns()
    yield server, clock
    task.cancel()


async def test_a_lease_is_created_and_renewed(beating):
    server, clock = beating
    (first,) = server.all(LEASES)
    assert (first.spec.holder_identity, first.spec.lease_duration_seconds) == ("one", DURATION_SECONDS)
    clock.advance(RENEW_SECONDS)
    await turns()
    (second,) = server.all(LEASES)
    assert second.spec.renew_time > first.spec.renew_time
    assert len(server.calls) == 2, "one request per renewal"


async def test_what_is_refused_is_said_once_and_tried_again(beating, caplog):
    server, clock = beating
    (first,) = server.all(LEASES)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            server.refuse("PATCH", "leases", 403)
            clock.advance(RENEW_SECONDS)
            await turns()
    assert len(caplog.records) == 1
    clock.advance(RENEW_SECONDS)
    await turns()
    (second,) = server.all(LEASES)
    assert second.spec.renew_time > first.spec.renew_time


def test_a_lease_expires_by_our_clock_since_it_last_changed():
    renewals = Renewals()
    assert renewals.observe(lease("1990-01-01"), 100.0) == 120.0
    assert renewals.expired(119.9) == set()
    assert renewals.observe(lease("1990-01-01"), 119.9) == 120.0, "seen again, not renewed"
    assert renewals.expired(120.0) == {KEY}
    renewals.observe(lease("1980-01-01"), 130.0)
    assert renewals.expired(149.9) == set(), "whatever its clock says"


@pytest.mark.parametrize("at", [0.1 * step for step in range(200)])
def test_it_expires_at_the_time_that_was_named(at):
    renewals = Renewals()
    assert renewals.expired(renewals.observe(lease("1"), at)) == {KEY}


def test_a_lease_says_itself_how_long_it_holds():
    renewals = Renewals()
    renewals.observe(lease("1", seconds=1), 100.0)
    assert renewals.expired(101.0) == {KEY}


def test_one_that_is_gone_says_nothing():
    renewals = Renewals()
    renewals.observe(lease("1"), 100.0)
    renewals.forget(KEY)
    assert renewals.expired(1000.0) == set()
