"""What a pod asks of a node beside its slices, counted as kube-scheduler counts it.

Pure. Follows `PodRequests` of k8s.io/component-helpers, which Kubernetes calls part of its API. Only requests count;
the API server has filled in those that stand in limits alone.
"""

from collections.abc import Iterable, Mapping

from instaslice.api.names import GROUP
from instaslice.kube.core import Container, Pod
from instaslice.kube.quantities import counted, nano

Amounts = Mapping[str, int]
"""Resource → amount: `cpu` in milli-cores, everything else in whole units (bytes, devices, pods)."""

OURS = f"{GROUP}/"
POD_LEVEL = ("cpu", "memory")
"""What a pod may ask for as a whole, and huge pages; anything else it asks for there does not count."""

_Texts = Mapping[str, str | int]


def effective(pod: Pod) -> Amounts:
    """What the pod takes from the node it is bound to, itself (`pods: 1`) included.

    With our own resources, which the scheduler counts too. Without zeros, which fit even where a node is overcommitted.
    """
    amounts = {name: counted(name, total) for name, total in _pod(pod).items() if total}
    amounts["pods"] = 1
    return amounts


def split(amounts: Amounts) -> tuple[Amounts, Amounts]:
    """What is asked for of others, and what of us: slices by profile, and GPU memory."""
    ours = {name: amount for name, amount in amounts.items() if name.startswith(OURS)}
    return {name: amount for name, amount in amounts.items() if name not in ours}, ours


def amounts(texts: _Texts) -> dict[str, int]:
    """Quantities as the server writes them, of a node's allocatable for one, each in its unit."""
    return {name: counted(name, nano(text)) for name, text in texts.items()}


def _pod(pod: Pod) -> dict[str, int]:
    """In billionths."""
    spec = pod.spec
    sums = _containers(spec.containers or (), spec.init_containers or ())
    if spec.resources is not None:
        for name, text in spec.resources.requests.items():
            if name in POD_LEVEL or name.startswith("hugepages-"):
                sums[name] = nano(text)
    if spec.overhead:
        _add(sums, spec.overhead)
    return sums


def _containers(containers: Iterable[Container], before: Iterable[Container]) -> dict[str, int]:
    """In billionths: the most that is in use at any time from the first init container to the last container."""
    sums: dict[str, int] = {}
    for container in containers:
        _add(sums, container.resources.requests)
    # An init container runs beside the sidecars that stand before it, and beside nothing else.
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in before:
        if container.sidecar:
            _add(sums, container.resources.requests)
            _add(sidecars, container.resources.requests)
            _raise(peak, sidecars)
        else:
            beside = dict(sidecars)
            _add(beside, container.resources.requests)
            _raise(peak, beside)
    _raise(sums, peak)
    return sums


def _add(sums: dict[str, int], texts: _Texts) -> None:
    for name, text in texts.items():
        sums[name] = sums.get(name, 0) + nano(text)


def _raise(sums: dict[str, int], to: Mapping[str, int]) -> None:
    for name, amount in to.items():
        if amount > sums.get(name, 0):
            sums[name] = amount
