"""The rule that every object can be understood. One that cannot is a finding here, and the other rules leave it out."""

from collections.abc import Iterator

from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import Instaslice
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.observed_cluster import ObservedCluster, object_name
from instaslice.doctor.requested import amounts, requested_amounts, requested_memory, requested_slices
from instaslice.errors import InstasliceError
from instaslice.geometry import ProfileName, States
from instaslice.kube.core import Node, Pod


def readable(cluster: ObservedCluster) -> Iterator[Finding]:
    for unread in cluster.unread:
        yield Finding(Invariant.READABLE, unread.object, unread.why)
    for pod in cluster.pods:
        if not pod.ended and (why := pod_error(pod)):
            yield Finding(Invariant.READABLE, object_name(pod), f"{why}; delete the pod")
    for node in cluster.nodes:
        if why := node_error(node):
            yield Finding(Invariant.READABLE, object_name(node), why)
    for instaslice in cluster.instaslices:
        for why in _instaslice_errors(instaslice):
            yield Finding(Invariant.READABLE, object_name(instaslice), f"{why}; restart the agent")


def pod_error(pod: Pod) -> str | None:
    """Why it cannot be understood what the pod requests; None where it can."""
    try:
        requested_slices(pod)
        requested_memory(pod)
        requested_amounts(pod)
    except InstasliceError as error:
        return str(error)
    return None


def node_error(node: Node) -> str | None:
    try:
        amounts(node.status.allocatable)
        amounts(node.status.capacity)
    except InstasliceError as error:
        return str(error)
    return None


def geometries(instaslice: Instaslice) -> dict[str, States]:
    """Model → its states, without models that cannot be understood."""
    return {model.name: States.of(model.model()) for model in instaslice.status.models if _model_error(model) is None}


def _model_error(model: ModelGeometry) -> str | None:
    try:
        for profile in model.profiles:
            ProfileName.parse(profile.name)
        States.of(model.model())
    except InstasliceError as error:
        return f"model {model.name}: {error}"
    return None


def _instaslice_errors(instaslice: Instaslice) -> Iterator[str]:
    listed = {model.name for model in instaslice.status.models}
    for model in instaslice.status.models:
        if why := _model_error(model):
            yield why
    for gpu in instaslice.status.gpus:
        if gpu.model not in listed:
            yield f"{gpu.uuid} is of a model {gpu.model} that is not listed"
