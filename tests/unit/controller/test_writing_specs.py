"""When a spec is written: at once where a pod comes alone, with its company where many come."""

import msgspec
import pytest
from world import World

from instaslice.api.instaslice import INSTASLICES
from instaslice.api.writing import MOST_SECONDS, QUIET_SECONDS
from instaslice.controller.specs import Specs


class Server:
    """Takes a while for every patch, and notes when it was done."""

    def __init__(self, world, took):
        self._world, self._took = world, took
        self.written = []

    async def patch(self, resource, key, ops, *, manager):
        assert resource is INSTASLICES
        self._world.now += self._took
        self.written.append(len(ops[-1].value.allocations))
        thing = self._world.instaslices[key.name]
        generation = thing.metadata.generation + len(self.written)
        return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, generation=generation))


class Clock:
    def __init__(self, world):
        self._world = world

    def monotonic(self):
        return self._world.now


@pytest.fixture
def world():
    made = World()
    made.add_node("a")
    return made


def _specs(world, took):
    server = Server(world, took)
    specs = Specs(server, world.dispatcher.ledger, "controller", Clock(world))
    specs.seen(None, world.instaslices["a"])
    return specs, server


async def _promised(world, specs):
    world.add_pod("1g.5gb")
    world.dispatcher.decide()
    specs.changed()
    return await specs.write("a")


async def test_the_first_change_is_written_at_once(world):
    specs, server = _specs(world, took=0.2)
    assert await _promised(world, specs) is None
    assert server.written == [1]


async def test_changes_gather_while_pods_come_and_no_longer(world):
    specs, server = _specs(world, took=0.2)
    await _promised(world, specs)
    for _ in range(3):
        world.now += 0.1
        assert await _promised(world, specs) == pytest.approx(QUIET_SECONDS)
    assert server.written == [1]
    world.now += QUIET_SECONDS
    assert await specs.write("a") is None
    assert server.written == [1, 4]


async def test_pods_that_never_stop_coming_wait_for_company_a_second_at_most(world):
    specs, server = _specs(world, took=0.2)
    await _promised(world, specs)
    began = world.now
    while len(server.written) == 1:
        world.now += 0.1
        await _promised(world, specs)
    assert world.now - began == pytest.approx(MOST_SECONDS + 0.2)


async def test_on_a_quiet_server_nobody_notices(world):
    specs, server = _specs(world, took=0.005)
    await _promised(world, specs)
    assert await _promised(world, specs) == pytest.approx(0.05)
    assert server.written == [1]
