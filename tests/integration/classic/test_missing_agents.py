"""The agent of nodes without a kubelet is killed while nothing is ordered: they get no new pods until it is back."""

import asyncio

import msgspec
from stage import pod
from test_status_live import status

from instaslice.api import names
from instaslice.kube.core import LEASES
from instaslice.kube.meta import Key
from instaslice.local.operator import AGENT

LEASE = Key(names.NAMESPACE, names.EMULATION)
SAID = f"its agent does not run: nobody renews lease {names.EMULATION}"


async def test_a_node_whose_agent_is_gone_gets_no_new_pod_until_it_is_back(sliced, client, stage):
    node = await stage.node()
    await stage.create(pod("runs"))
    await stage.running("runs")
    (held,) = stage.held("runs")
    sliced.kill(AGENT)
    try:
        # The Lease says how long it holds, so the story need not take 20 s.
        await client.merge(LEASES, LEASE, {"spec": {"leaseDurationSeconds": 1}}, manager="test")
        text, _, code = await status(sliced.kubeconfig, "--node", node, "-o", "json")
        (shown,) = msgspec.json.decode(text)["nodes"]
        assert (code, shown["out_of_use"]) == (0, SAID)
        await stage.create(pod("waits"))
        assert f"out of use: node {node} ({SAID})" in await stage.waits("waits")
        assert not stage.held("waits")
    finally:
        await asyncio.to_thread(sliced.start, AGENT)
    await stage.running("waits", "runs")
    assert [each.id for each in stage.held("runs")] == [held.id], "it was left alone"
