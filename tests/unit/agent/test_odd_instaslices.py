"""Whatever the object of a node says, its spec and what was reported before: the agent goes on."""

import asyncio

import msgspec
from agent_bench import Bench, MortalDriver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutated_objects import instaslices, nodes, valid

from instaslice.agent import report
from instaslice.agent.node import unserved
from instaslice.agent.resources import advertised, correction
from instaslice.api.instaslice import INSTASLICES
from instaslice.errors import InstasliceError
from instaslice.geometry import States, models

A30 = models.named("A30")
MANY = settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def bench_with(hushed):
    """On a node with two GPUs, of which some may not answer."""
    bench = Bench()
    bench.driver = MortalDriver("node", [A30, A30])
    bench.gpus = [gpu.uuid for gpu in bench.driver.discover()]
    bench.driver.hushed = hushed
    bench.restart()
    return bench


def about(thing, bench):
    """The same of the GPUs that are there."""
    text = msgspec.json.encode(thing)
    for number, there in enumerate(bench.gpus):
        text = text.replace(b'"GPU-%d"' % number, b'"%s"' % there.encode())
    return INSTASLICES.decoder.decode(text)


def no_overlap(driver):
    for gpu in driver.discover():
        states = States.of(gpu.model)
        there = [states.placement(each.placement.profile, each.placement.start) for each in driver.slices(gpu.uuid)]
        assert states.state(there) >= 0


def attend(bench, thing):
    agent = bench.agent
    agent.set_allocations(thing)
    agent.advance()
    no_overlap(bench.driver)
    status = agent.status()
    report.patch(bench.written, status)
    report.urgent(bench.written, status)
    agent.next_due()
    bench.written = status
    unserved(thing, "no driver", bench.clock.now())


@given(st.lists(instaslices(), min_size=2, max_size=5), st.sampled_from([(), (1,)]))
@MANY
def test_whatever_an_object_says_the_agent_goes_on(things, hushed):
    bench = bench_with(hushed)
    first, *later = (about(thing, bench) for thing in things)

    async def live():
        bench.written = first.status
        bench.restart()
        for thing in later:
            attend(bench, thing)
            bench.clock.advance(70)
            bench.agent.reread()
            bench.agent.advance()
        # Started again with what somebody may have written since.
        bench.written = later[-1].status
        bench.restart()
        attend(bench, later[-1])

    asyncio.run(live())


def test_the_objects_speak_of_the_gpus_that_are_there():
    """Else the test above would be about nothing."""
    bench = bench_with(())
    thing = about(instaslice_with_promises(), bench)
    attend(bench, thing)
    assert len(bench.driver.slices(bench.gpus[1])) >= 2


def instaslice_with_promises():
    return next(each for each in valid().instaslices if each.spec.allocations)


@given(nodes())
@MANY
def test_whatever_a_node_says_is_read_or_refused_in_words(node):
    try:
        correction(node.status, advertised([A30]))
    except InstasliceError as error:
        assert str(error)
