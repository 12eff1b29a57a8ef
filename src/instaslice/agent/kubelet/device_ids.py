"""Which seat is whose: a seat is what the kubelet hands out, a slice is what its holder gets.

Pure. The kubelet knows a fixed number of seats of each profile (`1g.5gb-3`) and says first that one is taken and only
then, through another API, by whom. So a seat is *open* until its holder is known, and is then bound to the very slice
that the holder was promised. Nobody is ever given the slice of another, in whatever order pods are admitted, and what
was promised needs no correction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NewType

import msgspec

from instaslice.api.instaslice import Allocation
from instaslice.drivers import Slice
from instaslice.geometry import ProfileName

DeviceId = NewType("DeviceId", str)


class Holder(NamedTuple):
    """A container, as the kubelet names it: its pod by namespace and name, or by uid alone."""

    container: str
    namespace: str = ""
    pod: str = ""
    uid: str = ""

    def __str__(self) -> str:
        return f"container {self.container} of " + (
            f"pod {self.namespace}/{self.pod}" if self.pod else f"the pod with uid {self.uid}"
        )

    def of(self, told: Allocation) -> bool:
        """Whether the allocation is for this pod."""
        if self.uid:
            return self.uid == told.pod.uid
        return (self.namespace, self.pod) == (told.pod.namespace, told.pod.name)


class PodSlice(msgspec.Struct, frozen=True):
    """A slice that a pod holds, by its place: an allocation that is written anew for a running pod has another id."""

    pod: str
    gpu: str
    profile: str
    start: int

    @classmethod
    def of(cls, told: Allocation) -> "PodSlice":
        return cls(told.pod.uid, told.gpu, told.profile, told.start)


def seat(profile: str, number: int) -> DeviceId:
    """Also the name of a device for CDI, which allows no `+`."""
    return DeviceId(f"{ProfileName.parse(profile).resource.removeprefix('mig-')}-{number}")


def profile_of(told: DeviceId) -> str:
    """Raises UnknownProfile."""
    return str(ProfileName.parse(told.rpartition("-")[0]))


class DeviceAssignments:
    """Every seat that was handed out, and the slice that it is bound to; None while it is open."""

    def __init__(self, seats: Mapping[DeviceId, PodSlice | None] | None = None) -> None:
        self.seats: dict[DeviceId, PodSlice | None] = dict(seats or {})

    def free(self, profile: str, wanted: Iterable[Allocation], held: Iterable[DeviceId]) -> int:
        """How many slices of a profile are behind none of the seats `held`.

        A seat that is bound and that nobody holds does not count: a kubelet that lost its own book gives the container
        another one.
        """
        taken = {self.seats.get(each) for each in held}
        return sum(told.profile == profile and PodSlice.of(told) not in taken for told in wanted)

    def open(self, asked: Iterable[DeviceId]) -> None:
        """The kubelet gives these to a container: whoever had them before has ended."""
        self.seats.update(dict.fromkeys(asked))

    def opened(self) -> set[DeviceId]:
        return {each for each, hold in self.seats.items() if hold is None}

    def bind(self, holders: Mapping[DeviceId, Sequence[Holder]], wanted: Sequence[Allocation]) -> bool:
        """Bind open seats whose holder is known, and seats that we never heard of, to what their pods were promised;
        forget seats that nobody holds and whose slice is no longer promised. Whether anything changed.

        `wanted` are the allocations whose slice is there. A seat that is bound stays so until it is opened again.
        """
        before = dict(self.seats)
        promised = {PodSlice.of(told) for told in wanted}
        for each, hold in before.items():
            if hold is not None and hold not in promised and each not in holders:
                del self.seats[each]
        taken = {hold for each, hold in self.seats.items() if hold is not None and each in holders}
        waiting = sorted((each for each in holders if self.seats.get(each) is None), key=_order)
        # What no seat was bound to comes first: a pod may have the name of one whose promise is still to be taken back.
        bound = {hold for hold in self.seats.values() if hold is not None}
        wanted = sorted(wanted, key=lambda told: PodSlice.of(told) in bound)
        # A slice stands under the container that uses it first; an init container may share it with its successors.
        for exact in (True, False):
            for each in waiting:
                told = self._promised(each, holders[each], wanted, taken, exact)
                if told is None or self.seats.get(each) is not None:
                    continue
                hold = PodSlice.of(told)
                # The kubelet gave the container another seat for the same slice: the old one is nobody's.
                for old in [old for old, kept in self.seats.items() if kept == hold]:
                    del self.seats[old]
                self.seats[each] = hold
                taken.add(hold)
        return self.seats != before

    def behind(self, slices: Iterable[Slice], holders: Mapping[DeviceId, Sequence[Holder]]) -> dict[Slice, str]:
        """Those of the slices that are behind a seat that somebody holds, and who. What is behind an open seat, or one
        that we never heard of, is not known: it may be any of its profile."""
        found: dict[Slice, str] = {}
        for each, (holder, *_) in holders.items():
            hold, profile = self.seats.get(each), profile_of(each)
            for held in slices:
                place = held.placement
                theirs = hold is None or (hold.gpu, hold.start) == (held.gpu, place.start)
                if theirs and profile == place.profile:
                    found[held] = str(holder)
        return found

    @staticmethod
    def _promised(
        each: DeviceId, holders: Sequence[Holder], wanted: Sequence[Allocation], taken: set[PodSlice], exact: bool
    ) -> Allocation | None:
        profile = profile_of(each)
        for told in wanted:
            if told.profile != profile or PodSlice.of(told) in taken:
                continue
            if any(holder.of(told) and (not exact or holder.container == told.container) for holder in holders):
                return told
        return None


def unwell(
    seats: Sequence[DeviceId], number: int, book: Mapping[DeviceId, PodSlice | None], unhealthy: set[str]
) -> set[DeviceId]:
    """Which `number` of the ids to call unhealthy: those whose slice is on an unhealthy GPU, then free ones."""
    held = [each for each in seats if (hold := book.get(each)) is not None and hold.gpu in unhealthy]
    free = [each for each in reversed(seats) if each not in book]
    opened = [each for each in reversed(seats) if each in book and book[each] is None]
    return {*held, *[*free, *opened][: max(0, number - len(held))]}


def _order(told: DeviceId) -> tuple[str, int]:
    profile, _, number = told.rpartition("-")
    return profile, int(number)
