"""What a pod requests, counted independently of the controller: slices, CPU and memory, and its gates.

Pure. A pod created where the webhook does not look may request anything, so counting can fail.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from instaslice.api import names
from instaslice.errors import BadInput
from instaslice.geometry import ProfileName
from instaslice.kube.core import Container, Pod, PodSpec
from instaslice.kube.quantities import NANO, counted, nano

MOST = 128
"""Slices of one profile that a container can request: more than any node has."""
CHECKED = ("cpu", "memory")


def gates(pod: Pod) -> list[str]:
    return [gate.name for gate in pod.spec.scheduling_gates or ()]


def gated(pod: Pod) -> bool:
    return names.GATE in gates(pod)


def requests_slices(pod: Pod) -> bool:
    """Whether the pod names slices at all, even in a way that cannot be understood. Placeholders never get any."""
    return pod.metadata.namespace != names.PLACEHOLDERS and any(
        name.startswith(names.RESOURCE)
        for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        for name in (*container.resources.limits, *container.resources.requests)
    )


def requested_slices(pod: Pod) -> Counter[str]:
    """Profile → the most slices that the pod uses at one time. Raises BadInput or BadQuantity."""
    return peak(pod.spec, _slices)


def requested_memory(pod: Pod) -> dict[str, int]:
    """Container → GB of the slice that it requests by memory, without a profile. An init container leaves its slice to
    the next container that requests one: that one stands here, with what is enough for both. Raises BadInput."""
    found: dict[str, int] = {}
    previous = ""
    ordinary = {each.name for each in pod.spec.init_containers or () if not each.sidecar}
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        if names.ANY_SLICE not in container.resources.limits:
            continue
        gb, rest = divmod(nano(container.resources.limits.get(names.MEMORY, 0)), NANO)
        if rest or gb < 1:
            raise BadInput(f"container {container.name}: has {names.ANY_SLICE} and no whole number of {names.MEMORY}")
        inherited = found.pop(previous, 0) if previous in ordinary else 0
        found[container.name] = max(gb, inherited)
        previous = container.name
    return found


def requested_amounts(pod: Pod) -> dict[str, int]:
    """CPU in milli-cores and memory in bytes, as kube-scheduler counts them. Raises BadQuantity."""
    most = peak(pod.spec, lambda container: _nano(container.resources.requests))
    pod_level = pod.spec.resources.requests if pod.spec.resources is not None else {}
    total = Counter({name: nano(pod_level[name]) if name in pod_level else most[name] for name in CHECKED})
    total.update(_nano(pod.spec.overhead or {}))
    return {name: counted(name, total[name]) for name in CHECKED}


def amounts(texts: Mapping[str, str | int]) -> dict[str, int]:
    """Quantities of a node, each in the unit of its resource. Raises BadQuantity."""
    return {name: counted(name, nano(text)) for name, text in texts.items()}


def peak(spec: PodSpec, count: Callable[[Container], Counter[str]]) -> Counter[str]:
    """The most in use at one time, from the first init container to the last container."""
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.init_containers or ():
        with_sidecars = sidecars + count(container)
        most |= with_sidecars
        if container.sidecar:
            sidecars = with_sidecars
    return most | sum((count(container) for container in spec.containers or ()), start=sidecars)


def _nano(texts: Mapping[str, str | int]) -> Counter[str]:
    return Counter({name: nano(text) for name, text in texts.items()})


def _slices(container: Container) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, quantity in container.resources.limits.items():
        if name.startswith(names.RESOURCE) and name != names.ANY_SLICE:
            count, rest = divmod(nano(quantity), NANO)
            if rest or not 0 < count <= MOST:
                raise BadInput(f"container {container.name}: {name}: {quantity} is not a number of slices up to {MOST}")
            found[str(ProfileName.parse(name))] += count
    return found
