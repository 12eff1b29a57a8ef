"""A snapshot that watches keep current: what cannot be read is named for as long as that is so."""

import asyncio
from contextlib import asynccontextmanager

from fake_clock import FakeClock
from memory_server import MemoryServer
from small_worlds import pod

from instaslice.api import names
from instaslice.api.live_snapshot import LiveSnapshot, WatchedKind
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import LEASES, PODS, Lease, LeaseSpec
from instaslice.kube.errors import Unreadable
from instaslice.kube.meta import ObjectMeta, key_of


async def test_an_object_is_named_until_it_can_be_read_or_is_gone():
    changed = asyncio.Event()
    kind = WatchedKind(None, PODS, SystemClock(), changed)
    odd = pod("odd", "1g.5gb")
    error = Unreadable("Pod team-a/odd cannot be read: Expected `int`")

    kind.set_unread(odd.metadata, error)
    assert changed.is_set()
    assert [f"{each.object}: {each.why}" for each in kind.unread] == ["pod team-a/odd: cannot be read: Expected `int`"]
    kind.objects.upsert(odd)
    assert kind.unread == []

    kind.set_unread(odd.metadata, error)
    assert list(kind.objects) == [odd], "the last version that could be read stays"
    kind.objects.replace({})
    assert kind.unread == []
    kind.set_unread(odd.metadata, error)
    kind.objects.replace({key_of(odd): odd})
    assert kind.unread == []


def lease(name, renewed, holder="one"):
    meta = ObjectMeta(namespace=names.NAMESPACE, name=name)
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=20, renew_time=f"2026-11-16T00:00:{renewed:02}Z")
    return Lease(metadata=meta, spec=spec)


async def turns():
    for _ in range(50):
        await asyncio.sleep(0)


@asynccontextmanager
async def followed(server, clock, silent=frozenset()):
    first = ClusterSnapshot([], [], [], clock.now(), silent_leases=silent)
    live = LiveSnapshot(server.client(), clock, first)
    async with live.running():
        await turns()
        yield live


async def test_the_lease_of_the_controller_is_followed_and_its_renewals_draw_nothing():
    server, clock = MemoryServer(), FakeClock()
    server.put(LEASES, lease(names.CONTROLLER, 1))
    async with followed(server, clock) as live:
        assert live.read().lease.spec.holder_identity == "one"
        live.changed.clear()
        server.put(LEASES, lease(names.CONTROLLER, 3))
        await turns()
        assert live.read().lease.spec.renew_time.endswith("03Z")
        assert not live.changed.is_set()
        server.put(LEASES, lease(names.CONTROLLER, 3, holder="two"))
        await turns()
        assert live.changed.is_set()


async def test_who_may_not_read_leases_sees_the_rest_and_no_doubt_about_the_controller():
    server = MemoryServer()
    server.refuse("GET", "leases", 403)
    async with followed(server, FakeClock()) as live:
        assert (live.read().lease, live.read().lease_unknown) == (None, True)


async def test_an_agent_whose_lease_is_not_renewed_is_silent_until_it_is():
    server, clock = MemoryServer(), FakeClock()
    server.put(LEASES, lease(names.EMULATION, 1))
    async with followed(server, clock) as live:
        clock.advance(19)
        assert live.read().silent_leases == frozenset()
        clock.advance(1)
        assert live.read().silent_leases == {names.EMULATION}
        live.changed.clear()
        server.put(LEASES, lease(names.EMULATION, 2))
        await turns()
        assert live.read().silent_leases == frozenset()
        assert live.changed.is_set()


async def test_one_that_was_silent_from_the_start_is_silent_until_it_is_renewed():
    server, clock = MemoryServer(), FakeClock()
    server.put(LEASES, lease(names.EMULATION, 1))
    async with followed(server, clock, frozenset({names.EMULATION})) as live:
        assert live.read().silent_leases == {names.EMULATION}
        server.put(LEASES, lease(names.EMULATION, 2))
        await turns()
        assert live.read().silent_leases == frozenset()
