"""How we read a pod: its gate, our annotations, what its containers hold together, what the scheduler says of it.

Pure. Reads the names that the webhook wrote. The doctor has its own reading, on purpose.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from instaslice.api import names
from instaslice.api.memory_terms import compute_slices_of, fit_of, gb_of
from instaslice.errors import BadInput, InstasliceError
from instaslice.geometry import MemoryAsk, ProfileName
from instaslice.kube.core import Container, Pod, SchedulingGate

C = TypeVar("C", bound=Container)
K = TypeVar("K")

MAX_SLICES = 128
"""Slices of one container: more than any node holds."""


class NeededSlice(NamedTuple):
    """One slice, and the container that uses it; of several that do so one after another, the one that runs on."""

    container: str
    profile: str
    """Of one that is asked for by memory: what it must have, until a profile is chosen."""
    ask: MemoryAsk | None = None
    """Where it is asked for by memory."""


class _Spec(Protocol):
    @property
    def scheduling_gates(self) -> Sequence[SchedulingGate] | None: ...


class _HasGates(Protocol):
    @property
    def spec(self) -> _Spec: ...


def gated(pod: _HasGates) -> bool:
    """Whether our gate is there."""
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())


def other_gates(pod: Pod) -> list[str]:
    """The gates of the pod that are not ours."""
    return [gate.name for gate in pod.spec.scheduling_gates or () if gate.name != names.GATE]


def was_mutated(pod: Pod) -> bool:
    """Whether our webhook wrote down what the pod asked for."""
    return names.REQUESTED in pod.metadata.annotations


def was_given_slices(pod: Pod) -> bool:
    """Whether the controller wrote down the pod's slices, which it does when it removes the gate."""
    return names.MIG_UUIDS in pod.metadata.annotations


def mig_uuids(pod: Pod) -> list[str]:
    """The slices that the pod was given, by its annotation."""
    return [each for each in pod.metadata.annotations.get(names.MIG_UUIDS, "").split(",") if each]


def pinned_node(pod: Pod) -> str:
    """The node that a pod past its gate is bound or pinned to; "" where nothing says it, as of one that an older
    version ungated. Its affinity does not say it: the pin is in there among names that the user may have written."""
    return pod.spec.node_name or pod.metadata.annotations.get(names.NODE, "")


def running_containers(pod: Pod) -> list[Container]:
    """Those that run at the same time once the pod has started: sidecars and containers."""
    return [*(each for each in pod.spec.init_containers or () if each.sidecar), *(pod.spec.containers or ())]


def held_together(
    initial: Iterable[C], containers: Iterable[C], amounts: Callable[[C], Mapping[K, int]]
) -> Iterator[Counter[K]]:
    """What a pod holds in each phase, as Kubernetes counts it: every init container with the sidecars before it, then
    all containers with all sidecars. Where the pod must have everything at once, it needs the most of any phase."""
    held: Counter[K] = Counter()
    for container in initial:
        own = Counter(amounts(container))
        yield held + own
        if container.sidecar:
            held += own
    for container in containers:
        held += Counter(amounts(container))
    yield held


def needed_slices(pod: Pod) -> tuple[NeededSlice, ...]:
    """The slices that the pod needs, as the kubelet hands them out: containers and sidecars hold theirs together,
    and an init container uses those that its successors get, plus what it needs beyond them.

    Raises BadInput for what the webhook would have rejected: pods can come where it is not asked.
    """
    initial = pod.spec.init_containers or ()
    found = [NeededSlice(each.name, profile) for each in running_containers(pod) for profile in _profiles(each)]
    have = Counter(each.profile for each in found)
    for each, needs in zip(initial, held_together(initial, (), lambda each: Counter(_profiles(each))), strict=False):
        for profile, more in sorted((needs - have).items()):
            found += [NeededSlice(each.name, profile)] * more
        have |= needs
    return (*found, *_asked_by_memory(pod))


def _asked_by_memory(pod: Pod) -> Iterator[NeededSlice]:
    """One slice for each container that asks for GPU memory alone. But the kubelet gives the device of an init
    container that has ended to the next container that asks for one: they share a slice that is enough for both."""
    needs: list[tuple[str, int]] = []
    left_over = False  # whether the last device is one of an init container that has ended
    initial = [(each, not each.sidecar) for each in pod.spec.init_containers or ()]
    for each, ends in (*initial, *((each, False) for each in pod.spec.containers or ())):
        gb = _gb_alone(each)
        if not gb:
            continue
        # Under the name of the last: the kubelet says who holds a device only of containers that run.
        needs.append((each.name, max(needs.pop()[1], gb) if left_over else gb))
        left_over = ends
    if needs:
        fit_of(pod.metadata.annotations)
        compute = compute_slices_of(pod.metadata.annotations)
        for container, gb in needs:
            ask = MemoryAsk(gb, compute)
            yield NeededSlice(container, str(ask), ask)


def _gb_alone(container: Container) -> int:
    """The GB that a container asks for without a profile; 0 where it does not."""
    limits = container.resources.limits
    if names.ANY_SLICE not in limits:
        return 0
    if str(limits[names.ANY_SLICE]) != "1" or names.MEMORY not in limits:
        raise BadInput(
            f"container {container.name}: {names.ANY_SLICE} is what InstaSlice's webhook adds, once, where a container "
            f"asks for {names.MEMORY} alone"
        )
    try:
        return gb_of(limits[names.MEMORY])
    except InstasliceError as error:
        raise BadInput(f"container {container.name}: {error}") from None


def _profiles(container: Container) -> Iterator[str]:
    """The profiles that a container asks for, each as often as it does, by name."""
    for name, quantity in sorted(container.resources.limits.items()):
        if name.startswith(names.RESOURCE) and name != names.ANY_SLICE:
            count = str(quantity)
            if not (count.isascii() and count.isdigit() and 0 < int(count) <= MAX_SLICES):
                raise BadInput(
                    f"container {container.name}: {name}: {quantity} is not a number of slices up to {MAX_SLICES}"
                )
            yield from [str(ProfileName.parse(name))] * int(count)


def is_irreplaceable(pod: Pod) -> bool:
    """Whether a failure costs more than the pod: nobody replaces it, or a Job counts it."""
    controller = next((each for each in pod.metadata.owner_references if each.controller), None)
    return controller is None or controller.kind == "Job"


def is_unschedulable(pod: Pod) -> bool:
    """Whether the scheduler has tried a pod that is past its gate, and found no node."""
    scheduled = pod.condition("PodScheduled")
    return scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"


NO_REASON = "no scheduler says why; see its Events, and those of its claims"
DEFAULT_SCHEDULER = "default-scheduler"


def why_unbound(pod: Pod) -> str:
    """Why a pod past its gate is not bound, by the scheduler's condition. What that said of the gate itself stays in
    the pod until the scheduler tries again, which one that does not run never does."""
    scheduled = pod.condition("PodScheduled")
    if scheduled is None or not scheduled.message or scheduled.reason == "SchedulingGated":
        if (name := pod.spec.scheduler_name) != DEFAULT_SCHEDULER:
            return f"its scheduler {name} does not say why; does one of that name run?"
        return NO_REASON
    return scheduled.message
