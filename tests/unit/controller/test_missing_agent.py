"""A node whose agent is gone while nothing is ordered there: it gets no new pod, and what runs there is left alone."""

from dataclasses import replace

import msgspec
import pytest
from small_worlds import allocation, instaslice, node, pod
from small_worlds import world as objects
from world import why

from instaslice.agent.resources import advertised
from instaslice.api import names
from instaslice.api.names import GATE, REQUESTED
from instaslice.controller.explain import Explainer
from instaslice.controller.fleet_status import fleet_status
from instaslice.geometry import models
from instaslice.kube.core import Lease, LeaseSpec
from instaslice.kube.heartbeat import DURATION_SECONDS, RENEW_SECONDS
from instaslice.kube.meta import ObjectMeta
from instaslice.placement import policies

LEASE = names.EMULATION


def offer(world, name, *, slices):
    """What the kubelet says of our resources, with or without a device plugin."""
    found = world.nodes[name]
    ours = advertised([models.named("A100-40GB")])
    amounts = {**found.status.allocatable, **{each: count if slices else "0" for each, count in ours.items()}}
    world.change_node(msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, allocatable=amounts)))


def renew(world):
    version = str(next(world.numbers))
    meta = ObjectMeta(namespace=names.NAMESPACE, name=LEASE, resource_version=version, uid="lease")
    spec = LeaseSpec(holder_identity="agent", lease_duration_seconds=DURATION_SECONDS, renew_time=version)
    world.controller.leases.upsert(Lease(metadata=meta, spec=spec))
    world.settle()


@pytest.fixture
def served(world):
    """A world whose node is served by an agent that renews a Lease."""
    world.report("a", lease=LEASE)
    renew(world)
    return world


def test_a_node_whose_device_plugin_is_gone_gets_no_pod_and_the_pod_is_told_why(world):
    offer(world, "a", slices=False)
    uid = world.add_pod("1g.5gb")
    world.settle()
    assert not world.spec("a").allocations
    message = why(world, uid).message
    assert "node a (its agent does not run: the node offers no gpu.das.com/mig-*" in message
    assert "ask for less" not in message, "the node would hold it"


def test_pods_are_placed_at_once_when_it_is_back_and_those_that_run_are_left_alone(world):
    running = world.add_pod("1g.5gb")
    world.settle()
    offer(world, "a", slices=False)
    waiting = world.add_pod("1g.5gb")
    world.wait(1000)
    assert world.running() == [running]
    assert why(world, running).ready
    offer(world, "a", slices=True)
    world.settle()
    assert sorted(world.running()) == sorted([running, waiting])


def test_within_the_grace_period_nothing_changes(served):
    served.wait(DURATION_SECONDS - 1)
    uid = served.add_pod("1g.5gb")
    served.settle()
    assert served.running() == [uid]


def test_a_node_whose_lease_is_not_renewed_gets_no_pod_until_it_is(served):
    served.wait(DURATION_SECONDS)
    uid = served.add_pod("1g.5gb")
    served.settle()
    assert not served.spec("a").allocations
    assert f"node a (its agent does not run: nobody renews lease {LEASE})" in why(served, uid).message
    renew(served)
    assert served.running() == [uid]


def test_renewals_are_judged_by_when_they_are_seen_whatever_they_say(served):
    for _ in range(10):
        served.wait(RENEW_SECONDS)
        renew(served)
    uid = served.add_pod("1g.5gb")
    served.settle()
    assert served.running() == [uid]


def test_a_controller_that_is_started_gives_the_agent_its_full_time(served):
    served.wait(DURATION_SECONDS)
    served.begin()
    renew(served)
    uid = served.add_pod("1g.5gb")
    served.settle()
    assert served.running() == [uid]


def test_where_the_lease_is_deleted_nothing_is_said_of_the_agent(served):
    served.wait(DURATION_SECONDS)
    (lease,) = served.controller.leases
    served.controller.leases.remove(lease)
    uid = served.add_pod("1g.5gb")
    served.settle()
    assert served.running() == [uid]


def test_other_nodes_are_not_affected(served):
    served.add_node("b")
    served.wait(DURATION_SECONDS)
    uid = served.add_pod("1g.5gb")
    served.settle()
    assert served.on(uid) == "b"


def waits():
    found = pod("w", "1g.5gb", gates=[GATE])
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, annotations={REQUESTED: "{}"})
    )


def leased(thing):
    return msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, lease=LEASE))


NOTHING = {"gpu.das.com/mem": "0"} | dict.fromkeys(
    (f"{names.RESOURCE}{each}" for each in ("1g.5gb", "1g.5gb.me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "any")),
    "0",
)
GONE = {**NOTHING, f"{names.RESOURCE}7g.40gb": None}


@pytest.mark.parametrize(
    "here, said",
    [
        pytest.param(
            objects([waits()], [instaslice()], [node(**GONE)]),
            "its agent does not run: the node offers no gpu.das.com/mig-* (0 allocatable), though its GPUs are healthy",
            id="no device plugin",
        ),
        pytest.param(
            replace(objects([waits()], [leased(instaslice())]), silent_leases=frozenset({LEASE})),
            f"its agent does not run: nobody renews lease {LEASE}",
            id="no renewal",
        ),
    ],
)
def test_status_and_explain_say_so(here, said):
    (found,) = fleet_status(here, policies.named("adaptive")).nodes
    assert found.out_of_use == said
    assert {gpu.out_of_use for gpu in found.gpus} == {said}
    told = Explainer(here, policies.named("adaptive")).explain(here.pods[0])
    assert told.nodes == {said: ["gpu-0"]}
    assert said in told.message


def test_status_says_nothing_of_a_node_whose_agent_runs():
    held = allocation("a", "7g.40gb", 0)
    here = objects([], [leased(instaslice(held))], [node(**GONE)])
    assert fleet_status(here, policies.named("adaptive")).nodes[0].out_of_use == "", "a Lease says more"
