"""Who gets the next permit, and whose is revoked for it."""

import asyncio

import pytest
from fake_clock import FakeClock

from instaslice.observe.fair_semaphore import FairSemaphore, PermitState

PATIENCE = 2.0
IDLE, CLIENTS_TURN, WORKING = PermitState.IDLE, PermitState.CLIENTS_TURN, PermitState.WORKING


class Crowd:
    """Everybody who wants a permit, by a name that begins with the address: `a1` is of address `a`."""

    def __init__(self, most, most_of_one=99):
        self.clock = FakeClock()
        self.semaphore = FairSemaphore(most, most_of_one, patience=PATIENCE, clock=self.clock)
        self.permits = {}
        self.tasks = {}
        self.revoked = []
        self.busy = set()

    async def arrive(self, *names):
        for name in names:
            self.tasks[name] = asyncio.create_task(self._hold(name))
            await self.settle()

    async def _hold(self, name):
        def revoke():
            if name in self.busy:
                return False
            self.revoked.append(name)
            return True

        self.permits[name] = await self.semaphore.acquire(name[0], revoke)

    async def enter(self, state, *names):
        for name in names:
            self.clock.advance(0.01)
            self.permits[name].enter(state)
        await self.settle()

    async def leave(self, *names):
        for name in names:
            self.permits.pop(name).release()
        await self.settle()

    async def settle(self):
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def served(self):
        return sorted(self.permits)


async def test_one_more_than_there_are_permits_waits_until_one_is_released():
    crowd = Crowd(2)
    await crowd.arrive("a1", "a2", "a3")
    assert crowd.served == ["a1", "a2"]
    await crowd.leave("a1")
    assert crowd.served == ["a2", "a3"]


async def test_the_one_that_is_idle_longest_is_revoked_for_each_that_waits():
    crowd = Crowd(4)
    await crowd.arrive("a1", "b1", "a2", "b2")
    await crowd.enter(WORKING, "a2")
    await crowd.enter(IDLE, "b2", "a1", "b1")
    await crowd.arrive("c1")
    assert crowd.revoked == ["b2"]
    await crowd.arrive("c2")
    assert crowd.revoked == ["b2", "a1"]
    crowd.clock.advance(10 * PATIENCE)
    assert crowd.revoked == ["b2", "a1"], "one for each"
    await crowd.leave("b2", "a1")
    assert crowd.served == ["a2", "b1", "c1", "c2"]


async def test_one_that_works_is_never_revoked_and_one_that_becomes_idle_at_once():
    crowd = Crowd(2)
    await crowd.arrive("a1", "a2")
    await crowd.enter(WORKING, "a1", "a2")
    await crowd.arrive("b1")
    crowd.clock.advance(100 * PATIENCE)
    assert crowd.revoked == []
    await crowd.enter(IDLE, "a2")
    assert crowd.revoked == ["a2"]


async def test_whose_client_does_nothing_is_revoked_after_a_while_and_only_for_somebody():
    crowd = Crowd(2)
    await crowd.arrive("a1")
    crowd.clock.advance(1)
    await crowd.arrive("a2")
    crowd.clock.advance(100)
    assert crowd.revoked == []
    await crowd.enter(WORKING, "a1", "a2")
    await crowd.enter(CLIENTS_TURN, "a2", "a1")
    await crowd.arrive("b1")
    assert crowd.revoked == []
    crowd.clock.advance(PATIENCE)
    assert crowd.revoked == ["a2"], "the one that keeps us waiting longest"


async def test_one_that_turns_out_to_be_busy_stays_and_another_ends():
    crowd = Crowd(2)
    await crowd.arrive("a1", "a2")
    await crowd.enter(IDLE, "a1", "a2")
    crowd.busy.add("a1")
    await crowd.arrive("b1")
    assert crowd.revoked == ["a2"]
    assert crowd.permits["a1"].state is CLIENTS_TURN


