"""Rules about GPUs: who holds which place, and whether that can be."""

from collections.abc import Iterator
from itertools import combinations

from instaslice.api.instaslice import AllocationState, Instaslice, PreparedSlice, SliceState
from instaslice.api.summary import holds_slot
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.readable import geometries
from instaslice.doctor.world import Held, World, held_on
from instaslice.geometry import Placement, States

RUNNING = (AllocationState.CREATED, AllocationState.UNGATED)


def no_overlap(world: World) -> Iterator[Finding]:
    for thing in world.instaslices:
        name = f"instaslice {thing.metadata.name}"
        present = [held for held in held_on(thing) if not held.gone]
        for one, two in combinations(present, 2):
            if one.allocation.gpu == two.allocation.gpu and _mask(one) & _mask(two):
                words = f"{one} and {two} overlap: delete one of the two pods"
                yield Finding(invariant=Invariant.NO_OVERLAP, object=name, words=words)
        for foreign in thing.status.slices:
            if foreign.state is not SliceState.FOREIGN:
                continue
            for held in present:
                if held.allocation.gpu == foreign.gpu and _mask(held) & _placement(foreign).mask:
                    words = (
                        f"the foreign slice {foreign.id} lies where {held} was promised: destroy it on the node "
                        "(nvidia-smi mig), or delete the pod so that it is placed elsewhere"
                    )
                    # What a failed create left is foreign until the agent has removed it.
                    passing = held.allocation.state not in RUNNING
                    yield Finding(invariant=Invariant.NO_OVERLAP, object=name, words=words, passing=passing)


def legal_layout(world: World) -> Iterator[Finding]:
    for thing in world.instaslices:
        states = geometries(thing)
        for gpu in thing.status.gpus:
            present = [held for held in held_on(thing) if held.allocation.gpu == gpu.uuid and not held.gone]
            if not present or gpu.model not in states:
                continue
            yield from _layout(thing, gpu.uuid, states[gpu.model], present)


def _layout(thing: Instaslice, gpu: str, states: States, present: list[Held]) -> Iterator[Finding]:
    name = f"instaslice {thing.metadata.name}"
    indexes = []
    for held in present:
        a = held.allocation
        index = states.placement(a.profile, a.start)
        if index is None or states.placements[index].size != a.size:
            words = f"{held} cannot exist: no such profile, start or size ({a.size}) on this GPU; delete the pod"
            yield Finding(invariant=Invariant.LEGAL_LAYOUT, object=name, words=words)
        else:
            indexes.append(index)
    overlap = any(states.masks[one] & states.masks[two] for one, two in combinations(indexes, 2))
    if len(indexes) == len(present) and not overlap and states.state(indexes) < 0:
        listed = ", ".join(str(states.placements[index]) for index in sorted(indexes))
        words = f"{gpu} cannot hold {listed} together: more compute slices or engines than it has; delete one pod"
        yield Finding(invariant=Invariant.LEGAL_LAYOUT, object=name, words=words)


def slice_exists(world: World) -> Iterator[Finding]:
    running = {pod.metadata.uid for pod in world.running}
    for held in world.held:
        a, made = held.allocation, held.made
        # The state in the spec is written after the gate is gone: a pod past its gate counts for itself.
        if held.leaving or not (a.state in RUNNING or a.pod.uid in running):
            continue
        if not held.created:
            state = f"is {made.state}: {made.reason}" if made else "is not reported by the agent"
            words = f"the slice of {held} {state}; delete the pod, it cannot use a GPU"
            # The controller hears of a loss by its reason, and acts.
            passing = made is not None and made.state is SliceState.FAILED and bool(made.reason)
        elif made is not None and (made.gpu, made.profile, made.start, made.size) != (
            a.gpu,
            a.profile,
            a.start,
            a.size,
        ):
            words = f"the slice of {held} is {made.profile} at {made.start} of {made.gpu}; delete the pod"
            passing = False
        else:
            continue
        passing = passing or not world.well(held.node)
        yield Finding(invariant=Invariant.SLICE_EXISTS, object=f"instaslice {held.node}", words=words, passing=passing)


def slice_owned(world: World) -> Iterator[Finding]:
    for thing in world.instaslices:
        promised = {each.id for each in thing.spec.allocations}
        for made in thing.status.slices:
            if made.id in promised or made.state is SliceState.FOREIGN or not holds_slot(made):
                continue
            words = f"slice {made.id} ({_placement(made)} of {made.gpu}, {made.state}) belongs to no allocation"
            # The agent has not heard yet, or is at it.
            behind = thing.status.observed_generation < thing.metadata.generation
            passing = behind or made.state is SliceState.DELETING
            words += "" if passing else ", and its agent does not call it foreign: restart the agent"
            yield Finding(
                invariant=Invariant.SLICE_OWNED,
                object=f"instaslice {thing.metadata.name}",
                words=words,
                passing=passing,
            )


def _mask(held: Held) -> int:
    a = held.allocation
    return Placement(a.profile, a.start, a.size).mask


def _placement(made: PreparedSlice) -> Placement:
    return Placement(made.profile, made.start, made.size)
