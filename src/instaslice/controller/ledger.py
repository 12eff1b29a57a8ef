"""Who was promised what, in memory: the controller's truth, rebuilt from the Instaslice objects at start.

Fed with what agents report and told what is decided; knows no network and no clock. The spec of a node follows from
it, so writing that spec late, or twice, loses nothing.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    READY,
    Allocation,
    Health,
    Instaslice,
    PodRef,
    PreparedSlice,
    SliceState,
    Spec,
    State,
    Status,
    Truth,
)
from instaslice.api.summary import holds_slot
from instaslice.controller.promises import Promise, Slot, attempt
from instaslice.controller.wants import Wanted
from instaslice.geometry import Model
from instaslice.placement import FleetError, GpuId, Grant, NodeName, Placer, Plan, Policy
from instaslice.placement.fleet import Fleet

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Book:
    """One node: its slots by allocation id, and what else takes room on its GPUs."""

    name: NodeName
    slots: dict[str, Slot] = field(default_factory=dict)
    gpus: dict[GpuId, Model] = field(default_factory=dict)
    closed: dict[GpuId, dict[str, str]] = field(default_factory=dict)
    """GPU → why it is offered to nobody: kind of reason → words. Open where there is none."""
    strangers: dict[str, Grant] = field(default_factory=dict)
    """Slices on the hardware that no slot of ours is for, by their id in the status."""
    aside: dict[Grant, str] = field(default_factory=dict)
    """Places that failed, and why: held, but by no pod, so that nobody is sent there."""
    boot_id: str | None = None
    unready: str = ""
    """Why no pod could start there, in the words of its agent."""

    def spec(self) -> Spec:
        return Spec(allocations=tuple(slot.allocation for slot in self.slots.values()))


@dataclass(slots=True)
class News:
    """What a report changed: pods to look at again, whether room came free, places that were set aside."""

    pods: set[str] = field(default_factory=set)
    freed: bool = False
    aside: list[Grant] = field(default_factory=list)


class Ledger:
    def __init__(self, policy: Policy) -> None:
        self.fleet = Fleet()
        self.placer = Placer(self.fleet, policy)
        self.books: dict[NodeName, Book] = {}
        self.promises: dict[str, Promise] = {}
        """By the uid of the pod; a promise that was taken back is not here, though its slots may still be in a book."""
        self.rivals: dict[str, list[Promise]] = {}
        """All promises that were found for a pod, of which `keep` leaves one: two leaders may have made one each."""
        self._models: dict[ModelGeometry, Model] = {}

    # What agents report ---------------------------------------------------------------------------------------------

    def report(self, thing: Instaslice, now: float) -> News:
        """Take in an object. Of one that is new here the spec counts too: it is what was promised before us."""
        name = NodeName(thing.metadata.name)
        news = News()
        book = self.books.get(name)
        adopt = book is None
        if book is None:
            book = self.books[name] = Book(name)
        self._gpus(book, thing.status, news)
        self._serving(book, thing.status, news)
        if adopt:
            self._adopt(book, thing.spec, now, news)
        self._slices(book, thing.status, news)
        return news

    def forget(self, node: NodeName) -> set[str]:
        """The object is gone, and with it all that was promised there. The pods that this concerns."""
        book = self.books.pop(node, None)
        if book is None:
            return set()
        for gpu in book.gpus:
            self.fleet.remove_gpu(gpu)
        lost = {slot.allocation.pod.uid for slot in book.slots.values()} & self.promises.keys()
        lost = {uid for uid in lost if self.promises[uid].node == node}
        for uid in lost:
            del self.promises[uid]
        return lost

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
                state=State.CREATING,
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
            promise.become(State.DELETING, reason)
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
            each.become(State.DELETING, "the pod was promised other slices too")
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
    ) -> bool:
        """Promise again what a running pod holds by its annotation, where the agent reports just these slices and
        knows of no allocation for them: their object was deleted and made anew."""
        book = self.books.get(node)
        if book is None or len(uuids) != len(wants) or not all(uuid in book.strangers for uuid in uuids):
            return False
        grants = tuple(book.strangers[uuid] for uuid in uuids)
        if sorted(str(grant.want) for grant in grants) != sorted(want.profile for want in wants):
            return False
        for uuid in uuids:
            self.fleet.give_back(book.strangers.pop(uuid))
        self.promise(pod, wants, Plan(grants), attempt, now, cpu, memory).become(State.UNGATED)
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

    def _gpus(self, book: Book, status: Status, news: News) -> None:
        there = {GpuId(gpu.uuid): gpu for gpu in status.gpus}
        models = {model.name: model for model in status.models}
        for gone in book.gpus.keys() - there.keys():
            self._lose(book, gone, news)
        for uuid, gpu in there.items():
            if gpu.model not in models:
                log.error("instaslice %s: GPU %s is of a model %s that is not listed", book.name, uuid, gpu.model)
                continue
            model = self._model(models[gpu.model])
            if book.gpus.get(uuid, model) != model:
                self._lose(book, uuid, news)
            if uuid not in book.gpus:
                try:
                    self.fleet.add_gpu(uuid, book.name, model)
                except FleetError as error:
                    # Its node was renamed, and the object under the old name is still there; or two agents run.
                    log.error("instaslice %s: GPU %s is left out: %s", book.name, uuid, error)
                    continue
                book.gpus[uuid] = model
                news.freed = True
            if (gpu.health is Health.UNHEALTHY) != ("health" in book.closed.get(uuid, ())):
                news.pods |= {each.allocation.pod.uid for each in book.slots.values() if each.allocation.gpu == uuid}
            if gpu.health is Health.UNHEALTHY:
                self.close(uuid, book.name, "health", gpu.reason or "unhealthy")
            elif self.reopen(uuid, book.name, "health"):
                news.freed = True
                self._well(book, uuid, news)
        if book.boot_id != status.boot_id:
            book.boot_id = status.boot_id
            for uuid in book.gpus:
                self._well(book, uuid, news)

    def _serving(self, book: Book, status: Status, news: News) -> None:
        """Nobody is sent where the agent says that no pod could start: its kubelet is silent, say."""
        ready = next((each for each in status.conditions if each.type == READY), None)
        book.unready = (ready.message or ready.reason) if ready is not None and ready.status is Truth.FALSE else ""
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
        self.fleet.remove_gpu(gpu)
        del book.gpus[gpu]
        book.closed.pop(gpu, None)
        for slot in list(book.slots.values()):
            if slot.allocation.gpu == gpu:
                del book.slots[slot.allocation.id]
                news.pods.add(slot.allocation.pod.uid)
                promise = self.promises.get(slot.allocation.pod.uid)
                if promise is not None and slot in promise.slots:
                    del self.promises[promise.uid]
                    promise.become(State.DELETING, f"GPU {gpu} is gone")
        book.strangers = {name: grant for name, grant in book.strangers.items() if grant.gpu != gpu}
        book.aside = {grant: why for grant, why in book.aside.items() if grant.gpu != gpu}

    def _adopt(self, book: Book, spec: Spec, now: float, news: News) -> None:
        adopted: dict[tuple[str, str], Promise] = {}
        for allocation in spec.allocations:
            slot = Slot(book.name, allocation)
            try:
                self.fleet.take(slot.grant)
            except FleetError as error:
                # Written by another hand, or its GPU is no longer there: it cannot be kept.
                log.error("instaslice %s: allocation %s is dropped: %s", book.name, allocation.id, error)
                continue
            book.slots[allocation.id] = slot
            uid = allocation.pod.uid
            news.pods.add(uid)
            if allocation.state in (State.DELETING, State.DELETED, State.FAILED):
                slot.become(State.DELETING, allocation.reason)
                continue
            key = uid, attempt(allocation)
            if key not in adopted:
                adopted[key] = Promise(uid, book.name, now)
                before = [self.promises[uid]] if uid in self.promises else []
                self.rivals.setdefault(uid, before).append(adopted[key])
            adopted[key].slots.append(slot)
            self.promises.setdefault(uid, adopted[key])

    def _slices(self, book: Book, status: Status, news: News) -> None:
        strangers: dict[str, PreparedSlice] = {}
        for made in status.slices:
            slot = book.slots.get(made.id)
            if slot is None:
                if holds_slot(made):
                    strangers[made.id] = made
            elif slot.made != made:
                slot.made = made
                news.pods.add(slot.allocation.pod.uid)
                if made.state is SliceState.CREATED and slot.allocation.state is State.CREATING:
                    slot.become(State.CREATED)
                elif made.state is SliceState.FAILED and slot.allocation.state is State.CREATING:
                    slot.refused = made.reason or "the agent gave no reason"
                elif made.state is SliceState.DELETED and slot.allocation.state is State.DELETING:
                    self._free(book, slot, news)
        self._strangers(book, strangers, news)

    def _free(self, book: Book, slot: Slot, news: News) -> None:
        del book.slots[slot.allocation.id]
        if slot.refused:
            book.aside[slot.grant] = slot.refused
            news.aside.append(slot.grant)
        else:
            self.fleet.give_back(slot.grant)
            news.freed = True

    def _strangers(self, book: Book, there: dict[str, PreparedSlice], news: News) -> None:
        for gone in book.strangers.keys() - there.keys():
            self.fleet.give_back(book.strangers.pop(gone))
            news.freed = True
        for name, made in there.items():
            if name in book.strangers or GpuId(made.gpu) not in book.gpus:
                continue
            grant = Grant(book.name, GpuId(made.gpu), made.profile, made.start, made.size)
            try:
                self.fleet.take(grant)
            except FleetError as error:
                # We promised that place just now. The agent will refuse, and the pod is placed elsewhere.
                log.warning("instaslice %s: slice %s lies where something was promised: %s", book.name, name, error)
                continue
            book.strangers[name] = grant

    def _model(self, geometry: ModelGeometry) -> Model:
        found = self._models.get(geometry)
        if found is None:
            found = self._models[geometry] = geometry.model()
        return found
