"""Whether the nodes serve: agents that take note of nothing, nodes that are not ready, GPUs that are unhealthy."""

from datetime import timedelta

import msgspec
import pytest
from fake_clock import JumpingClock
from memory_server import MemoryServer
from small_worlds import CAPACITY, NOW, allocation, instaslice, node, world

from instaslice.api import names
from instaslice.api.instaslice import (
    INSTASLICES,
    AllocationState,
    ConditionStatus,
    Health,
    InstasliceCondition,
    InstasliceStatus,
)
from instaslice.doctor import Invariant, Serving, examine_serving
from instaslice.doctor.serving import RESPONSE_SECONDS
from instaslice.kube.core import LEASES, NODES, Lease, LeaseSpec
from instaslice.kube.meta import ObjectMeta

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


def saying(thing, condition, status, reason, message="", *, seconds=600):
    """An object whose agent says this, for so long."""
    since = NOW - timedelta(seconds=seconds)
    said = InstasliceCondition(
        type=condition, status=status, reason=reason, message=message, last_transition_time=since
    )
    return changed(thing, status=changed(thing.status, conditions=(said,)))


def unhealthy(thing, index=0):
    gpus = [
        changed(gpu, health=Health.UNHEALTHY, reason="lost") if gpu.index == index else gpu for gpu in thing.status.gpus
    ]
    return changed(thing, status=changed(thing.status, gpus=tuple(gpus)))


def found_in(thing):
    return [(each.invariant, each.message, each.transient) for each in examine_serving(Serving(world([], [thing])))]


@pytest.mark.parametrize("seconds, passing", [(59, True), (61, False)])
def test_a_node_without_a_driver_is_found_and_may_pass_at_first(seconds, passing):
    not_ready = saying(
        instaslice(gpus=()), "Ready", ConditionStatus.FALSE, "NoDriver", "no driver; load it", seconds=seconds
    )
    ((invariant, message, transient),) = found_in(not_ready)
    assert (invariant, transient) == (Invariant.NODE_SERVES, passing)
    assert message.startswith("is not ready (NoDriver), so no pod with slices starts there: no driver; load it")


@pytest.mark.parametrize(
    "held, said",
    [
        pytest.param((), "", id="none"),
        pytest.param(
            (allocation("a", "1g.5gb", 0), allocation("b", "1g.5gb", 1), allocation("c", "1g.5gb", 2, gpu="GPU-1")),
            ", and pods team-a/a, team-a/b have slices there",
            id="two, and another elsewhere",
        ),
        pytest.param(
            (allocation("a", "1g.5gb", 0), allocation("b", "1g.5gb", 1, state=AllocationState.DELETING)),
            ", and pod team-a/a has slices there",
            id="one, and one that is going",
        ),
        pytest.param(
            tuple(allocation(name, "1g.5gb", at) for at, name in enumerate("abcde")),
            ", and pods team-a/a, team-a/b, team-a/c and 2 more have slices there",
            id="more than are named",
        ),
    ],
)
def test_an_unhealthy_gpu_is_found_with_the_pods_that_hold_it(held, said):
    ((invariant, message, transient),) = found_in(unhealthy(instaslice(*held)))
    assert (invariant, transient) == (Invariant.GPU_HEALTHY, False)
    assert message == f"GPU 0 (GPU-0) is unhealthy, so no slice is created on it{said}: lost"


def test_a_gpu_that_does_not_answer_is_found_in_the_condition_and_an_unhealthy_one_only_once():
    silent = saying(instaslice(), "GpusReady", ConditionStatus.FALSE, "Hung", "GPU 2 does not answer")
    assert [message for _, message, _ in found_in(silent)] == [
        "has GPUs that cannot be used (Hung): GPU 2 does not answer"
    ]
    assert len(found_in(unhealthy(silent))) == 1


def test_a_node_that_serves_is_well():
    for condition in ("Ready", "GpusReady"):
        assert found_in(saying(instaslice(), condition, ConditionStatus.TRUE, "Fine")) == []


def leased(thing):
    return changed(thing, status=changed(thing.status, lease=names.EMULATION))


NONE_OFFERED = {each: "0" for each in CAPACITY if each.startswith(names.GROUP)}


def agents_of(thing, *, silent=(), ready=True, **capacity):
    here = world([], [thing], [node(ready=ready, **capacity)])
    return [
        (each.message, each.transient)
        for each in examine_serving(Serving(here, silent_leases=frozenset(silent)))
        if each.invariant is Invariant.AGENT_RESPONDS
    ]


def test_an_agent_that_is_gone_while_nothing_is_ordered_is_found_by_what_its_node_offers():
    ((message, transient),) = agents_of(instaslice(), **NONE_OFFERED)
    assert message.startswith("its agent is gone: the node has none of gpu.das.com/mig-* allocatable")
    assert "--field-selector spec.nodeName=gpu-0" in message
    assert transient, "it may be about to start"


def test_an_agent_of_emulated_nodes_that_is_gone_is_found_by_its_lease():
    things = [leased(instaslice(name=f"gpu-{number}")) for number in range(5)]
    here = world([], [*things, instaslice(name="real")], [node(f"gpu-{number}") for number in range(5)])
    (found,) = examine_serving(Serving(here, silent_leases=frozenset({names.EMULATION})))
    assert (found.invariant, found.object) == (
        Invariant.AGENT_RESPONDS,
        "lease instaslice-system/instaslice-emulation",
    )
    assert "so the agent of gpu-0, gpu-1, gpu-2 and 2 more is gone" in found.message
    assert not found.transient


@pytest.mark.parametrize(
    "thing, facts",
    [
        pytest.param(instaslice(), {}, id="it runs"),
        pytest.param(leased(instaslice()), NONE_OFFERED, id="a Lease that is renewed says more"),
        pytest.param(instaslice(), {"silent": [names.EMULATION]}, id="the Lease is that of other nodes"),
        pytest.param(instaslice(gpus=()), NONE_OFFERED, id="a node without GPUs"),
        pytest.param(instaslice(), {"ready": False, **NONE_OFFERED}, id="the node is not ready"),
    ],
)
def test_no_agent_is_called_gone_without_a_sign(thing, facts):
    assert agents_of(thing, **facts) == []


def test_what_the_agent_says_of_its_kubelet_is_not_said_twice():
    silent = saying(instaslice(), "Ready", ConditionStatus.FALSE, "KubeletSilent", "no kubelet listens")
    assert agents_of(silent, **NONE_OFFERED) == []


@pytest.mark.parametrize(
    "renewed, found",
    [
        pytest.param(True, [], id="renewed while it is looked at: clocks differ"),
        pytest.param(False, ["lease instaslice-system/instaslice-emulation"], id="not renewed"),
    ],
)
async def test_a_lease_that_has_run_out_by_our_clock_is_looked_at_again(renewed, found):
    server = ordered(observed=1)
    server.put(INSTASLICES, leased(instaslice()))

    def renew(at="2020-01-01T00:00:00.000000Z"):
        spec = LeaseSpec(holder_identity="agent", lease_duration_seconds=20, renew_time=at)
        meta = ObjectMeta(namespace=names.NAMESPACE, name=names.EMULATION)
        server.put(LEASES, Lease(metadata=meta, spec=spec))

    renew()
    there, _ = await examined(server, meanwhile=lambda: renew("2020-01-01T00:00:05.000000Z") if renewed else None)
    assert [each.object for each in there if each.invariant is Invariant.AGENT_RESPONDS] == found
