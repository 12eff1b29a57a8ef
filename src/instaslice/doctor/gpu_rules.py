"""Rules about GPUs: which allocation holds which placement, and whether they can exist together."""

from collections.abc import Iterator
from itertools import combinations

from instaslice.api.instaslice import Instaslice, PreparedSlice, SliceState
from instaslice.api.summary import holds_slot
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.observed_cluster import HeldAllocation, ObservedCluster, allocations_of, object_name
from instaslice.doctor.readable import geometries
from instaslice.geometry import Placement, States


def no_overlap(cluster: ObservedCluster) -> Iterator[Finding]:
    running = {pod.metadata.uid for pod in cluster.running}
    for instaslice in cluster.instaslices:
        name = object_name(instaslice)
        present = [held for held in allocations_of(instaslice) if not held.slice_deleted]
        for one, two in combinations(present, 2):
            if one.allocation.gpu == two.allocation.gpu and one.mask & two.mask:
                message = f"{one} and {two} overlap: delete one of the two pods"
                yield Finding(Invariant.NO_OVERLAP, name, message)
        for foreign in instaslice.status.slices:
            if foreign.state is not SliceState.FOREIGN:
                continue
            for held in present:
                if held.allocation.gpu == foreign.gpu and held.mask & _placement(foreign).mask:
                    message = (
                        f"the foreign slice {foreign.id} overlaps {held}: destroy it on the node "
                        "(nvidia-smi mig), or delete the pod so that it is placed elsewhere"
                    )
                    # A failed create can leave a slice, foreign until the agent has destroyed it.
                    transient = not held.created and held.allocation.pod.uid not in running
                    yield Finding(Invariant.NO_OVERLAP, name, message, transient=transient)


def legal_layout(cluster: ObservedCluster) -> Iterator[Finding]:
    for instaslice in cluster.instaslices:
        states = geometries(instaslice)
        for gpu in instaslice.status.gpus:
            present = [
                held
                for held in allocations_of(instaslice)
                if held.allocation.gpu == gpu.uuid and not held.slice_deleted
            ]
            if not present or gpu.model not in states:
                continue
            yield from _illegal_layout(instaslice, gpu.uuid, states[gpu.model], present)


def _illegal_layout(
    instaslice: Instaslice, gpu: str, states: States, present: list[HeldAllocation]
) -> Iterator[Finding]:
    name = object_name(instaslice)
    indexes = []
    for held in present:
        a = held.allocation
        index = states.placement(a.profile, a.start)
        if index is None or states.placements[index].size != a.size:
            message = f"{held} cannot exist: no such profile, start or size ({a.size}) on this GPU; delete the pod"
            yield Finding(Invariant.LEGAL_LAYOUT, name, message)
        else:
            indexes.append(index)
    overlap = any(states.masks[one] & states.masks[two] for one, two in combinations(indexes, 2))
    if len(indexes) == len(present) and not overlap and states.state(indexes) < 0:
        listed = ", ".join(str(states.placements[index]) for index in sorted(indexes))
        message = f"{gpu} cannot hold {listed} together: more compute slices or engines than it has; delete one pod"
        yield Finding(Invariant.LEGAL_LAYOUT, name, message)


def slice_exists(cluster: ObservedCluster) -> Iterator[Finding]:
    running = {pod.metadata.uid for pod in cluster.running}
    for held in cluster.allocations:
        a, prepared = held.allocation, held.prepared
        if held.deleting or a.pod.uid not in running:
            continue
        if not held.created:
            state = f"is {prepared.state}: {prepared.reason}" if prepared else "is not reported by the agent"
            message = f"the slice of {held} {state}; delete the pod, it cannot use a GPU"
            # The controller reacts to a loss that has a reason.
            transient = prepared is not None and prepared.state is SliceState.FAILED and bool(prepared.reason)
        elif prepared is not None and (prepared.gpu, _placement(prepared)) != (
            a.gpu,
            Placement(a.profile, a.start, a.size),
        ):
            message = f"the slice of {held} is {prepared.profile} at {prepared.start} of {prepared.gpu}; delete the pod"
            transient = False
        else:
            continue
        transient = transient or not cluster.node_ready(held.node)
        yield Finding(Invariant.SLICE_EXISTS, f"instaslice {held.node}", message, transient=transient)


def slice_owned(cluster: ObservedCluster) -> Iterator[Finding]:
    for instaslice in cluster.instaslices:
        allocated = {each.id for each in instaslice.spec.allocations}
        for prepared in instaslice.status.slices:
            if prepared.id in allocated or prepared.state is SliceState.FOREIGN or not holds_slot(prepared):
                continue
            what = f"slice {prepared.id} ({_placement(prepared)} of {prepared.gpu}, {prepared.state})"
            # The agent has not seen the latest spec, or is destroying the slice.
            behind = instaslice.status.observed_generation < instaslice.metadata.generation
            transient = behind or prepared.state is SliceState.DELETING
            remedy = "" if transient else ", and its agent does not report it as foreign: restart the agent"
            message = f"{what} belongs to no allocation{remedy}"
            yield Finding(Invariant.SLICE_OWNED, object_name(instaslice), message, transient=transient)


def _placement(prepared: PreparedSlice) -> Placement:
    return Placement(prepared.profile, prepared.start, prepared.size)
