"""What a pod requests of a node besides its slices, counted as kube-scheduler counts it.

Pure. Follows `PodRequests` of k8s.io/component-helpers, which Kubernetes calls part of its API. Only requests count;
the API server has filled in those that stand in limits alone.
"""

from collections import Counter
from collections.abc import Mapping
from functools import reduce

from instaslice.api.names import GROUP
from instaslice.api.pods import held_together
from instaslice.kube.core import Pod
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
    """The resources of others, and ours: slices by profile, and GPU memory."""
    ours = {name: amount for name, amount in amounts.items() if name.startswith(OURS)}
    return {name: amount for name, amount in amounts.items() if name not in ours}, ours


def amounts(texts: _Texts) -> dict[str, int]:
    """Quantities as the server writes them, of a node's allocatable for one, each in its unit."""
    return {name: counted(name, nano(text)) for name, text in texts.items()}


def _pod(pod: Pod) -> Mapping[str, int]:
    """In billionths: the most of any phase, from the first init container to the last container."""
    spec = pod.spec
    phases = held_together(
        spec.init_containers or (), spec.containers or (), lambda each: _billionths(each.resources.requests)
    )
    sums: Counter[str] = reduce(Counter.__or__, phases)
    if spec.resources is not None:
        for name, text in spec.resources.requests.items():
            if name in POD_LEVEL or name.startswith("hugepages-"):
                sums[name] = nano(text)
    if spec.overhead:
        sums.update(_billionths(spec.overhead))
    return sums


def _billionths(texts: _Texts) -> dict[str, int]:
    return {name: nano(text) for name, text in texts.items()}
