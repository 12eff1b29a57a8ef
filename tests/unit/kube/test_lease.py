"""Who leads and for how long, on a clock that a test moves."""

import asyncio
import random

import msgspec
import pytest

from instaslice.kube.core import Lease, LeaseSpec
from instaslice.kube.errors import AlreadyExists, Conflict, LeaseLost, NotFound, Unreachable
from instaslice.kube.lease import Election, Timing
from instaslice.kube.meta import Key, ObjectMeta

KEY = Key("system", "controller")
TIMING = Timing(duration=15, renew_deadline=10, retry=2)
AWAY = Unreachable("away")


class Server:
    """Keeps one Lease, as an API server does: a write with an old version is a conflict."""

    def __init__(self, clock):
        self._clock = clock
        self.lease = None
        self.version = 0
        self.trouble = None
        """What every request is answered with just now: an error, or nothing for so many seconds."""

    async def get(self, _resource, _key):
        await self._trouble()
        if self.lease is None:
            raise NotFound("no lease")
        return self.lease

    async def create(self, _resource, lease):
        await self._trouble()
        if self.lease is not None:
            raise AlreadyExists("another was faster")
        return self.write(lease.spec)

    async def replace(self, _resource, lease):
        await self._trouble()
        if lease.metadata.resource_version != self.lease.metadata.resource_version:
            raise Conflict("another was faster")
        return self.write(lease.spec)

    def write(self, spec):
        self.version += 1
        meta = ObjectMeta(namespace=KEY.namespace, name=KEY.name, resource_version=str(self.version))
        self.lease = Lease(metadata=meta, spec=spec)
        return self.lease

    async def _trouble(self):
        if isinstance(self.trouble, Exception):
            raise self.trouble
        if self.trouble is not None:
            await self._clock.sleep(self.trouble)

    @property
    def holder(self):
        return self.lease and self.lease.spec.holder_identity


class Candidate:
    """A replica: what it wants to be, and how that went."""

    def __init__(self, server, clock, name="a"):
        self.election = Election(server, KEY, identity=name, clock=clock, rng=random.Random(name), timing=TIMING)
        self.leads = False
        self.end = asyncio.Event()
        self.run = asyncio.create_task(self.election.run(self._lead))

    async def _lead(self):
        self.leads = True
        try:
            await self.end.wait()
        finally:
            self.leads = False


@pytest.fixture
def server(clock):
    return Server(clock)


@pytest.fixture
async def candidate(server, clock):
    """Makes candidates, by name, and ends them after the test."""
    made = []

    def begin(name="a"):
        made.append(Candidate(server, clock, name))
        return made[-1]

    yield begin
    server.trouble = None
    for each in made:
        each.run.cancel()
        await asyncio.wait([each.run])


@pytest.fixture
async def leader(candidate, clock):
    """One that leads since just now."""
    made = candidate()
    await passing(clock, 0)
    assert made.leads
    return made


async def passing(clock, seconds):
    """Let time pass, and everything happen that it brings."""
    for step in [0, *[0.25] * round(4 * seconds)]:
        clock.advance(step)
        for _ in range(20):
            await asyncio.sleep(0)


def held_by(name, seconds=15, transitions=3):
    long_ago = "2001-01-01T00:00:00.000000Z"
    return LeaseSpec(
        holder_identity=name,
        lease_duration_seconds=seconds,
        lease_transitions=transitions,
        acquire_time=long_ago,
        renew_time=long_ago,
    )


async def test_a_lease_that_is_not_there_is_made(leader, server):
    assert leader.election.is_leader and leader.election.is_fresh
    assert (server.holder, server.lease.spec.lease_duration_seconds) == ("a", 15)
    assert server.lease.spec.lease_transitions == 0


async def test_a_leader_renews_and_leads_on(leader, server, clock):
    before = server.lease.spec
    await passing(clock, 60)
    assert leader.leads and leader.election.is_fresh
    assert server.version > 20
    assert server.lease.spec.renew_time > before.renew_time
    assert msgspec.structs.replace(server.lease.spec, renew_time=before.renew_time) == before


async def test_after_a_pause_of_the_process_a_leader_knows_at_once_that_it_may_be_none(leader, clock):
    clock.skip(9.75)
    assert leader.election.is_fresh
    clock.skip(0.25)
    assert leader.election.is_leader and not leader.election.is_fresh


async def test_who_does_not_lead_is_not_fresh(candidate, server, clock):
    server.write(held_by("b"))
    waiting = candidate()
    await passing(clock, 1)
    assert not waiting.election.is_leader and not waiting.election.is_fresh


async def test_a_leader_is_as_fresh_as_its_last_request_is_young_and_not_the_answer(leader, server, clock):
    """Others count from when the server wrote it, which may have been at once."""
    await passing(clock, 1.5)
    server.trouble = 3  # for the reading and for the writing
    await passing(clock, 7.5)  # asked at 2 s, answered at 8 s
    clock.skip(2.75)
    assert leader.election.is_fresh
    clock.skip(0.25)
    assert leader.election.is_leader and not leader.election.is_fresh


async def test_a_first_answer_that_was_late_makes_a_leader_that_is_as_old_as_its_request(candidate, server, clock):
    server.trouble = 4
    waiting = candidate()
    await passing(clock, 8)
    assert waiting.leads and waiting.election.is_fresh
    clock.skip(2)
    assert not waiting.election.is_fresh


async def test_a_first_answer_that_was_too_late_makes_no_leader_until_it_is_renewed(candidate, server, clock):
    server.trouble = 6
    waiting = candidate()
    await passing(clock, 12)
    assert server.holder == "a" and not waiting.leads
    server.trouble = None
    await passing(clock, 3)
    assert waiting.leads and waiting.election.is_fresh and not waiting.run.done()


