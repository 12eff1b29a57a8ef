"""Whether the nodes serve: agents that take note of nothing."""

import msgspec
import pytest
from fake_clock import JumpingClock
from memory_server import MemoryServer
from small_worlds import allocation, instaslice, node

from instaslice.api.instaslice import INSTASLICES, AllocationState, InstasliceStatus
from instaslice.doctor import Invariant, Serving, examine_serving
from instaslice.doctor.serving import RESPONSE_SECONDS
from instaslice.kube.core import NODES

ORDERED = allocation("train", "7g.40gb", 0, state=AllocationState.CREATING)


def changed(struct, **fields):
    return msgspec.structs.replace(struct, **fields)


async def examined(server, meanwhile=lambda: None):
    """What is found where the clock's sleeps take no time, and what happens during the first."""
    clock = JumpingClock()
    sleep = clock.sleep

    async def sleeping(seconds):
        await sleep(seconds)
        meanwhile()

    clock.sleep = sleeping
    return examine_serving(await Serving.read(server.client(), clock)), clock.slept


def ordered(observed, ready=True):
    """A server with one node of generation 1, whose agent has taken note of that one."""
    server = MemoryServer()
    server.put(NODES, node(ready=ready))
    server.put(INSTASLICES, instaslice(ORDERED, slices=[], observed=observed))
    return server


async def test_an_agent_that_takes_note_of_nothing_is_found_by_a_second_look():
    found, slept = await examined(ordered(observed=0))
    assert [(each.invariant, each.object, each.transient) for each in found] == [
        (Invariant.AGENT_RESPONDS, "instaslice gpu-0", True)
    ]
    assert "(generation 1, noted 0), and the slices of pod team-a/train are not created" in found[0].message
    assert found[0].message.endswith("; does it run? Its log says why not")
    assert slept == [RESPONSE_SECONDS]


async def test_an_agent_whose_node_is_not_ready_cannot_help_it():
    (found,), _ = await examined(ordered(observed=0, ready=False))
    assert found.message.endswith("; its node is gone or not ready: repair the node")


async def test_one_that_has_taken_note_is_not_looked_at_again():
    assert await examined(ordered(observed=1)) == ([], [])


@pytest.mark.parametrize(
    "seen, generation",
    [
        pytest.param(1, 1, id="it has taken note of all"),
        pytest.param(1, 2, id="and has more to take note of already"),
    ],
)
async def test_one_that_takes_note_meanwhile_responds(seen, generation):
    server = ordered(observed=0)
    there = server.all(INSTASLICES)[0]

    def meanwhile():
        spec = there.spec if generation == 1 else changed(there.spec, allocations=())
        status = InstasliceStatus(observed_generation=seen)
        server.put(INSTASLICES, changed(there, spec=spec, status=status))

    found, slept = await examined(server, meanwhile)
    assert server.all(INSTASLICES)[0].metadata.generation == generation
    assert (found, slept) == ([], [RESPONSE_SECONDS])


async def test_an_object_of_the_same_name_that_was_created_meanwhile_is_another():
    server = ordered(observed=0)

    def meanwhile():
        server.drop(INSTASLICES, server.all(INSTASLICES)[0])
        server.put(INSTASLICES, instaslice(ORDERED, slices=[], observed=0))

    assert (await examined(server, meanwhile))[0] == []
