"""The history of a cluster, write by write: at no moment do two pods hold one place, nor does a pod lose its slice.

Pure. What a pod holds is what was promised to it when its gate went, until it has ended or is gone, whatever the
controller says of it afterwards: so a place that is given on too early is found.
"""

from dataclasses import dataclass
from typing import NamedTuple

from instaslice.api.instaslice import Instaslice
from instaslice.api.pods import gated
from instaslice.controller.doctor.asked import asks
from instaslice.controller.doctor.findings import Finding, Invariant
from instaslice.controller.doctor.pods import pod_has_slices, uuids
from instaslice.controller.doctor.slots import no_overlap
from instaslice.controller.doctor.world import Held, World, held_on, named
from instaslice.geometry import Placement
from instaslice.kube.core import Pod


class Event(NamedTuple):
    """An object as one write left it; `gone` if that write removed it."""

    version: int
    thing: Pod | Instaslice
    gone: bool = False


@dataclass(frozen=True)
class Hold:
    """A slice that a running pod counts on."""

    pod: str
    node: str
    gpu: str
    mask: int
    id: str
    uuid: str | None


Holds = dict[str, list[Hold]]
"""By the uid of the pod."""


class Replay:
    """From a world on. `before` is what pods held when an earlier replay ended: who still runs must still hold it."""

    def __init__(self, base: World, before: Holds | None = None) -> None:
        self._pods = dict(base.pod_of)
        self._things = dict(base.instaslice_of)
        self._now = base.now
        self._lost: set[str] = set()
        self.findings: list[Finding] = []
        running = {pod.metadata.uid for pod in base.running}
        self.holds: Holds = {uid: holds for uid, holds in (before or {}).items() if uid in running}
        version = int(base.version or 0)
        for thing in base.instaslices:
            self._nobody_lost(thing, version)
        for pod in base.running:
            if pod.metadata.uid not in self.holds:
                self._claim(pod, base.held_by.get(pod.metadata.uid, []), version)

    def take(self, event: Event) -> None:
        """The next write, in the order of versions."""
        match event.thing:
            case Pod() as pod:
                self._pod(pod, event)
            case Instaslice() as thing:
                self._instaslice(thing, event)

    def certain_holds(self) -> Holds:
        """What pods hold by their own annotation too: true even where writes between were not told."""
        given = {uid: sorted(uuids(pod)) for uid, pod in self._pods.items()}
        return {uid: each for uid, each in self.holds.items() if sorted(one.uuid or "" for one in each) == given[uid]}

    def _pod(self, pod: Pod, event: Event) -> None:
        uid = pod.metadata.uid
        if event.gone or pod.ended:
            self._pods.pop(uid, None)
            self.holds.pop(uid, None)
            return
        self._pods[uid] = pod
        if uid in self.holds or gated(pod) or not asks(pod):
            return
        self._passes_its_gate(pod, event.version)

    def _passes_its_gate(self, pod: Pod, version: int) -> None:
        world = World([pod], [], list(self._things.values()), self._now)
        for finding in pod_has_slices(world):
            self._find(version, finding.invariant, finding.object, finding.words)
        all_held = world.held_by.get(pod.metadata.uid, [])
        for held in all_held:
            if not held.created:
                self._find(version, Invariant.SLICE_EXISTS, named(pod), f"its gate went before its slice: {held}")
        self._claim(pod, all_held, version)

    def _claim(self, pod: Pod, all_held: list[Held], version: int) -> None:
        """It holds this from now on, and nobody else may."""
        mine, given = [_hold(pod, held) for held in all_held], set(uuids(pod))
        for theirs in [hold for holds in self.holds.values() for hold in holds]:
            if any(one.gpu == theirs.gpu and one.mask & theirs.mask for one in mine):
                words = f"got a place on {theirs.gpu} that {theirs.pod} holds"
                self._find(version, Invariant.NO_OVERLAP, named(pod), words)
            if theirs.uuid in given:
                self._find(version, Invariant.UUID_ONCE, named(pod), f"got {theirs.uuid}, which {theirs.pod} holds")
        self.holds[pod.metadata.uid] = mine

    def _instaslice(self, thing: Instaslice, event: Event) -> None:
        name = thing.metadata.name
        if event.gone:
            # With its node; what becomes of the pods there is for the end to tell.
            self._things.pop(name, None)
            return
        self._things[name] = thing
        if _crowded(thing):
            for finding in no_overlap(World([], [], [thing], self._now)):
                if not finding.passing:
                    self._find(event.version, finding.invariant, finding.object, finding.words)
        self._nobody_lost(thing, event.version)

    def _nobody_lost(self, thing: Instaslice, version: int) -> None:
        present = {held.allocation.id: held for held in held_on(thing)}
        for uid, holds in self.holds.items():
            pod = self._pods.get(uid)
            # A pod that is being deleted on a lost node is given up before it is gone; its place still counts as held.
            if pod is None or pod.metadata.deletion_timestamp is not None:
                continue
            for hold in holds:
                if hold.node == thing.metadata.name and hold.id not in self._lost:
                    self._still_there(hold, present.get(hold.id), version)

    def _still_there(self, hold: Hold, held: Held | None, version: int) -> None:
        if held is None:
            words = f"lost its allocation {hold.id} on {hold.node} while it ran"
        elif held.leaving or not held.created:
            words = f"lost its slice while it ran: {held}, slice {held.made.state if held.made else 'not reported'}"
        elif held.made is not None and hold.uuid and held.made.mig_uuid != hold.uuid:
            words = f"its slice {hold.uuid} became {held.made.mig_uuid}"
        else:
            return
        self._lost.add(hold.id)
        self._find(version, Invariant.SLICE_EXISTS, hold.pod, words)

    def _find(self, version: int, invariant: Invariant, about: str, words: str) -> None:
        finding = Finding(invariant=invariant, object=about, words=f"{words} (at version {version})")
        self.findings.append(finding)


def _hold(pod: Pod, held: Held) -> Hold:
    a = held.allocation
    mask = Placement(a.profile, a.start, a.size).mask
    return Hold(named(pod), held.node, a.gpu, mask, a.id, held.made.mig_uuid if held.made else None)


def _crowded(thing: Instaslice) -> bool:
    """Whether two allocations overlap: cheap, for every write."""
    taken: dict[str, int] = {}
    for held in held_on(thing):
        a = held.allocation
        mask = Placement(a.profile, a.start, a.size).mask
        if held.gone:
            continue
        if taken.get(a.gpu, 0) & mask:
            return True
        taken[a.gpu] = taken.get(a.gpu, 0) | mask
    return False