@pytest.mark.parametrize(
    "trouble, why",
    [
        pytest.param(AWAY, "a holds it", id="refused"),
        pytest.param(1000, "the API server does not answer", id="not answered"),
    ],
)
async def test_a_leader_that_cannot_renew_stops_before_another_may_begin(leader, server, clock, trouble, why):
    server.trouble = trouble
    await passing(clock, 9.75)
    assert leader.leads
    await passing(clock, 0.25)
    assert not leader.leads and not leader.election.is_leader
    server.trouble = None
    await passing(clock, 2)
    with pytest.raises(LeaseLost, match=f"renew lease system/controller: not renewed in time by a .{why}"):
        await leader.run


async def test_a_leader_whose_server_was_away_for_a_while_leads_on(leader, server, clock):
    for _ in range(5):
        server.trouble = AWAY
        await passing(clock, 7)
        server.trouble = None
        await passing(clock, 2)
        assert leader.leads and leader.election.is_fresh


async def test_a_leader_whose_lease_is_another_s_stops_at_once_and_leaves_it(leader, server, clock):
    theirs = held_by("b")
    server.write(theirs)
    await passing(clock, 2)
    with pytest.raises(LeaseLost, match="b holds it"):
        await leader.run
    assert not leader.leads
    assert server.lease.spec == theirs


@pytest.mark.parametrize("how", ["ends", "fails", "is cancelled"])
async def test_a_leader_that_stops_gives_the_lease_back(server, clock, how):
    server.write(held_by("", transitions=3))

    async def lead():
        if how == "fails":
            raise ZeroDivisionError
        if how == "is cancelled":
            await asyncio.Event().wait()

    election = Election(server, KEY, identity="a", clock=clock, rng=random.Random(1), timing=TIMING)
    run = asyncio.create_task(election.run(lead))
    await passing(clock, 0)
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled() == (how == "is cancelled")
    if how == "fails":
        assert isinstance(run.exception(), ZeroDivisionError)
    assert not election.is_leader
    spec = server.lease.spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("", 1, 4)


async def test_a_server_that_does_not_answer_does_not_keep_a_leader_from_ending(leader, server, clock):
    await passing(clock, 2.5)
    server.trouble = 1000
    leader.end.set()
    await passing(clock, 1.75)
    assert not leader.leads and not leader.run.done()
    await passing(clock, 0.5)
    assert leader.run.done() and leader.run.exception() is None
    assert server.holder == "a"


@pytest.mark.parametrize(
    "seconds, free_after",
    [
        pytest.param(1, 15, id="not before our own patience is over"),
        pytest.param(40, 40, id="not before the holder's is"),
    ],
)
async def test_a_holder_that_vanished_is_followed_when_its_lease_stood_still(
    candidate, server, clock, seconds, free_after
):
    server.write(held_by("b", seconds=seconds))
    waiting = candidate()
    await passing(clock, free_after - 1)
    assert not waiting.leads
    await passing(clock, 1 + 1.2 * TIMING.retry)
    assert waiting.leads
    spec = server.lease.spec
    assert (spec.holder_identity, spec.lease_transitions, spec.lease_duration_seconds) == ("a", 4, 15)
    assert spec.acquire_time == spec.renew_time != held_by("b").acquire_time


async def test_a_holder_that_renews_is_waited_for_whatever_times_it_writes(candidate, server, clock):
    server.write(held_by("b"))
    waiting = candidate()
    for _ in range(10):
        await passing(clock, 14)
        server.write(held_by("b"))
    assert not waiting.leads


@pytest.mark.parametrize("before", [held_by(""), held_by("a")], ids=["given back", "ours, before a restart"])
async def test_a_lease_that_is_nobody_s_or_ours_is_taken_at_once(candidate, server, clock, before):
    server.write(before)
    waiting = candidate()
    await passing(clock, 0)
    assert waiting.leads
    spec = server.lease.spec
    if before.holder_identity:
        assert (spec.lease_transitions, spec.acquire_time) == (3, before.acquire_time)
    else:
        assert (spec.lease_transitions, spec.acquire_time) == (4, spec.renew_time)


async def test_of_two_that_come_at_once_one_leads_and_nothing_is_wrong(candidate, server, clock, caplog):
    server.trouble = 0.5  # both read before either writes
    both = [candidate(name) for name in "ab"]
    await passing(clock, 20)
    assert [each.leads for each in both].count(True) == 1
    assert caplog.records == []
    first = next(each for each in both if each.leads)
    first.run.cancel()
    await passing(clock, 5)
    assert [each.leads for each in both] == [each is not first for each in both]


async def test_a_candidate_whose_server_is_away_goes_on_asking(candidate, server, clock):
    server.trouble = AWAY
    waiting = candidate()
    await passing(clock, 60)
    assert not waiting.leads and not waiting.run.done()
    server.trouble = None
    await passing(clock, 1.2 * TIMING.retry + 0.25)
    assert waiting.leads


async def test_a_leader_that_neither_renews_nor_ends_is_stuck(leader, server, clock):
    assert leader.election.seen and not leader.election.stuck
    for _ in range(10):
        await passing(clock, 2)
        assert leader.election.age <= 2.5
    # No task has its turn meanwhile: as where the renewal died unnoticed.
    clock.advance(2 * TIMING.renew_deadline)
    assert not leader.election.is_fresh and not leader.election.stuck
    clock.advance(3)
    assert leader.election.stuck


async def test_a_standby_is_never_stuck(leader, candidate, server, clock):
    standby = candidate("b")
    assert not standby.election.seen
    await passing(clock, 2)
    assert standby.election.seen and not standby.leads
    server.trouble = AWAY
    clock.advance(1000)
    assert not standby.election.stuck
