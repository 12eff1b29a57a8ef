"""Rules about nodes: CPU and memory suffice, capacity is what the GPUs could hold, GPUs of allocations exist."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from instaslice.api import names
from instaslice.api.instaslice import Health, Instaslice
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.observed_cluster import ObservedCluster, object_name
from instaslice.doctor.readable import geometries, node_error, pod_error
from instaslice.doctor.requested import CHECKED, amounts, requested_amounts, requests_slices
from instaslice.geometry import ProfileName, States
from instaslice.kube.core import Node
from instaslice.kube.quantities import humanized as quantity
from instaslice.kube.quantities import whole


def node_suffices(cluster: ObservedCluster) -> Iterator[Finding]:
    """Bound pods count with their requests, pods that are not bound yet with their allocations."""
    ours: dict[str, Counter[str]] = {}
    others: dict[str, Counter[str]] = {}
    for pod in cluster.pods:
        if pod.spec.node_name and not pod.ended and not pod_error(pod):
            side = ours if requests_slices(pod) else others
            side.setdefault(pod.spec.node_name, Counter()).update(requested_amounts(pod))
    for held in cluster.allocations:
        owner = cluster.pods_by_uid.get(held.allocation.pod.uid)
        if owner is not None and not owner.spec.node_name and not owner.ended and not held.deleting:
            reserved = {"cpu": held.allocation.cpu, "memory": held.allocation.memory}
            ours.setdefault(held.node, Counter()).update(reserved)
    for instaslice in cluster.instaslices:
        node = cluster.nodes_by_name.get(instaslice.metadata.name)
        if node is not None and not node_error(node):
            yield from _shortages(
                node, ours.get(node.metadata.name, Counter()), others.get(node.metadata.name, Counter())
            )


def _shortages(node: Node, ours: Counter[str], others: Counter[str]) -> Iterator[Finding]:
    there = amounts(node.status.allocatable)
    for name in CHECKED:
        total = ours[name] + others[name]
        if not ours[name] or total <= there.get(name, 0):
            continue
        message = (
            f"slice pods use or have reserved {quantity(name, ours[name], up=True)} {name}, other pods use "
            f"{quantity(name, others[name], up=True)}, and the node has {quantity(name, there.get(name, 0), up=False)}"
        )
        # Another pod can be bound while the controller reserves; the scheduler then refuses our pod, which is released.
        alone = ours[name] > there.get(name, 0)
        yield Finding(
            Invariant.NODE_SUFFICES,
            object_name(node),
            message + "; delete one of the pods that are not running",
            transient=not alone,
        )


def capacity_true(cluster: ObservedCluster) -> Iterator[Finding]:
    for instaslice in cluster.instaslices:
        node = cluster.nodes_by_name.get(instaslice.metadata.name)
        states = geometries(instaslice)
        if (
            node is None
            or not instaslice.status.gpus
            or node_error(node)
            or any(g.model not in states for g in instaslice.status.gpus)
        ):
            continue
        # A device plugin leaves unhealthy GPUs out, an emulated node does not.
        most, least = _capacity(instaslice, states, healthy=False), _capacity(instaslice, states, healthy=True)
        advertised = {
            name: whole(text)
            for name, text in node.status.capacity.items()
            if name.startswith((names.RESOURCE, names.MEMORY))
        }
        wrong = [
            f"{name} {advertised.get(name, 0)} instead of {most[name]}"
            for name in sorted({*most, *advertised})
            if not least[name] <= advertised.get(name, 0) <= most[name]
        ]
        if wrong:
            message = f"advertises {', '.join(wrong)}; does its agent run?"
            # Until the agent has written it. A kubelet resets it when it restarts.
            yield Finding(Invariant.CAPACITY_TRUE, object_name(node), message, transient=True)


def _capacity(instaslice: Instaslice, states: Mapping[str, States], *, healthy: bool) -> Counter[str]:
    total: Counter[str] = Counter()
    for gpu in instaslice.status.gpus:
        if gpu.health is Health.HEALTHY or not healthy:
            total.update(_most_per_gpu(states[gpu.model]))
    return total


@lru_cache(maxsize=64)
def _most_per_gpu(states: States) -> dict[str, int]:
    """What one GPU could ever hold of each resource."""
    slices = max(map(len, states.layouts))
    most = {f"{names.GROUP}/{ProfileName.parse(profile.name).resource}": 0 for profile in states.profiles}
    for layout in states.layouts:
        counts = Counter(states.placements[index].profile for index in layout)
        for profile, count in counts.items():
            name = f"{names.GROUP}/{ProfileName.parse(profile).resource}"
            most[name] = max(most[name], count)
    return {**most, names.ANY_SLICE: slices, names.MEMORY: states.most_label_gb()}


def hardware_there(cluster: ObservedCluster) -> Iterator[Finding]:
    yield from _reported_twice(cluster)
    for instaslice in cluster.instaslices:
        name = object_name(instaslice)
        if instaslice.metadata.name not in cluster.nodes_by_name:
            # The garbage collector is about to delete it after its node.
            message = "its node does not exist; delete the object"
            yield Finding(Invariant.HARDWARE_THERE, name, message, transient=True)
        there = {gpu.uuid for gpu in instaslice.status.gpus}
        gone = Counter(each.gpu for each in instaslice.spec.allocations if each.gpu not in there)
        for gpu, count in sorted(gone.items()):
            message = f"{count} allocations are on {gpu}, which the node does not have; does the controller run?"
            yield Finding(Invariant.HARDWARE_THERE, name, message, transient=True)


def _reported_twice(cluster: ObservedCluster) -> Iterator[Finding]:
    claims = [(gpu.uuid, each) for each in cluster.instaslices for gpu in each.status.gpus]
    reported: dict[str, str] = {}
    for uuid, instaslice in sorted(claims, key=lambda claim: _precedence(cluster, *claim)):
        other = reported.setdefault(uuid, instaslice.metadata.name)
        if other != instaslice.metadata.name:
            message = (
                f"reports {uuid}, as {other} does, which has slices on it or was first, so nothing is placed on it "
                f"here; if this is that machine under a new name, `kubectl delete node {other}`; otherwise one of the "
                "two is a copy (a cloned image, a forged report): find out which, and take it out of the cluster"
            )
            # Of a node that is gone the object goes as well.
            transient = not cluster.nodes_by_name.keys() >= {other, instaslice.metadata.name}
            yield Finding(Invariant.HARDWARE_THERE, object_name(instaslice), message, transient=transient)


def _precedence(cluster: ObservedCluster, gpu: str, instaslice: Instaslice) -> tuple[bool, bool, float, str]:
    """First whose Node exists, then who has slices of the GPU reserved, then who came first: in this order nodes have a
    GPU that several report."""
    name, created = instaslice.metadata.name, instaslice.metadata.creation_timestamp
    reserved = any(each.gpu == gpu for each in instaslice.spec.allocations)
    return name not in cluster.nodes_by_name, not reserved, created.timestamp() if created else 0.0, name
