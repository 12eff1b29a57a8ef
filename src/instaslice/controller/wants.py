"""What slices a pod holds at the same time, and for which containers.

Pure. Reads the names that the webhook wrote; pods that ask for none want nothing.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from instaslice.api import names
from instaslice.errors import BadInput
from instaslice.geometry import ProfileName
from instaslice.kube.core import Container, Pod


class Wanted(NamedTuple):
    """One slice, and the container that is the first to use it."""

    container: str
    profile: str


MOST = 128
"""Slices of one container: more than any node holds."""


def wanted(pod: Pod) -> tuple[Wanted, ...]:
    """The slices that the pod needs, as the kubelet hands them out: containers and sidecars hold theirs together,
    and an init container uses those that its successors get, plus what it needs beyond them.

    Raises BadInput for what the webhook would have refused: pods can come where it does not look.
    """
    initial = pod.spec.init_containers or ()
    together = [*(each for each in initial if each.sidecar), *(pod.spec.containers or ())]
    found = [Wanted(each.name, profile) for each in together for profile in asked(each)]
    have = Counter(each.profile for each in found)
    beside: Counter[str] = Counter()  # held by the sidecars that are up when an init container starts
    for each in initial:
        needs = beside + Counter(asked(each))
        for profile, more in sorted((needs - have).items()):
            found += [Wanted(each.name, profile)] * more
        have |= needs
        if each.sidecar:
            beside = needs
    return tuple(found)


def asked(container: Container) -> Iterator[str]:
    """The profiles that a container asks for, each as often as it does, by name."""
    for name, quantity in sorted(container.resources.limits.items()):
        if name.startswith(names.RESOURCE):
            count = str(quantity)
            if not (count.isascii() and count.isdigit() and 0 < int(count) <= MOST):
                raise BadInput(f"container {container.name}: {name}: {quantity} is not a number of slices up to {MOST}")
            yield from [str(ProfileName.parse(name))] * int(count)


def gated(pod: Pod) -> bool:
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())


def held_by_others(pod: Pod) -> list[str]:
    """The gates of the pod that are not ours."""
    return [gate.name for gate in pod.spec.scheduling_gates or () if gate.name != names.GATE]


def lost_if_it_fails(pod: Pod) -> bool:
    """Whether the end of the pod costs more than the pod: nobody makes another, or a Job counts it as a failure."""
    made_by = next((each for each in pod.metadata.owner_references if each.controller), None)
    return made_by is None or made_by.kind == "Job"


def refused_by_scheduler(pod: Pod) -> bool:
    """Whether the scheduler has looked at a pod that is past its gate, and found no node."""
    told = pod.condition("PodScheduled")
    return told is not None and told.status == "False" and told.reason == "Unschedulable"


NOT_SAID = "no scheduler says why; see its Events, and those of its claims"


def unbound(pod: Pod) -> str:
    """What the scheduler says of a pod that is past its gate. What it said of the gate itself stays in the pod until
    it has looked again, which one that is not there never does."""
    told = pod.condition("PodScheduled")
    if told is None or not told.message or told.reason == "SchedulingGated":
        return NOT_SAID
    return told.message
