"""Who was promised what, in memory: the controller's truth, rebuilt from the Instaslice objects at start.

Fed with what agents report and told what is decided; knows no network and no clock. The spec of a node follows from
it, so writing that spec late, or twice, loses nothing.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    NOTHING_REPORTED,
    READY,
    Allocation,
    AllocationState,
    GpuStatus,
    Health,
    Instaslice,
    InstasliceSpec,
    InstasliceStatus,
    PodRef,
    PreparedSlice,
    SliceState,
    Truth,
)
from instaslice.api.summary import holds_slot
from instaslice.controller.promises import Promise, Slot, attempt
from instaslice.controller.wants import Wanted
from instaslice.geometry import Model, States, TooManyLayouts
from instaslice.placement import FleetError, GpuId, Grant, NodeName, Placer, Plan, Policy, UnknownGpu
from instaslice.placement.fleet import Fleet

log = logging.getLogger(__name__)

UNREADABLE = "unreadable"
"""The kind of reason for which GPUs are closed of which, or of whose object, nobody can make sense."""


@dataclass(slots=True)
class Book:
    """One node: its slots by allocation id, and what else takes room on its GPUs."""

    name: NodeName
    status: InstasliceStatus = NOTHING_REPORTED
    """What its agent reported last."""
    slots: dict[str, Slot] = field(default_factory=dict)
    """What stands in the spec. The fleet holds those on `gpus`."""
    gpus: dict[GpuId, Model] = field(default_factory=dict)
    """Its GPUs in the fleet."""
    left_out: dict[GpuId, str] = field(default_factory=dict)
    """Reported GPUs that nothing is placed on by what is said of them, and why. Slots on them stay: who has one keeps
    it."""
    closed: dict[GpuId, dict[str, str]] = field(default_factory=dict)
    """GPU → why it is offered to nobody: kind of reason → words. Open where there is none."""
    strangers: dict[str, Grant] = field(default_factory=dict)
    """Slices on the hardware that no slot of ours is for, by their id in the status."""
    aside: dict[Grant, str] = field(default_factory=dict)
    """Places that failed, and why: held, but by no pod, so that nobody is sent there."""
    boot_id: str | None = None
    set_aside: bool = False
    """Whether the object as it is now cannot be read: what is here is what it was before."""
    unready: str = ""
    """Why no pod could start there, in the words of its agent."""

    def spec(self) -> InstasliceSpec:
        return InstasliceSpec(allocations=tuple(slot.allocation for slot in self.slots.values()))


@dataclass(slots=True)
class News:
    """What a report changed: pods to look at again, whether room came free, places that were set aside, nodes other
    than the one reported whose spec may have changed."""

    pods: set[str] = field(default_factory=set)
    freed: bool = False
    aside: list[Grant] = field(default_factory=list)
    nodes: set[NodeName] = field(default_factory=set)


class Ledger:
    def __init__(self, policy: Policy, alive: Callable[[NodeName], bool] = lambda _: True) -> None:
        """`alive` says of a node whether it is there and ready: of two that report one GPU, such a one has it."""
        self._alive = alive
        self.fleet = Fleet()
        self.placer = Placer(self.fleet, policy)
        self.books: dict[NodeName, Book] = {}
        self.promises: dict[str, Promise] = {}
        """By the uid of the pod; a promise that was taken back is not here, though its slots may still be in a book."""
        self.rivals: dict[str, list[Promise]] = {}
        """All promises that were found for a pod, of which `keep` leaves one: two leaders may have made one each."""
        self._models: dict[ModelGeometry, Model | str] = {}
        """A str: why nobody could place by it."""
        self._vacated = False
        """Whether a GPU left the fleet since it was asked who else reports it."""

    # What agents report ---------------------------------------------------------------------------------------------

    def report(self, thing: Instaslice, now: float) -> News:
        """Take in an object. Of one that is new here the spec counts too: it is what was promised before us."""
        name = NodeName(thing.metadata.name)
        news = News()
        book = self.books.get(name)
        adopt = book is None
        if book is None:
            book = self.books[name] = Book(name)
        book.status, book.set_aside = thing.status, False
        try:
            self._gpus(book, news)
            self._serving(book, book.status, news)
            if adopt:
                self._adopt(book, thing.spec, now, news)
            self._slices(book, book.status, news)
        except Exception:
            if adopt:
                # Its spec counts once more when it can be read: what is promised there must not be given to others.
                self.forget(name)
            raise
        self._fill_vacancies(news)
        return news

    def set_aside(self, node: NodeName, words: str) -> None:
        """Nobody can make sense of the object as it is now: what was promised there stays promised, and nothing more
        is, until the next `report`. Safe to repeat."""
        book = self.books.get(node)
        if book is not None:
            book.set_aside = True
            for gpu in book.gpus:
                self.close(gpu, node, UNREADABLE, words)

    def forget(self, node: NodeName) -> News:
        """The object is gone, and with it all that was promised there."""
        news = News()
        book = self.books.pop(node, None)
        if book is None:
            return news
        for gpu in list(book.gpus):
            self._take_out(book, gpu)
        lost = {slot.allocation.pod.uid for slot in book.slots.values()} & self.promises.keys()
        news.pods = {uid for uid in lost if self.promises[uid].node == node}
        for uid in news.pods:
            del self.promises[uid]
        for slot in book.slots.values():
            uid = slot.allocation.pod.uid
            if uid in self.rivals:
                self.rivals[uid] = [each for each in self.rivals[uid] if each.node != node]
        self._fill_vacancies(news)
        return news

    def reconsider(self) -> News:
        """Look again at the GPUs that two nodes report: one of the nodes has come, gone, or is ready or not."""
        news = News()
        waiting = [each for each in self.books.values() if each.left_out and not each.set_aside]
        for book in sorted(waiting, key=lambda each: (not self._alive(each.name), each.name)):
            self._gpus(book, news)
            self._serving(book, book.status, news)
            self._slices(book, book.status, news)
            news.nodes.add(book.name)
        self._vacated = False
        return news

    # What is decided ------------------------------------------------------------------------------------------------

    def promise(
        self, pod: PodRef, wants: Sequence[Wanted], plan: Plan, attempt: str, now: float, cpu: int = 0, memory: int = 0
    ) -> Promise:
        """Hold a plan for a pod. `attempt` makes the ids of this try its own. Raises NotFree where it is stale."""
        self.placer.commit(plan)
        promise = Promise(pod.uid, plan.node, now)
        book = self.books[plan.node]
        for number, (want, grant) in enumerate(zip(wants, plan.grants, strict=True)):
            # CPU and memory are the pod's as a whole: they stand at its first slice, so that a sum over all is right.
            first = number == 0
            allocation = Allocation(
                id=f"{pod.uid}-{attempt}-{number}",
                pod=pod,
                container=want.container,
                profile=str(grant.want),
                gpu=grant.gpu,
                start=grant.start,
                size=grant.size,
                state=AllocationState.CREATING,
                cpu=cpu if first else 0,
                memory=memory if first else 0,
            )
            slot = Slot(plan.node, allocation)
            promise.slots.append(slot)
            book.slots[allocation.id] = slot
        self.promises[pod.uid] = promise
        return promise

    def take_back(self, uid: str, reason: str) -> Promise | None:
        """The pod needs its slices no longer. Their places stay held until the agent has destroyed them."""
        promise = self.promises.pop(uid, None)
        if promise is not None:
            promise.become(AllocationState.DELETING, reason)
        return promise

    def keep(self, uid: str, uuids: Sequence[str]) -> list[Promise]:
        """Of several promises for one pod keep the one that it was told of by these UUIDs, or the first; the others,
        which are taken back."""
        rivals = self.rivals.pop(uid, [])
        kept = next((each for each in rivals if uuids and sorted(each.uuids) == sorted(uuids)), None)
        if kept is not None:
            self.promises[uid] = kept
        others = [each for each in rivals if each is not self.promises.get(uid)]
        for each in others:
            each.become(AllocationState.DELETING, "the pod was promised other slices too")
        return others

    def restore(
        self,
        pod: PodRef,
        wants: Sequence[Wanted],
        node: NodeName,
        uuids: Sequence[str],
        attempt: str,
        now: float,
        cpu: int = 0,
        memory: int = 0,
        disputed: Collection[str] = (),
    ) -> bool:
        """Promise again what a pod that is bound to the node holds by its annotation, where the agent reports just
        these slices and knows of no allocation for them: their object was deleted and made anew.

        An annotation alone is not believed. Where the agent can ask a kubelet, that one has to name this pod as the
        holder of each; where there is no kubelet, nobody knows better, unless the slice is `disputed`: another pod
        there says so too.
        """
        book = self.books.get(node)
        if book is None or not wants or len(uuids) != len(wants):
            return False
        held = {each.id: each.holder for each in book.status.slices}
        left = {
            uuid: book.strangers[uuid]
            for uuid in uuids
            if uuid in book.strangers and _holds(pod, held.get(uuid, ""), disputed=uuid in disputed)
        }
        found: list[str] = []
        for want in wants:
            uuid = next((each for each, grant in left.items() if grant.want == want.profile), None)
            if uuid is None:
                return False
            found.append(uuid)
            del left[uuid]
        grants = tuple(book.strangers[uuid] for uuid in found)
        for uuid in found:
            self.fleet.give_back(book.strangers.pop(uuid))
        self.promise(pod, wants, Plan(grants), attempt, now, cpu, memory).become(AllocationState.UNGATED)
        return True

    def close(self, gpu: GpuId, node: NodeName, kind: str, words: str) -> None:
        """Offer a GPU to nobody, for this reason. Safe to repeat."""
        self.books[node].closed.setdefault(gpu, {})[kind] = words
        self.fleet.close(gpu)

    def reopen(self, gpu: GpuId, node: NodeName, kind: str) -> bool:
        """That reason is gone; whether the GPU is offered again."""
        book = self.books.get(node)
        if book is None or gpu not in book.gpus:
            return False
        reasons = book.closed.get(gpu, {})
        if reasons.pop(kind, None) is None or reasons:
            return False
        del book.closed[gpu]
        self.fleet.open(gpu)
        return True

    def bring_back(self, node: NodeName, place: Grant) -> bool:
        """A place that was set aside may be tried again; whether it was set aside."""
        book = self.books.get(node)
        if book is None or place not in book.aside:
            return False
        del book.aside[place]
        self.fleet.give_back(place)
        return True

    # Inside ---------------------------------------------------------------------------------------------------------

    def _gpus(self, book: Book, news: News) -> None:
        there = {GpuId(gpu.uuid): gpu for gpu in book.status.gpus}
        listed = {model.name: model for model in book.status.models}
        for gone in (book.gpus.keys() | book.left_out.keys()) - there.keys():
            self._lose(book, gone, news)
        left_out: dict[GpuId, str] = {}
        for uuid, gpu in there.items():
            model = self._model(gpu, listed)
            if isinstance(model, str):
                left_out[uuid] = model
            else:
                if book.gpus.get(uuid, model) != model:
                    self._lose(book, uuid, news)
                if uuid not in book.gpus and (why := self._add(book, uuid, model, news)):
                    left_out[uuid] = why
            if uuid in left_out and left_out[uuid] != book.left_out.get(uuid):
                log.error("instaslice %s: nothing is placed on GPU %s: %s", book.name, uuid, left_out[uuid])
            if uuid not in book.gpus:
                continue
            if uuid in left_out:
                self.close(uuid, book.name, UNREADABLE, left_out[uuid])
            elif self.reopen(uuid, book.name, UNREADABLE):
                news.freed = True
            if (gpu.health is Health.UNHEALTHY) != ("health" in book.closed.get(uuid, ())):
                news.pods |= {each.allocation.pod.uid for each in book.slots.values() if each.allocation.gpu == uuid}
            if gpu.health is Health.UNHEALTHY:
                self.close(uuid, book.name, "health", gpu.reason or "unhealthy")
            elif self.reopen(uuid, book.name, "health"):
                news.freed = True
                self._well(book, uuid, news)
        book.left_out = left_out
        if book.boot_id != book.status.boot_id:
            book.boot_id = book.status.boot_id
            for uuid in book.gpus:
                self._well(book, uuid, news)

    def _add(self, book: Book, gpu: GpuId, model: Model, news: News) -> str:
        """Have a GPU in the fleet under this node, with what is promised on it. Why not, where another node has it: one
        that was registered under a new name, say, while the old one is still there."""
        try:
            owner = self.fleet.node_of[self.fleet.number(gpu)].name
        except UnknownGpu:
            pass
        else:
            if self._alive(owner) or not self._alive(book.name):
                return f"node {owner} reports it too"
            other = self.books[owner]
            self._take_out(other, gpu)
            other.left_out[gpu] = f"node {book.name} reports it too"
            log.error("instaslice %s: GPU %s: node %s reports it too, and is ready", owner, gpu, book.name)
        self.fleet.add_gpu(gpu, book.name, model)
        book.gpus[gpu] = model
        news.freed = True
        for slot in [each for each in book.slots.values() if each.allocation.gpu == gpu]:
            try:
                self.fleet.take(slot.grant)
            except FleetError as error:
                log.error("instaslice %s: allocation %s is dropped: %s", book.name, slot.allocation.id, error)
                self._drop(book, slot, str(error), news)
        return ""

    def _take_out(self, book: Book, gpu: GpuId) -> None:
        """The GPU is this node's no more; what is promised on it stays in the spec."""
        self.fleet.remove_gpu(gpu)
        del book.gpus[gpu]
        book.closed.pop(gpu, None)
        book.strangers = {name: grant for name, grant in book.strangers.items() if grant.gpu != gpu}
        book.aside = {grant: why for grant, why in book.aside.items() if grant.gpu != gpu}
        self._vacated = True

    def _fill_vacancies(self, news: News) -> None:
        """A GPU that has left one node may be reported by another."""
        if self._vacated:
            more = self.reconsider()
            news.pods |= more.pods
            news.freed |= more.freed
            news.aside += more.aside
            news.nodes |= more.nodes

    def _serving(self, book: Book, status: InstasliceStatus, news: News) -> None:
        """Nobody is sent where the agent says that no pod could start: its kubelet is silent, say."""
        ready = next((each for each in status.conditions if each.type == READY), None)
        before = book.unready
        book.unready = (ready.message or ready.reason) if ready is not None and ready.status is Truth.FALSE else ""
        if bool(before) != bool(book.unready):
            # Those that wait behind their gates, for it to serve again.
            news.pods |= {slot.allocation.pod.uid for slot in book.slots.values()}
        for gpu in book.gpus:
            if book.unready:
                self.close(gpu, book.name, "unready", book.unready)
            elif self.reopen(gpu, book.name, "unready"):
                news.freed = True

    def _well(self, book: Book, gpu: GpuId, news: News) -> None:
        """The agent says that a GPU is well, or its machine started anew: what failed there may be tried again."""
        for place in [each for each in book.aside if each.gpu == gpu]:
            news.freed |= self.bring_back(book.name, place)

    def _lose(self, book: Book, gpu: GpuId, news: News) -> None:
        """A GPU is gone with all that was on it."""
        if gpu in book.gpus:
            self._take_out(book, gpu)
        for slot in [each for each in book.slots.values() if each.allocation.gpu == gpu]:
            self._drop(book, slot, f"GPU {gpu} is gone", news)

    def _drop(self, book: Book, slot: Slot, why: str, news: News) -> None:
        """A slot is no more, and with it the promise that it was part of."""
        uid = slot.allocation.pod.uid
        del book.slots[slot.allocation.id]
        news.pods.add(uid)
        promise = self.promises.get(uid)
        if promise is not None and slot in promise.slots:
            del self.promises[uid]
            promise.become(AllocationState.DELETING, why)

    def _adopt(self, book: Book, spec: InstasliceSpec, now: float, news: News) -> None:
        adopted: dict[tuple[str, str], Promise] = {}
        for allocation in spec.allocations:
            slot = Slot(book.name, allocation)
            try:
                if allocation.id in book.slots:
                    raise FleetError("there is another of that id")
                if slot.grant.gpu not in book.left_out:
                    self._take(book, slot.grant)
            except FleetError as error:
                # Written by another hand, or its GPU is no longer there: it cannot be kept.
                log.error("instaslice %s: allocation %s is dropped: %s", book.name, allocation.id, error)
                continue
            book.slots[allocation.id] = slot
            uid = allocation.pod.uid
            news.pods.add(uid)
            if allocation.state in (AllocationState.DELETING, AllocationState.DELETED, AllocationState.FAILED):
                slot.become(AllocationState.DELETING, allocation.reason)
                continue
            key = uid, attempt(allocation)
            if key not in adopted:
                adopted[key] = Promise(uid, book.name, now)
                before = [self.promises[uid]] if uid in self.promises else []
                self.rivals.setdefault(uid, before).append(adopted[key])
            adopted[key].slots.append(slot)
            self.promises.setdefault(uid, adopted[key])

    def _slices(self, book: Book, status: InstasliceStatus, news: News) -> None:
        strangers: dict[str, PreparedSlice] = {}
        for made in status.slices:
            slot = book.slots.get(made.id)
            if slot is None:
                if holds_slot(made):
                    strangers[made.id] = made
            elif slot.made != made:
                slot.made = made
                news.pods.add(slot.allocation.pod.uid)
                if made.state is SliceState.CREATED and slot.allocation.state is AllocationState.CREATING:
                    slot.become(AllocationState.CREATED)
                elif made.state is SliceState.FAILED and slot.allocation.state is AllocationState.CREATING:
                    slot.refused = made.reason or "the agent gave no reason"
                elif made.state is SliceState.DELETED and slot.allocation.state is AllocationState.DELETING:
                    self._free(book, slot, news)
        self._strangers(book, strangers, news)

    def _free(self, book: Book, slot: Slot, news: News) -> None:
        del book.slots[slot.allocation.id]
        if slot.refused and slot.grant.gpu in book.gpus:
            book.aside[slot.grant] = slot.refused
            news.aside.append(slot.grant)
        elif slot.grant.gpu in book.gpus:
            self.fleet.give_back(slot.grant)
            news.freed = True

    def _strangers(self, book: Book, there: dict[str, PreparedSlice], news: News) -> None:
        grants = {
            name: Grant(book.name, GpuId(made.gpu), made.profile, made.start, made.size) for name, made in there.items()
        }
        # One that is half made has its number for a name, which the next may have elsewhere.
        for gone in [name for name, grant in book.strangers.items() if grants.get(name) != grant]:
            self.fleet.give_back(book.strangers.pop(gone))
            news.freed = True
        for name, grant in grants.items():
            if name in book.strangers or grant.gpu not in book.gpus:
                continue
            try:
                self._take(book, grant)
            except FleetError as error:
                # We promised that place just now. The agent will refuse, and the pod is placed elsewhere.
                log.warning("instaslice %s: slice %s lies where something was promised: %s", book.name, name, error)
                continue
            book.strangers[name] = grant

    def _take(self, book: Book, grant: Grant) -> None:
        """Hold a place on a GPU of this node. Raises FleetError, also where the GPU is another's."""
        if grant.gpu not in book.gpus:
            raise UnknownGpu(f"node {book.name} has no GPU {grant.gpu}")
        self.fleet.take(grant)

    def _model(self, gpu: GpuStatus, listed: Mapping[str, ModelGeometry]) -> Model | str:
        """The model of a GPU, or why nothing can be placed by what is said of it."""
        geometry = listed.get(gpu.model)
        if geometry is None:
            return f"it is of a model {gpu.model} that is not listed"
        found = self._models.get(geometry)
        if found is None:
            found = self._models[geometry] = _checked(geometry.model())
        return found


def _holds(pod: PodRef, holder: str | None, *, disputed: bool) -> bool:
    return holder == pod.uid or (holder is None and not disputed)


def _checked(model: Model) -> Model | str:
    """The model, or why no GPU is like that: nothing may be placed by it, and its states are not to be listed."""
    for profile in model.profiles:
        for start in profile.starts:
            if start + profile.size > model.memory_slices:
                return f"{profile.name} at {start} takes {profile.size} of {model.memory_slices} memory slices"
    try:
        States.of(model)
    except TooManyLayouts as error:
        return str(error)
    return model