async def test_the_address_that_holds_fewest_is_next():
    crowd = Crowd(4)
    await crowd.arrive("a1", "a2", "a3", "b1")
    await crowd.arrive("a4", "b2", "a5", "c1")
    for leaving, served in (("a1", "c1"), ("a2", "a4"), ("b1", "b2")):
        await crowd.leave(leaving)
        assert served in crowd.served
    assert crowd.served == ["a3", "a4", "b2", "c1"]


@pytest.mark.parametrize("attackers", [2, 10])
async def test_addresses_that_hold_everything_and_come_back_at_once_keep_nobody_out(attackers):
    crowd = Crowd(10, 5)
    names = [f"{chr(ord('b') + number)}{index}" for number in range(attackers) for index in range(20)]
    await crowd.arrive(*names)
    assert len(crowd.served) == 10
    await crowd.arrive("a1")
    crowd.clock.advance(PATIENCE)
    assert len(crowd.revoked) == 10, "as many wait, and all have done nothing"
    for number, name in enumerate(crowd.revoked[: 2 if attackers == 2 else 10]):
        await crowd.leave(name)
        await crowd.arrive(f"{name[0]}again{number}")
    assert "a1" in crowd.served


async def test_one_that_needs_moments_does_not_wait_behind_those_that_need_seconds_each_time():
    """More addresses than there are permits: what one leaves would go to the next of them, for seconds."""
    crowd = Crowd(2)
    await crowd.arrive("b1", "c1", "d1", "b2", "c2", "d2", "a1", "a2", "a3")
    crowd.clock.advance(PATIENCE)
    await crowd.leave("b1", "c1")
    assert crowd.served == ["a1", "d1"]
    for served, following in (("a1", "a2"), ("a2", "a3")):
        crowd.clock.advance(0.01)
        await crowd.leave(served)
        assert crowd.served == sorted(["d1", following])
    await crowd.leave("a3")
    assert crowd.served == ["b2", "d1"]


async def test_that_nobody_waits_wipes_the_slate_clean():
    crowd = Crowd(1)
    await crowd.arrive("b1", "a1")
    crowd.clock.advance(PATIENCE)
    await crowd.leave("b1")
    await crowd.enter(WORKING, "a1")
    await crowd.arrive("b2", "c1")
    await crowd.leave("a1")
    assert crowd.served == ["b2"], "it came before c1"


async def test_an_address_that_has_all_it_may_have_waits_for_itself():
    crowd = Crowd(10, 2)
    await crowd.arrive("b1", "a1", "a2")
    await crowd.enter(IDLE, "b1", "a1", "a2")
    await crowd.arrive("a3")
    assert crowd.revoked == ["a1"]
    await crowd.leave("a1")
    assert crowd.served == ["a2", "a3", "b1"]


async def test_an_address_that_waits_for_itself_has_nobody_else_end():
    crowd = Crowd(4, 2)
    await crowd.arrive("b1", "b2", "a1", "a2")
    await crowd.enter(IDLE, "b1", "b2")
    await crowd.enter(WORKING, "a1", "a2")
    await crowd.arrive("a3", "a4")
    assert crowd.revoked == []


async def test_an_answer_is_the_last_where_somebody_waits_and_nobody_ends_for_them_yet():
    crowd = Crowd(2)
    await crowd.arrive("a1", "a2")
    await crowd.enter(WORKING, "a1", "a2")
    assert not crowd.permits["a1"].yielded()
    await crowd.arrive("b1")
    assert crowd.permits["a1"].yielded()
    assert not crowd.permits["a2"].yielded(), "one ends already"
    await crowd.enter(IDLE, "a2")
    assert crowd.revoked == []


async def test_who_gives_up_waiting_costs_nobody_a_permit():
    crowd = Crowd(1)
    await crowd.arrive("a1", "b1", "c1")
    crowd.tasks["b1"].cancel()
    await crowd.leave("a1")
    assert crowd.served == ["c1"]
    await crowd.arrive("d1")
    crowd.permits.pop("c1").release()
    crowd.tasks["d1"].cancel()  # in the same turn in which it got its permit
    await crowd.settle()
    assert crowd.semaphore.held == 0
    assert crowd.semaphore.waiting == 0
    assert crowd.clock.waiting == 0, "nothing is due any more"
