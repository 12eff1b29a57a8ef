"""Rules about pods: each holds the slices that it requests, on its node, and a waiting pod says why it waits."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from instaslice.api import names
from instaslice.api.instaslice import Allocation, SliceState
from instaslice.api.summary import holds_slot
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.observed_cluster import HeldAllocation, ObservedCluster, object_name
from instaslice.doctor.readable import pod_error
from instaslice.doctor.requested import gated, gates, requested_memory, requested_slices, requests_slices
from instaslice.geometry import ProfileName
from instaslice.kube.core import Pod
from instaslice.kube.meta import key_of

CONDITION_EXPECTED = timedelta(seconds=30)
"""The age at which a waiting pod must have its condition."""


def pod_exists(cluster: ObservedCluster) -> Iterator[Finding]:
    for uid, all_held in cluster.allocations_by_pod.items():
        pod = cluster.pods_by_uid.get(uid)
        if pod is not None and not pod.ended:
            continue
        held = all_held[0]
        what = "is gone" if pod is None else f"has ended ({pod.status.phase})"
        message = f"its pod {what} and its slices are still held: {held}; does the controller run?"
        # Until the controller sees it.
        yield Finding(Invariant.POD_EXISTS, f"instaslice {held.node}", message, transient=True)


def uuid_matches(cluster: ObservedCluster) -> Iterator[Finding]:
    for pod in cluster.running:
        all_held = cluster.allocations_by_pod.get(pod.metadata.uid, [])
        reported = [held.prepared.mig_uuid for held in all_held if held.prepared is not None and held.created]
        if not all_held or len(reported) != len(all_held):
            continue  # found by other rules
        annotated = uuids(pod)
        if sorted(annotated) != sorted(each or "" for each in reported):
            message = (
                f"was given {', '.join(annotated) or 'no slice'} by its annotation {names.MIG_UUIDS}, "
                f"but its slices are {', '.join(map(str, reported))}; delete the pod"
            )
            yield Finding(Invariant.UUID_MATCHES, object_name(pod), message)


def uuid_once(cluster: ObservedCluster) -> Iterator[Finding]:
    owner: dict[str, Pod] = {}
    for pod in cluster.running:
        for uuid in uuids(pod):
            other = owner.setdefault(uuid, pod)
            if other is not pod:
                message = f"shares the slice {uuid} with pod {key_of(other)}; delete one of them"
                yield Finding(Invariant.UUID_ONCE, object_name(pod), message)
    seen: dict[str, str] = {}
    for instaslice in cluster.instaslices:
        for prepared in instaslice.status.slices:
            if prepared.mig_uuid is None or not holds_slot(prepared):
                continue
            before = seen.setdefault(prepared.mig_uuid, prepared.id)
            if before != prepared.id:
                message = (
                    f"slices {before} and {prepared.id} have the same MIG UUID {prepared.mig_uuid}; restart the agent"
                )
                yield Finding(Invariant.UUID_ONCE, object_name(instaslice), message)


def pod_has_slices(cluster: ObservedCluster) -> Iterator[Finding]:
    for pod in cluster.running:
        if pod_error(pod):
            continue  # what it should hold is unknown
        requested = requested_slices(pod)
        all_held = [held.allocation for held in cluster.allocations_by_pod.get(pod.metadata.uid, [])]
        has = Counter(each.profile for each in all_held if not each.asked_gb)
        if message := _too_little(pod, [each for each in all_held if each.asked_gb]):
            yield Finding(Invariant.POD_HAS_SLICES, object_name(pod), message, transient=_transient(cluster, pod))
        if requested == has:
            continue
        message = f"is past its gate, asked for {_listed(requested)} and holds {_listed(has)}; delete the pod"
        yield Finding(Invariant.POD_HAS_SLICES, object_name(pod), message, transient=_transient(cluster, pod))


def _too_little(pod: Pod, by_memory: list[Allocation]) -> str:
    """Where a container holds less than it asked for by memory; more is no fault."""
    holds = {each.container: each.profile for each in by_memory}
    less = [
        f"container {container} asked for {gb} GB and holds {holds.get(container, 'nothing')}"
        for container, gb in sorted(requested_memory(pod).items())
        if container not in holds or ProfileName.parse(holds[container]).gb < gb
    ]
    return f"is past its gate, but {', '.join(less)}; delete the pod" if less else ""


def _transient(cluster: ObservedCluster, pod: Pod) -> bool:
    """The pod is about to go, or the controller is about to restore the allocations of the slices that it uses."""
    node = pod.spec.node_name
    if pod.metadata.deletion_timestamp is not None or (node and not cluster.node_ready(node)):
        return True
    instaslice = cluster.instaslices_by_name.get(node)
    if node and instaslice is None:
        return True
    slices = instaslice.status.slices if instaslice else ()
    foreign = {prepared.mig_uuid for prepared in slices if prepared.state is SliceState.FOREIGN}
    annotated = uuids(pod)
    return bool(annotated) and foreign.issuperset(annotated)


def pod_remembered(cluster: ObservedCluster) -> Iterator[Finding]:
    for pod in cluster.pods:
        if not requests_slices(pod) or gates(pod) != [names.GATE] or pod.ended or pod.metadata.deletion_timestamp:
            continue
        condition = pod.condition(names.SLICE_READY)
        if condition is not None and condition.status == "False":
            continue
        created = pod.metadata.creation_timestamp
        if condition is None and (created is None or cluster.now - created < CONDITION_EXPECTED):
            continue
        said = "says nothing of what it waits for" if condition is None else "says that its slices are ready"
        message = f"is gated and {said}; does the controller run?"
        # Gate and condition are two writes.
        transient = condition is not None
        yield Finding(Invariant.POD_REMEMBERED, object_name(pod), message, transient=transient)


def right_node(cluster: ObservedCluster) -> Iterator[Finding]:
    for uid, all_held in cluster.allocations_by_pod.items():
        pod = cluster.pods_by_uid.get(uid)
        if pod is None or pod.ended:
            continue
        for message in _misplaced(pod, all_held):
            yield Finding(Invariant.RIGHT_NODE, object_name(pod), message)


def _misplaced(pod: Pod, all_held: list[HeldAllocation]) -> Iterator[str]:
    nodes = sorted({held.node for held in all_held})
    if len(nodes) > 1:
        yield f"has slices on several nodes: {', '.join(nodes)}; delete the pod"
    elif gated(pod):
        return
    elif pod.spec.node_name and pod.spec.node_name != nodes[0]:
        yield f"runs on node {pod.spec.node_name}, but its slices are on {nodes[0]}; delete the pod"
    elif not pod.spec.node_name and nodes[0] not in _pinned(pod):
        yield f"is past its gate and not pinned to {nodes[0]}, where its slices are; delete the pod"


def _pinned(pod: Pod) -> set[str]:
    """The nodes that the pod's affinity names, where every term names some."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity.required if affinity else None
    found: set[str] = set()
    for term in (required.node_selector_terms or ()) if required else ():
        named_here = [
            value
            for each in term.match_fields or ()
            if (each.key, each.operator) == ("metadata.name", "In")
            for value in each.values or ()
        ]
        if not named_here:
            return set()
        found.update(named_here)
    return found


def uuids(pod: Pod) -> list[str]:
    """The MIG UUIDs in the pod's annotation."""
    return [each for each in pod.metadata.annotations.get(names.MIG_UUIDS, "").split(",") if each]


def _listed(profiles: Counter[str]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(profiles.items())) or "nothing"
