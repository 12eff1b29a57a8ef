"""The rule that agents have reported their nodes: one that never started leaves no Instaslice object to judge.

Which nodes agents run on is known where the chart's DaemonSet may be read; where not, as far as nodes are
labelled by NVIDIA's feature discovery.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.installation import Installation
from instaslice.doctor.installation_kinds import OF_AGENTS, AgentDaemonSet
from instaslice.doctor.observed_cluster import ObservedCluster
from instaslice.doctor.serving import Serving
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import Node
from instaslice.kube.meta import key_of

GPU_PRESENT: Final = {"nvidia.com/gpu.present": "true"}
"""What the chart selects nodes by unless it is told otherwise."""
INTERVAL: Final = 1.0
"""Seconds between two looks for reports."""
MOST_NODES: Final = 3
"""That a message names."""


def nodes_reported(installation: Installation, cluster: ObservedCluster) -> Iterator[Finding]:
    """Every finding may pass: agents that have just been installed report within seconds, and a fleet may have no node
    with GPUs until a node autoscaler adds one."""
    if installation.absent:
        return
    there = {f"instaslice {each.metadata.name}" for each in cluster.instaslices}
    there |= {each.object for each in cluster.unread if each.object.startswith("instaslice ")}
    if not there:
        message = (
            f"there is none: no agent has reported a node, so no pod gets slices; {_remedy(installation, cluster)}"
        )
        yield Finding(Invariant.AGENT_RESPONDS, "instaslices", message, transient=True)
        return
    for agents in installation.agents or ():
        missing = [
            node
            for node in _chosen(agents, cluster.nodes)
            if node.ready and f"instaslice {node.metadata.name}" not in there
        ]
        # A DaemonSet that chooses by affinity or tolerates only some taints may leave these nodes out on purpose.
        if missing and agents.spec.everywhere:
            message = (
                f"no agent has reported {_named(missing)}, which {_have(missing)} the labels that it selects, so "
                f"no pod gets slices there; {_look(installation)}"
            )
            yield Finding(Invariant.AGENT_RESPONDS, f"daemonset {key_of(agents)}", message, transient=True)


async def wait_until_reported(
    client: Client, installation: Installation, serving: Serving, *, deadline: float, clock: Clock
) -> tuple[Serving, list[Finding]]:
    """Look again until every agent has reported its node, or until the deadline by the monotonic clock; what was read
    last, and what is found in it."""
    found = list(nodes_reported(installation, serving.cluster))
    while found and clock.monotonic() < deadline:
        await clock.sleep(INTERVAL)
        serving = await Serving.read(client, clock)
        found = list(nodes_reported(installation, serving.cluster))
    return serving, found


def _remedy(installation: Installation, cluster: ObservedCluster) -> str:
    if not installation.agents:
        labelled = [node for node in cluster.nodes if _has(node, GPU_PRESENT)]
        have = f"{_named(labelled)} {_have(labelled)}" if labelled else "no node has"
        return (
            f"the agent runs on the nodes that its DaemonSet selects, by default by {_written(GPU_PRESENT)}, which "
            f"{have}; {_look(installation)}"
        )
    agents = installation.agents[0]
    if chosen := _chosen(agents, cluster.nodes):
        return f"it should run on {_named(chosen)}; {_look(installation)}"
    labels = _written(agents.spec.node_selector)
    return (
        f"no node has the labels that daemonset {key_of(agents)} selects: label the nodes with GPUs, `kubectl label "
        f"node NODE {labels}`, or select others by the chart's agent.nodeSelector"
    )


def _look(installation: Installation) -> str:
    where = f"-n {installation.lease_key.namespace}"
    return (
        f"see why: `kubectl get daemonsets,pods {where} -l {OF_AGENTS}`, and the log, `kubectl logs {where} -l "
        f"{OF_AGENTS} --prefix`"
    )


def _chosen(agents: AgentDaemonSet, nodes: Sequence[Node]) -> list[Node]:
    return [node for node in nodes if _has(node, agents.spec.node_selector)]


def _has(node: Node, labels: dict[str, str]) -> bool:
    return labels.items() <= node.metadata.labels.items()


def _have(nodes: Sequence[Node]) -> str:
    return "have" if len(nodes) > 1 else "has"


def _written(labels: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _named(nodes: Sequence[Node]) -> str:
    found = sorted(node.metadata.name for node in nodes)
    more = f" and {len(found) - MOST_NODES} more" if len(found) > MOST_NODES else ""
    return f"node{'s' if len(found) > 1 else ''} {', '.join(found[:MOST_NODES])}{more}"
