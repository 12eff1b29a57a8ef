"""The rule that every object can be made sense of. What cannot is named here, once, and the other rules leave it out.

One bad object costs that object: all others are still judged.
"""

from collections.abc import Iterator

from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import Instaslice
from instaslice.controller.requests import amounts, effective
from instaslice.doctor.asked import asked
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.world import World, named
from instaslice.errors import InstasliceError
from instaslice.geometry import ProfileName, States
from instaslice.kube.core import Node, Pod


def readable(world: World) -> Iterator[Finding]:
    for unread in world.unread:
        yield _finding(unread.object, f"does not look like one: {unread.why}")
    for pod in world.pods:
        if not pod.ended and (why := of_pod(pod)):
            yield _finding(named(pod), f"{why}; delete the pod")
    for node in world.nodes:
        if why := of_node(node):
            yield _finding(f"node {node.metadata.name}", why)
    for thing in world.instaslices:
        for why in _of_instaslice(thing):
            yield _finding(f"instaslice {thing.metadata.name}", f"{why}; restart the agent")


def of_pod(pod: Pod) -> str | None:
    """What a pod asks for that cannot be understood."""
    try:
        asked(pod)
        effective(pod)
    except InstasliceError as error:
        return str(error)
    return None


def of_node(node: Node) -> str | None:
    try:
        amounts(node.status.allocatable)
        amounts(node.status.capacity)
    except InstasliceError as error:
        return str(error)
    return None


def geometries(thing: Instaslice) -> dict[str, States]:
    """Model → its states, of those models that can be understood."""
    found: dict[str, States] = {}
    for model in thing.status.models:
        if of_model(model) is None:
            found[model.name] = States.of(model.model())
    return found


def of_model(model: ModelGeometry) -> str | None:
    try:
        for profile in model.profiles:
            ProfileName.parse(profile.name)
        States.of(model.model())
    except InstasliceError as error:
        return f"model {model.name}: {error}"
    return None


def _of_instaslice(thing: Instaslice) -> Iterator[str]:
    listed = {model.name for model in thing.status.models}
    for model in thing.status.models:
        if why := of_model(model):
            yield why
    for gpu in thing.status.gpus:
        if gpu.model not in listed:
            yield f"{gpu.uuid} is of a model {gpu.model} that is not listed"


def _finding(about: str, words: str) -> Finding:
    return Finding(invariant=Invariant.READABLE, object=about, words=words)
