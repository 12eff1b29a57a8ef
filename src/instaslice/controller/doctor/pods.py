"""Rules about pods: what they asked for is what they hold, and none is forgotten."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from instaslice.api import names
from instaslice.api.instaslice import SliceState
from instaslice.api.pods import gated, held_by_others
from instaslice.api.summary import holds_slot
from instaslice.controller.doctor.asked import asked, asks
from instaslice.controller.doctor.findings import Finding, Invariant
from instaslice.controller.doctor.readable import of_pod
from instaslice.controller.doctor.world import Held, World, named
from instaslice.kube.core import Pod
from instaslice.kube.meta import key_of

YOUNG = timedelta(seconds=30)
"""How long a new pod may say nothing about its wait."""


def pod_exists(world: World) -> Iterator[Finding]:
    for uid, all_held in world.held_by.items():
        pod = world.pod_of.get(uid)
        if pod is not None and not pod.ended:
            continue
        held = all_held[0]
        what = "is gone" if pod is None else f"has ended ({pod.status.phase})"
        words = f"its pod {what} and its slices are still held: {held}; does the controller run?"
        # The controller is about to hear of it.
        yield Finding(invariant=Invariant.POD_EXISTS, object=f"instaslice {held.node}", words=words, passing=True)


def uuid_matches(world: World) -> Iterator[Finding]:
    for pod in world.running:
        all_held = world.held_by.get(pod.metadata.uid, [])
        made = [held.made.mig_uuid for held in all_held if held.made is not None and held.created]
        if not all_held or len(made) != len(all_held):
            continue  # told by other rules
        given = uuids(pod)
        if sorted(given) != sorted(each or "" for each in made):
            words = (
                f"was given {', '.join(given) or 'no slice'} by its annotation {names.MIG_UUIDS}, "
                f"but its slices are {', '.join(map(str, made))}; delete the pod"
            )
            yield Finding(invariant=Invariant.UUID_MATCHES, object=named(pod), words=words)


def uuid_once(world: World) -> Iterator[Finding]:
    owner: dict[str, Pod] = {}
    for pod in world.running:
        for uuid in uuids(pod):
            other = owner.setdefault(uuid, pod)
            if other is not pod:
                words = f"shares the slice {uuid} with pod {key_of(other)}; delete one of them"
                yield Finding(invariant=Invariant.UUID_ONCE, object=named(pod), words=words)
    reported: dict[str, str] = {}
    for thing in world.instaslices:
        for made in thing.status.slices:
            if made.mig_uuid is None or not holds_slot(made):
                continue
            before = reported.setdefault(made.mig_uuid, made.id)
            if before != made.id:
                words = f"slices {before} and {made.id} have the same MIG UUID {made.mig_uuid}; restart the agent"
                yield Finding(invariant=Invariant.UUID_ONCE, object=f"instaslice {thing.metadata.name}", words=words)


def pod_has_slices(world: World) -> Iterator[Finding]:
    for pod in world.running:
        if of_pod(pod):
            continue  # nobody can tell what it should have
        wants = asked(pod)
        has = Counter(held.allocation.profile for held in world.held_by.get(pod.metadata.uid, []))
        if wants == has:
            continue
        words = f"is past its gate, asked for {_listed(wants)} and holds {_listed(has)}; delete the pod"
        yield Finding(invariant=Invariant.POD_HAS_SLICES, object=named(pod), words=words, passing=_drifting(world, pod))


def _drifting(world: World, pod: Pod) -> bool:
    """The pod is about to go, or the controller about to promise it again what it holds."""
    node = pod.spec.node_name
    if pod.metadata.deletion_timestamp is not None or (node and not world.well(node)):
        return True
    thing = world.instaslice_of.get(node)
    if node and thing is None:
        return True
    foreign = {made.mig_uuid for made in thing.status.slices if made.state is SliceState.FOREIGN} if thing else set()
    given = uuids(pod)
    return bool(given) and foreign.issuperset(given)


def pod_remembered(world: World) -> Iterator[Finding]:
    for pod in world.pods:
        if not asks(pod) or not gated(pod) or pod.ended or held_by_others(pod) or pod.metadata.deletion_timestamp:
            continue
        condition = pod.condition(names.SLICE_READY)
        if condition is not None and condition.status == "False":
            continue
        made = pod.metadata.creation_timestamp
        if condition is None and (made is None or world.now - made < YOUNG):
            continue
        said = "says nothing of what it waits for" if condition is None else "says that its slices are ready"
        words = f"is gated and {said}; does the controller run?"
        # The gate goes and the condition comes by two writes.
        passing = condition is not None
        yield Finding(invariant=Invariant.POD_REMEMBERED, object=named(pod), words=words, passing=passing)


def right_node(world: World) -> Iterator[Finding]:
    for uid, all_held in world.held_by.items():
        pod = world.pod_of.get(uid)
        if pod is None or pod.ended:
            continue
        for words in _misplaced(pod, all_held):
            yield Finding(invariant=Invariant.RIGHT_NODE, object=named(pod), words=words)


def _misplaced(pod: Pod, all_held: list[Held]) -> Iterator[str]:
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
    """The slices that the pod was given."""
    return [each for each in pod.metadata.annotations.get(names.MIG_UUIDS, "").split(",") if each]


def _listed(profiles: Counter[str]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(profiles.items())) or "nothing"
