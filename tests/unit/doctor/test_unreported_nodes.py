"""Nodes that no agent has reported: what is found where there is no Instaslice object to judge."""

from dataclasses import replace

import msgspec
import pytest
from fake_clock import FakeClock, JumpingClock
from installations import installation, webhook
from memory_server import MemoryServer
from small_worlds import instaslice, node, world

from instaslice.api.instaslice import INSTASLICES
from instaslice.api.snapshot import UnreadObject
from instaslice.doctor import Invariant, Serving, nodes_reported, wait_until_reported
from instaslice.doctor.dry_run import DryRuns
from instaslice.doctor.installation import Installation
from instaslice.doctor.installation_kinds import WEBHOOKS, AgentDaemonSet
from instaslice.kube.core import NODES

PRESENT = {"nvidia.com/gpu.present": "true"}
EVERYWHERE = [{"operator": "Exists"}]


def labelled(name, ready=True, **labels):
    there = node(name, ready=ready)
    return msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, labels=labels))


def with_gpus(name, ready=True):
    return labelled(name, ready, **PRESENT)


def daemon_set(selector=PRESENT, tolerations=EVERYWHERE, affinity=None):
    pod = {"nodeSelector": selector, "tolerations": tolerations, "affinity": affinity}
    metadata = {"namespace": "instaslice-system", "name": "instaslice-agent"}
    return msgspec.convert({"metadata": metadata, "spec": {"template": {"spec": pod}}}, AgentDaemonSet)


def found_in(nodes, reported=(), *, unread=(), **fields):
    cluster = replace(world([], [instaslice(name=each) for each in reported], nodes), unread=unread)
    return list(nodes_reported(installation(**fields), cluster))


@pytest.mark.parametrize(
    "agents, nodes, said",
    [
        pytest.param(
            [daemon_set()],
            [node("cpu-0")],
            "no node has the labels that daemonset instaslice-system/instaslice-agent selects: label the nodes with "
            "GPUs, `kubectl label node NODE nvidia.com/gpu.present=true`",
            id="no node is selected",
        ),
        pytest.param(
            [daemon_set({"pool": "a100", "gpu": "yes"})],
            [with_gpus("gpu-0")],
            "`kubectl label node NODE gpu=yes pool=a100`, or select others by the chart's agent.nodeSelector",
            id="by labels of its own",
        ),
        pytest.param(
            [daemon_set()],
            [with_gpus("gpu-0"), node("cpu-0")],
            "it should run on node gpu-0; see why: `kubectl get daemonsets,pods -n instaslice-system -l "
            "app.kubernetes.io/component=agent`, and the log, `kubectl logs -n instaslice-system -l "
            "app.kubernetes.io/component=agent --prefix`",
            id="its agent does not start",
        ),
        pytest.param(
            [daemon_set()],
            [with_gpus(f"gpu-{each}") for each in range(5)],
            "it should run on nodes gpu-0, gpu-1, gpu-2 and 2 more; see why",
            id="none of many starts",
        ),
        pytest.param(
            None,
            [node("cpu-0")],
            "selects, by default by nvidia.com/gpu.present=true, which no node has; see why: `kubectl get daemonsets",
            id="the DaemonSet may not be read, and no node has the default label",
        ),
        pytest.param(
            [],
            [with_gpus("gpu-0")],
            "by default by nvidia.com/gpu.present=true, which node gpu-0 has; see why",
            id="there is no DaemonSet, and a node has the label",
        ),
    ],
)
def test_where_no_agent_has_reported_a_node_the_finding_says_which_nodes_should_have_one(agents, nodes, said):
    (found,) = found_in(nodes, agents=agents)
    assert (found.invariant, found.object, found.transient) == (Invariant.AGENT_RESPONDS, "instaslices", True)
    assert found.message.startswith("there is none: no agent has reported a node, so no pod gets slices; ")
    assert said in found.message


def test_some_nodes_that_are_selected_and_not_reported_are_one_finding():
    nodes = [*map(with_gpus, ("gpu-0", "gpu-1", "gpu-2")), node("cpu-0")]
    (found,) = found_in(nodes, ["gpu-0"], agents=[daemon_set()])
    assert found.object == "daemonset instaslice-system/instaslice-agent"
    assert found.message.startswith("no agent has reported nodes gpu-1, gpu-2, which have the labels that it selects")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"reported": ["gpu-0", "gpu-1"], "agents": [daemon_set()]}, id="all have reported"),
        pytest.param({"agents": [daemon_set({"pool": "a100"})]}, id="the other is not selected"),
        pytest.param({"agents": None}, id="which are selected is not known"),
        pytest.param({"agents": []}, id="nodes that `up` emulates"),
        pytest.param({"agents": [daemon_set(affinity={"nodeAffinity": {}})]}, id="affinity may leave it out"),
        pytest.param({"agents": [daemon_set(tolerations=[])]}, id="a taint may keep it off"),
        pytest.param({"agents": [daemon_set()], "nodes": [with_gpus("gpu-1", ready=False)]}, id="it is not ready"),
        pytest.param(
            {"agents": [daemon_set()], "unread": [UnreadObject("instaslice gpu-1", "does not decode")]},
            id="its object cannot be read, which is said",
        ),
        pytest.param({"reported": [], "webhooks": [], "policies": [], "leases": []}, id="it is not installed"),
    ],
)
def test_nothing_is_found_where(more):
    given = {"nodes": [with_gpus("gpu-0"), with_gpus("gpu-1")], "reported": ["gpu-0"], **more}
    assert found_in(**given) == []


async def read(server):
    async def all_well(*_):
        return DryRuns()

    return await Installation.read(server.client(), FakeClock(), all_well)


async def test_the_daemon_set_is_read_where_that_is_allowed_and_not_asked_for_where_not():
    server = MemoryServer()
    server.put(WEBHOOKS, webhook())
    server.refuse("GET", "daemonsets", 403)
    found = await read(server)
    assert (found.agents, found.not_checked) == (None, [])
    server.forget_mishaps()
    assert (await read(server)).agents == []


@pytest.mark.parametrize(
    "seconds, sleeps, left",
    [
        pytest.param(0.0, 0, 1, id="no wait is asked for"),
        pytest.param(2.0, 2, 1, id="the deadline comes first"),
        pytest.param(60.0, 3, 0, id="the agent reports"),
    ],
)
async def test_reports_are_waited_for_until_the_deadline(seconds, sleeps, left):
    server, clock = MemoryServer(), JumpingClock()
    server.put(NODES, with_gpus("gpu-0"))
    sleep = clock.sleep

    async def sleeping(seconds):
        await sleep(seconds)
        if len(clock.slept) == 3:
            server.put(INSTASLICES, instaslice(name="gpu-0"))

    clock.sleep = sleeping
    client = server.client()
    serving, found = await wait_until_reported(
        client, installation(), await Serving.read(client, clock), deadline=clock.monotonic() + seconds, clock=clock
    )
    assert (len(clock.slept), len(found), len(serving.cluster.instaslices)) == (sleeps, left, 1 - left)
