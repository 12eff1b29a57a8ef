"""Device ids and what they stand for: the kubelet hands out an id, its holder gets a slice.

Pure. The kubelet knows a fixed number of ids for each profile (`1g.5gb-3`). It says first that an id is taken and only
then, through another API, by which container. So an id is *open* until its holder is known, and is then bound to the
slice that was allocated to the pod. No container ever gets the slice of another, in whatever order pods are admitted.

A container that asks for memory gets an id of a kind of its own (`any-3`), which stands for a slice of any profile that
was allocated to this container by memory: never for one that a container asked for by its profile, and the other way
around.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple, NewType

import msgspec

from instaslice.api import names
from instaslice.api.instaslice import Allocation
from instaslice.drivers import Slice
from instaslice.geometry import ProfileName

DeviceId = NewType("DeviceId", str)
DeviceKind = NewType("DeviceKind", str)
"""A profile, or ANY."""
ANY: Final = DeviceKind("any")
"""The kind of ids for slices that are asked for by memory."""


class DeviceHolder(NamedTuple):
    """A container, as the kubelet names it: its pod by namespace and name, or by uid alone."""

    container: str
    namespace: str = ""
    pod: str = ""
    uid: str = ""

    def __str__(self) -> str:
        return f"container {self.container} of " + (
            f"pod {self.namespace}/{self.pod}" if self.pod else f"the pod with uid {self.uid}"
        )

    def owns(self, allocation: Allocation) -> bool:
        """Whether the allocation is for this pod."""
        if self.uid:
            return self.uid == allocation.pod.uid
        return (self.namespace, self.pod) == (allocation.pod.namespace, allocation.pod.name)


class SliceAddress(NamedTuple):
    """Where a slice is on its node."""

    gpu: str
    profile: str
    start: int

    @classmethod
    def of(cls, held: Slice) -> "SliceAddress":
        return cls(held.gpu, held.placement.profile, held.placement.start)


class PodSlice(msgspec.Struct, frozen=True):
    """The slice of a pod, by its address: an allocation that is written again for a running pod has another id."""

    pod: str
    gpu: str
    profile: str
    start: int

    @classmethod
    def of(cls, allocation: Allocation) -> "PodSlice":
        return cls(allocation.pod.uid, allocation.gpu, allocation.profile, allocation.start)

    @property
    def address(self) -> SliceAddress:
        return SliceAddress(self.gpu, self.profile, self.start)


def device_id(resource: str, number: int) -> DeviceId:
    """`resource` is the name of a resource or of a profile. Also the name of the CDI device, in which `+` is not
    allowed."""
    kind = ANY if resource == names.ANY_SLICE else ProfileName.parse(resource).resource.removeprefix("mig-")
    return DeviceId(f"{kind}-{number}")


def kind_of(device: DeviceId) -> DeviceKind:
    """Raises UnknownProfile."""
    kind = device.rpartition("-")[0]
    return ANY if kind == ANY else DeviceKind(str(ProfileName.parse(kind)))


def described(kind: DeviceKind) -> str:
    """For a sentence: which slices such ids stand for."""
    return "by memory" if kind == ANY else f"of {kind}"


def kind_for(allocation: Allocation) -> DeviceKind:
    """The kind of the ids that may stand for its slice."""
    return ANY if allocation.asked_gb else DeviceKind(allocation.profile)


class DeviceAssignments:
    """Every device id that was handed out, and the slice that it is bound to; None while it is open."""

    def __init__(self, by_id: Mapping[DeviceId, PodSlice | None] | None = None) -> None:
        self.by_id: dict[DeviceId, PodSlice | None] = dict(by_id or {})

    def free(self, kind: DeviceKind, wanted: Iterable[Allocation], held: Iterable[DeviceId]) -> int:
        """How many slices that ids of a kind may stand for are behind none of the ids `held`.

        An id that is bound but that no container holds does not count: a kubelet that lost its checkpoint gives the
        container another one.
        """
        taken = {self.by_id.get(each) for each in held}
        return sum(kind_for(each) == kind and PodSlice.of(each) not in taken for each in wanted)

    def open(self, devices: Iterable[DeviceId]) -> None:
        """The kubelet gives these to a container: the previous holder has ended."""
        self.by_id.update(dict.fromkeys(devices))

    def opened(self) -> set[DeviceId]:
        return {each for each, held in self.by_id.items() if held is None}

    def bind(self, holders: Mapping[DeviceId, Sequence[DeviceHolder]], wanted: Sequence[Allocation]) -> bool:
        """Bind open ids whose holder is known, and ids that we have never seen, to the slices of their pods;
        forget ids without a holder whose slice is no longer allocated. Whether anything changed.

        `wanted` are the allocations whose slice exists. An id that is bound stays bound until it is opened again.
        """
        before = dict(self.by_id)
        allocated = {PodSlice.of(each) for each in wanted}
        for each, held in before.items():
            if held is not None and held not in allocated and each not in holders:
                del self.by_id[each]
        taken = {held for each, held in self.by_id.items() if held is not None and each in holders}
        waiting = sorted((each for each in holders if self.by_id.get(each) is None), key=_order)
        # Slices that are bound to no id come first: a pod may have the name of one whose allocation is still ending.
        bound = set(self.by_id.values())
        wanted = sorted(wanted, key=lambda allocation: PodSlice.of(allocation) in bound)
        # An allocation names the container that uses the slice first; an init container may share it with later ones.
        for same_container in (True, False):
            for each in waiting:
                own = _slice_for(each, holders[each], wanted, taken, same_container)
                if own is None or self.by_id.get(each) is not None:
                    continue
                # The kubelet gave the container another id for the same slice: the old one has no holder.
                for old in [old for old, held in self.by_id.items() if held == own]:
                    del self.by_id[old]
                self.by_id[each] = own
                taken.add(own)
        return self.by_id != before

    def in_use(self, slices: Iterable[Slice], holders: Mapping[DeviceId, Sequence[DeviceHolder]]) -> dict[Slice, str]:
        """Those of the slices that a container holds, and which. An id that is open, or that we have never seen, may
        stand for any slice of its profile, or for any at all."""
        found: dict[Slice, str] = {}
        for each, (holder, *_) in holders.items():
            bound, kind = self.by_id.get(each), kind_of(each)
            for held in slices:
                place = SliceAddress.of(held)
                if place == bound.address if bound is not None else kind in (ANY, place.profile):
                    found[held] = str(holder)
        return found


def unhealthy_ids(
    devices: Sequence[DeviceId],
    number: int,
    assigned: Mapping[DeviceId, PodSlice | None],
    unhealthy_gpus: Set[str],
) -> set[DeviceId]:
    """Which `number` of the ids to call unhealthy: those whose slice is on an unhealthy GPU, then free ones."""
    held = [each for each in devices if (bound := assigned.get(each)) is not None and bound.gpu in unhealthy_gpus]
    free = [each for each in reversed(devices) if each not in assigned]
    opened = [each for each in reversed(devices) if each in assigned and assigned[each] is None]
    return {*held, *[*free, *opened][: max(0, number - len(held))]}


def _slice_for(
    device: DeviceId,
    holders: Sequence[DeviceHolder],
    wanted: Sequence[Allocation],
    taken: Set[PodSlice],
    same_container: bool,
) -> PodSlice | None:
    """The first slice that the id may stand for, is allocated to a holder, and has no other id."""
    kind = kind_of(device)
    for each in wanted:
        own = PodSlice.of(each)
        if kind_for(each) != kind or own in taken:
            continue
        # Slices that a pod asks for by memory differ: each is for its container alone.
        exact = same_container or kind == ANY
        if any(one.owns(each) and (not exact or one.container == each.container) for one in holders):
            return own
    return None


def _order(device: DeviceId) -> tuple[str, int]:
    kind, _, number = device.rpartition("-")
    return kind, int(number)
