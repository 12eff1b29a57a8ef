"""What slices a pod asks for, counted from its containers: the doctor's own count, beside the controller's.

Pure. A pod can be made where the webhook does not look, so it may ask for what nobody understands.
"""

from collections import Counter

from instaslice.api import names
from instaslice.errors import BadInput
from instaslice.geometry import ProfileName
from instaslice.kube.core import Container, Pod
from instaslice.kube.quantities import NANO, nano

MOST = 128
"""Slices of one profile that a container can mean: more than any node holds."""


def asks(pod: Pod) -> bool:
    """Whether the pod names slices at all, also in a way that cannot be read."""
    return any(
        name.startswith(names.RESOURCE)
        for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        for name in (*container.resources.limits, *container.resources.requests)
    )


def asked(pod: Pod) -> Counter[str]:
    """Profile → the most that the pod has at one time, from its first init container to its last container.

    Raises BadInput or BadQuantity for what is no number of slices.
    """
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in pod.spec.init_containers or ():
        beside = sidecars + _of(container)
        most |= beside
        if container.sidecar:
            sidecars = beside
    return most | sum((_of(container) for container in pod.spec.containers or ()), start=sidecars)


def _of(container: Container) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, quantity in container.resources.limits.items():
        if name.startswith(names.RESOURCE):
            count, rest = divmod(nano(quantity), NANO)
            if rest or not 0 < count <= MOST:
                raise BadInput(f"container {container.name}: {name}: {quantity} is not a number of slices up to {MOST}")
            found[str(ProfileName.parse(name))] += count
    return found
