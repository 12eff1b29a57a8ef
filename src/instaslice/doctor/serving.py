"""Whether the nodes serve: their agents take note of what is reserved there, pods can start, and GPUs are healthy.

No object says when an agent last looked. What it has not taken note of is looked at again some seconds later. While
nothing is ordered, what the node can allocate or a Lease shows that it runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from instaslice.api import names
from instaslice.api.agent_presence import silent_leases
from instaslice.api.instaslice import READY, ConditionStatus, Health, Instaslice, InstasliceCondition
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.observed_cluster import HeldAllocation, ObservedCluster, allocations_of, object_name
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import Node

RESPONSE_SECONDS: Final = 6.0
"""Within which an agent takes note of a spec, several times over."""
RESTART_SECONDS: Final = 60.0
"""Within which a kubelet or a driver that was restarted is back."""
GPUS_READY: Final = "GpusReady"
"""The condition that names the GPUs that are unhealthy or do not answer."""
NO_REASON: Final = "no reason is given; the log of its agent has more"
AGENT_POD: Final = (
    f"`kubectl -n {names.NAMESPACE} get pods -l app.kubernetes.io/component=agent "
    "--field-selector spec.nodeName={node}`"
)
MOST_PODS: Final = 3
MOST_NODES: Final = 3
"""That a message names."""


@dataclass(frozen=True)
class Serving:
    """The cluster now, and the Instaslice objects (by uid) whose agents took note of nothing meanwhile."""

    cluster: ObservedCluster
    silent: frozenset[str] = frozenset()
    silent_leases: frozenset[str] = frozenset()
    """The names of Leases that agents of emulated nodes do not renew any more."""

    @classmethod
    async def read(cls, client: Client, clock: Clock) -> "Serving":
        before = await ObservedCluster.read(client, clock)
        leases = frozenset[str]()
        if any(each.status.lease for each in before.instaslices):
            leases = await silent_leases(client, clock)
        behind = {each.metadata.uid: each for each in before.instaslices if _behind(each)}
        if not behind:
            return cls(before, silent_leases=leases)
        await clock.sleep(RESPONSE_SECONDS)
        now = await ObservedCluster.read(client, clock)
        silent = (
            each.metadata.uid
            for each in now.instaslices
            if each.metadata.uid in behind
            and each.status.observed_generation == behind[each.metadata.uid].status.observed_generation
        )
        return cls(now, frozenset(silent), leases)


def examine_serving(serving: Serving) -> list[Finding]:
    """Everything that is wrong with the nodes, sorted."""
    cluster = serving.cluster
    return sorted([*agent_responds(serving), *agent_runs(serving), *node_serves(cluster), *gpu_healthy(cluster)])


def agent_responds(serving: Serving) -> Iterator[Finding]:
    for instaslice in serving.cluster.instaslices:
        if instaslice.metadata.uid not in serving.silent:
            continue
        node = instaslice.metadata.name
        waiting = [
            held for held in allocations_of(instaslice) if not (held.slice_deleted if held.deleting else held.created)
        ]
        what = f", and the slices of {_pods(waiting)} are not created or destroyed" if waiting else ""
        remedy = (
            "does it run? Its log says why not"
            if serving.cluster.node_ready(node)
            else "its node is gone or not ready: repair the node"
        )
        message = (
            f"its agent has not taken note of its spec for more than {RESPONSE_SECONDS:.0f} s (generation "
            f"{instaslice.metadata.generation}, noted {instaslice.status.observed_generation}){what}; {remedy}"
        )
        # An agent that is replaced by the next version is back within seconds.
        yield Finding(Invariant.AGENT_RESPONDS, object_name(instaslice), message, transient=True)


def agent_runs(serving: Serving) -> Iterator[Finding]:
    """Also where nothing is ordered. A kubelet sets what the node can allocate of our resources to 0 when the agent's
    device plugin is gone; the agent of nodes without a kubelet renews a Lease."""
    yield from _renews(serving)
    for instaslice in serving.cluster.instaslices:
        status, name = instaslice.status, instaslice.metadata.name
        node = serving.cluster.nodes_by_name.get(name)
        if instaslice.metadata.uid in serving.silent or node is None or not node.ready or status.lease:
            continue  # said already, or it says nothing of the agent
        if any(gpu.health is Health.HEALTHY for gpu in status.gpus) and not _offers_slices(node):
            ready = _condition(instaslice, READY)
            if ready is not None and ready.status is ConditionStatus.FALSE:
                continue  # a finding of its own, which knows more
            message = (
                f"its agent is gone: the node has none of {names.RESOURCE}* allocatable, though its GPUs are healthy, "
                f"so no pod with slices starts there; see what ended it: {AGENT_POD.format(node=name)}"
            )
            # A kubelet or an agent that has just been started is not that far yet.
            yield Finding(Invariant.AGENT_RESPONDS, object_name(instaslice), message, transient=True)


def _renews(serving: Serving) -> Iterator[Finding]:
    """One finding for all nodes that an agent serves: there may be a thousand."""
    for lease in sorted(serving.silent_leases):
        nodes = sorted(each.metadata.name for each in serving.cluster.instaslices if each.status.lease == lease)
        if not nodes:
            continue
        more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
        message = (
            f"nobody renews it, so the agent of {', '.join(nodes[:MOST_NODES])}{more} is gone, and no pod with slices "
            "is sent there; start it again (`instaslice up` does), or delete the Lease if an earlier version serves "
            "them"
        )
        yield Finding(Invariant.AGENT_RESPONDS, f"lease {names.NAMESPACE}/{lease}", message)


def _offers_slices(node: Node) -> bool:
    return any(quantity != "0" for name, quantity in node.status.allocatable.items() if name.startswith(names.RESOURCE))


def node_serves(cluster: ObservedCluster) -> Iterator[Finding]:
    """What the agent says of its node: no driver, or a kubelet that does not listen."""
    for instaslice in cluster.instaslices:
        ready = _condition(instaslice, READY)
        if ready is not None and ready.status is ConditionStatus.FALSE:
            message = f"is not ready ({ready.reason}), so no pod with slices starts there: {ready.message or NO_REASON}"
            recent = (cluster.now - ready.last_transition_time).total_seconds() < RESTART_SECONDS
            yield Finding(Invariant.NODE_SERVES, object_name(instaslice), message, transient=recent)


def gpu_healthy(cluster: ObservedCluster) -> Iterator[Finding]:
    """The reason that the driver gives comes with the remedy."""
    for instaslice in cluster.instaslices:
        unhealthy = [gpu for gpu in instaslice.status.gpus if gpu.health is not Health.HEALTHY]
        for gpu in unhealthy:
            held = [
                each for each in allocations_of(instaslice) if each.allocation.gpu == gpu.uuid and not each.deleting
            ]
            has = "has" if len({each.allocation.pod for each in held}) == 1 else "have"
            what = f", and {_pods(held)} {has} slices there" if held else ""
            message = (
                f"GPU {gpu.index} ({gpu.uuid}) is unhealthy, so no slice is created on it{what}: "
                f"{gpu.reason or NO_REASON}"
            )
            yield Finding(Invariant.GPU_HEALTHY, object_name(instaslice), message)
        condition = _condition(instaslice, GPUS_READY)
        if condition is not None and condition.status is ConditionStatus.FALSE and not unhealthy:
            # One that does not answer is not listed: its model is not known.
            message = f"has GPUs that cannot be used ({condition.reason}): {condition.message or NO_REASON}"
            yield Finding(Invariant.GPU_HEALTHY, object_name(instaslice), message)


def _condition(instaslice: Instaslice, name: str) -> InstasliceCondition | None:
    return next((each for each in instaslice.status.conditions if each.type == name), None)


def _behind(instaslice: Instaslice) -> bool:
    return instaslice.status.observed_generation < instaslice.metadata.generation


def _pods(held: Sequence[HeldAllocation]) -> str:
    """The pods of these allocations, the first by name and the others counted."""
    pods = sorted({f"{each.allocation.pod.namespace}/{each.allocation.pod.name}" for each in held})
    more = f" and {len(pods) - MOST_PODS} more" if len(pods) > MOST_PODS else ""
    return f"pod{'s' if len(pods) > 1 else ''} {', '.join(pods[:MOST_PODS])}{more}"
