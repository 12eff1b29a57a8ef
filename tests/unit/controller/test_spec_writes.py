"""When a spec is written: at once where a pod comes alone, with its company where many come."""

import msgspec
import pytest

from instaslice.api.instaslice import INSTASLICES
from instaslice.api.writing import MAX_COOLDOWN, QUIET_SECONDS
from instaslice.controller.spec_writer import SpecWriter


class Server:
    """Takes a while for every patch, and notes when it was done."""

    def __init__(self, world, took):
        self._world, self._took = world, took
        self.written = []

    async def patch(self, resource, key, ops, *, manager, subresource=""):
        assert resource is INSTASLICES
        self._world.now += self._took
        self.written.append(len(ops[-1].value.allocations))
        thing = self._world.instaslices[key.name]
        generation = thing.metadata.generation + len(self.written)
        return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, generation=generation))


def _specs(world, took):
    world.now += 1000  # since the machine was started
    server = Server(world, took)
    specs = SpecWriter(server, world.dispatcher.state.ledger, "controller", world.clock)
    for thing in world.instaslices.values():
        specs.seen(None, thing)
    return specs, server


def _changed(world, specs, node="a", profile="1g.5gb"):
    """A reservation there; the seconds after which it may be written."""
    world.add_pod(profile, node_selector={"kubernetes.io/hostname": node})
    world.dispatcher.decide()
    return specs.changed(node)


async def _promised(world, specs):
    _changed(world, specs)
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


async def test_pods_that_never_stop_coming_do_not_wait_for_ever(world):
    specs, server = _specs(world, took=0.2)
    await _promised(world, specs)
    began = world.now
    while len(server.written) == 1:
        world.now += 0.1
        await _promised(world, specs)
    assert world.now - began == pytest.approx(MAX_COOLDOWN + 0.2)


async def test_on_a_quiet_server_nobody_notices(world):
    specs, server = _specs(world, took=0.005)
    await _promised(world, specs)
    assert await _promised(world, specs) == pytest.approx(0.05)
    assert server.written == [1]


async def test_a_wave_that_reaches_the_next_node_waits_there_until_it_is_over(world):
    world.add_node("b")
    specs, server = _specs(world, took=0.2)
    await _promised(world, specs)
    world.now += 0.01
    assert _changed(world, specs, "b") == QUIET_SECONDS
    world.now += QUIET_SECONDS
    assert await specs.write("b") is None
    assert server.written == [1, 1]


async def test_a_wave_that_goes_on_keeps_the_next_node_waiting_a_moment_at_most(world):
    world.add_node("b", gpus=8)
    specs, server = _specs(world, took=0.2)
    await _promised(world, specs)
    began = world.now
    while len(server.written) == 1:
        _changed(world, specs, "b")
        await specs.write("b")
        world.now += 0.1
    assert world.now - began == pytest.approx(MAX_COOLDOWN + 0.2, abs=0.11)


async def test_a_node_that_is_full_waits_for_no_more(world):
    world.add_node("b")
    specs, server = _specs(world, took=0.2)
    await _promised(world, specs)
    for _ in range(6):
        assert _changed(world, specs, "b") > 0
    assert _changed(world, specs, "b") == 0
    assert await specs.write("b") is None
    assert server.written == [1, 7]


async def test_the_turnover_of_a_full_node_gathers_all_the_same(world):
    specs, server = _specs(world, took=0.2)
    assert _changed(world, specs, profile="7g.40gb") == 0
    assert await specs.write("a") is None
    uid = next(iter(world.dispatcher.state.ledger.reservations))
    world.dispatcher.state.ledger.release(uid, "gone")
    assert specs.changed("a") == 0
    assert await specs.write("a") == pytest.approx(QUIET_SECONDS)
    assert server.written == [1]


async def test_pods_that_come_seldom_do_not_wait_for_one_another(world):
    world.add_node("b")
    specs, _ = _specs(world, took=0.02)
    await _promised(world, specs)
    world.now += 10
    assert _changed(world, specs, "b") == pytest.approx(0.02)
