"""One leader, whatever happens to the others, on the real API server."""

import asyncio
import random

import pytest
from history import PATIENCE

from instaslice.kube.clock import SystemClock
from instaslice.kube.core import LEASES, Lease, LeaseSpec
from instaslice.kube.errors import LeaseLost
from instaslice.kube.lease import Election, Timing
from instaslice.kube.meta import Key, ObjectMeta

QUICK = Timing(duration=3, renew_deadline=2, retry=0.2)


class Office:
    """Where leaders sit: notices two at once."""

    def __init__(self):
        self.terms = []
        self.sitting = None
        self.taken = asyncio.Event()

    def lead(self, name):
        async def term():
            assert self.sitting is None, f"{name} came while {self.sitting} led"
            self.sitting = name
            self.terms.append(name)
            self.taken.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.sitting = None
                self.taken.clear()

        return term


@pytest.fixture
def elect(client, namespace):
    def made(name):
        return Election(
            client,
            Key(namespace, "leader"),
            identity=name,
            clock=SystemClock(),
            rng=random.Random(name),
            timing=QUICK,
        )

    return made


async def renewals(client, key, count):
    """Wait until the leader renewed so often that every other candidate has tried its luck meanwhile."""
    versions = set()
    while len(versions) <= count:
        versions.add((await client.get(LEASES, key)).metadata.resource_version)
        await asyncio.sleep(0.05)


async def test_the_next_candidate_leads_when_the_leader_stops_and_never_two_at_once(client, namespace, elect):
    office = Office()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        runs = {name: group.create_task(elect(name).run(office.lead(name))) for name in "abc"}
        for _ in range(3):
            await office.taken.wait()
            await renewals(client, Key(namespace, "leader"), 4)
            runs[office.sitting].cancel()
            await asyncio.wait([runs[office.sitting]])
    assert sorted(office.terms) == ["a", "b", "c"]
    lease = await client.get(LEASES, Key(namespace, "leader"))
    assert lease.spec.holder_identity == ""
    assert lease.spec.lease_transitions == 2


async def test_a_leader_that_cannot_renew_stops_leading_and_says_so(cluster, elect):
    office = Office()
    run = asyncio.create_task(elect("a").run(office.lead("a")))
    async with asyncio.timeout(PATIENCE):
        await office.taken.wait()
        cluster.pause("kube-apiserver")
        try:
            with pytest.raises(LeaseLost, match=r"renew lease .*/leader: not renewed in time by a"):
                await run
        finally:
            cluster.resume("kube-apiserver")
    assert office.sitting is None


async def test_a_lease_whose_holder_vanished_is_taken_when_it_stood_still(client, namespace, elect):
    """The times in the record are from the far future: a holder is judged by our own clock only."""
    far = "2999-01-01T00:00:00.000000Z"
    spec = LeaseSpec(holder_identity="gone", lease_duration_seconds=1, acquire_time=far, renew_time=far)
    await client.create(LEASES, Lease(metadata=ObjectMeta(namespace=namespace, name="leader"), spec=spec))
    office = Office()
    run = asyncio.create_task(elect("a").run(office.lead("a")))
    async with asyncio.timeout(PATIENCE):
        await office.taken.wait()
        run.cancel()
        await asyncio.wait([run])
    assert office.terms == ["a"]


async def test_a_leader_whose_lease_is_taken_from_it_stops(client, namespace, elect):
    office = Office()
    run = asyncio.create_task(elect("a").run(office.lead("a")))
    async with asyncio.timeout(PATIENCE):
        await office.taken.wait()
        await client.merge(
            LEASES, Key(namespace, "leader"), {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 60}}
        )
        with pytest.raises(LeaseLost, match="b holds it"):
            await run
    assert (await client.get(LEASES, Key(namespace, "leader"))).spec.holder_identity == "b"


async def test_what_the_leader_raises_comes_out(elect):
    async def lead():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await elect("a").run(lead)
