"""Rules about nodes: their CPU and memory suffice, they advertise what they have, and what is promised there exists."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from instaslice.api import names
from instaslice.api.instaslice import Health, Instaslice
from instaslice.controller.doctor.asked import asks
from instaslice.controller.doctor.findings import Finding, Invariant
from instaslice.controller.doctor.readable import geometries, of_node, of_pod
from instaslice.controller.doctor.world import World
from instaslice.controller.requests import amounts, effective
from instaslice.geometry import ProfileName, States
from instaslice.kube.core import Node
from instaslice.kube.quantities import humanized as quantity
from instaslice.kube.quantities import whole

CHECKED = ("cpu", "memory")


def node_suffices(world: World) -> Iterator[Finding]:
    """Bound pods by their requests, pods that are not bound yet by what was promised to them."""
    ours: dict[str, Counter[str]] = {}
    others: dict[str, Counter[str]] = {}
    for pod in world.pods:
        if pod.spec.node_name and not pod.ended and not of_pod(pod):
            side = ours if asks(pod) else others
            side.setdefault(pod.spec.node_name, Counter()).update(
                {name: amount for name, amount in effective(pod).items() if name in CHECKED}
            )
    for held in world.held:
        owner = world.pod_of.get(held.allocation.pod.uid)
        if owner is not None and not owner.spec.node_name and not owner.ended and not held.leaving:
            promised = {"cpu": held.allocation.cpu, "memory": held.allocation.memory}
            ours.setdefault(held.node, Counter()).update(promised)
    for thing in world.instaslices:
        node = world.node_of.get(thing.metadata.name)
        if node is not None and not of_node(node):
            yield from _short(node, ours.get(node.metadata.name, Counter()), others.get(node.metadata.name, Counter()))


def _short(node: Node, ours: Counter[str], others: Counter[str]) -> Iterator[Finding]:
    there = amounts(node.status.allocatable)
    for name in CHECKED:
        total = ours[name] + others[name]
        if not ours[name] or total <= there.get(name, 0):
            continue
        words = (
            f"slice pods use or were promised {quantity(name, ours[name], up=True)} {name}, other pods use "
            f"{quantity(name, others[name], up=True)}, and the node has {quantity(name, there.get(name, 0), up=False)}"
        )
        # Another pod can be bound in the moment in which we promise; the scheduler refuses ours, which is released.
        alone = ours[name] > there.get(name, 0)
        yield Finding(
            invariant=Invariant.NODE_SUFFICES,
            object=f"node {node.metadata.name}",
            words=words + "; delete one of the pods that are not running",
            passing=not alone,
        )


def capacity_true(world: World) -> Iterator[Finding]:
    for thing in world.instaslices:
        node = world.node_of.get(thing.metadata.name)
        states = geometries(thing)
        if (
            node is None
            or not thing.status.gpus
            or of_node(node)
            or any(g.model not in states for g in thing.status.gpus)
        ):
            continue
        # A device plugin leaves sick GPUs out, an emulated node does not.
        most, least = _capacity(thing, states, healthy=False), _capacity(thing, states, healthy=True)
        told = {
            name: whole(text)
            for name, text in node.status.capacity.items()
            if name.startswith((names.RESOURCE, names.MEMORY))
        }
        wrong = [
            f"{name} {told.get(name, 0)} instead of {most[name]}"
            for name in sorted({*most, *told})
            if not least[name] <= told.get(name, 0) <= most[name]
        ]
        if wrong:
            words = f"advertises {', '.join(wrong)}; does its agent run?"
            # The agent is about to write it, or a kubelet to take it back after a restart.
            yield Finding(
                invariant=Invariant.CAPACITY_TRUE, object=f"node {node.metadata.name}", words=words, passing=True
            )


def _capacity(thing: Instaslice, states: Mapping[str, States], *, healthy: bool) -> Counter[str]:
    total: Counter[str] = Counter()
    for gpu in thing.status.gpus:
        if gpu.health is Health.HEALTHY or not healthy:
            total.update(_most(states[gpu.model]))
    return total


@lru_cache(maxsize=64)
def _most(states: States) -> dict[str, int]:
    """What one GPU could ever hold of each resource."""
    most = {f"{names.GROUP}/{ProfileName.parse(profile.name).resource}": 0 for profile in states.profiles}
    for layout in states.layouts:
        counts = Counter(states.placements[index].profile for index in layout)
        for profile, count in counts.items():
            name = f"{names.GROUP}/{ProfileName.parse(profile).resource}"
            most[name] = max(most[name], count)
    return {**most, names.MEMORY: states.most_label_gb()}


def hardware_there(world: World) -> Iterator[Finding]:
    yield from _reported_twice(world)
    for thing in world.instaslices:
        name = f"instaslice {thing.metadata.name}"
        if thing.metadata.name not in world.node_of:
            # It goes with its node, when the garbage collector comes to it.
            words = "its node does not exist; delete the object"
            yield Finding(invariant=Invariant.HARDWARE_THERE, object=name, words=words, passing=True)
        there = {gpu.uuid for gpu in thing.status.gpus}
        gone = Counter(each.gpu for each in thing.spec.allocations if each.gpu not in there)
        for gpu, count in sorted(gone.items()):
            words = f"{count} allocations are on {gpu}, which the node does not have; does the controller run?"
            yield Finding(invariant=Invariant.HARDWARE_THERE, object=name, words=words, passing=True)


def _reported_twice(world: World) -> Iterator[Finding]:
    reported: dict[str, str] = {}
    for thing in world.instaslices:
        for gpu in thing.status.gpus:
            other = reported.setdefault(gpu.uuid, thing.metadata.name)
            if other != thing.metadata.name:
                words = f"reports {gpu.uuid}, as {other} does; delete the object of the node that is not there any more"
                # A machine that comes back under another name has two, until the old node is removed.
                about = f"instaslice {thing.metadata.name}"
                yield Finding(invariant=Invariant.HARDWARE_THERE, object=about, words=words, passing=True)
