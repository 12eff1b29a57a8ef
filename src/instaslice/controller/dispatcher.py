"""Decides: which pods get slices where, when they are let go, when slices are taken back.

Level-based and without a network: it is told what is there (nodes, Instaslice objects, pods), looks at what is and
not at what happened, and gives orders. The controller carries them out; `explain` and tests give it other ears.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from math import ceil
from random import Random
from typing import TypeVar

from instaslice.api import names
from instaslice.api.instaslice import AllocationState, Instaslice, PodRef
from instaslice.controller import admission
from instaslice.controller.agenda import Agenda
from instaslice.controller.asks import Ask, Asks
from instaslice.controller.ledger import Book, Ledger, News
from instaslice.controller.line import Line
from instaslice.controller.orders import Limits, Orders
from instaslice.controller.patches import pinned
from instaslice.controller.patience import Patience
from instaslice.controller.promises import Promise
from instaslice.controller.quarantine import Kind, Quarantine
from instaslice.controller.requests import Amounts, effective
from instaslice.controller.rooms import Rooms
from instaslice.controller.scheduling.filters import Filters
from instaslice.controller.scheduling.refused_nodes import owner
from instaslice.controller.wants import gated, held_by_others, lost_if_it_fails, refused_by_scheduler, unbound
from instaslice.kube.core import Namespace, Node, Pod
from instaslice.kube.storage import StorageObject
from instaslice.placement import Demand, FleetError, Grant, NodeName, Placer, Plan, Policy, Refusal, Short
from instaslice.placement.pools import bits

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_RETRY = 5.0
LONGEST_RETRY = 600.0
ILL = ("GpuUnhealthy", "NotBound", "SliceLost", "SetAside")
"""What a running pod was told and is to be told the end of."""
LOOK_AGAIN, SHORTEST_LOOK = 10.0, 0.1
"""Seconds between two thoughts about for whom to keep room."""
STEP_SECONDS = 0.02
"""After which a pass, or a choice for whom to keep room, is interrupted, so that everything else has its turn."""
MOST_ASKED = 50
"""Of those who wait, the first of so many shapes are asked whether they need what another pod does not use."""
SLOW = 5.0
"""Seconds after which a pod is told that its slices are being made; mostly they are made before it could read that."""


class Dispatcher:
    def __init__(self, orders: Orders, policy: Policy, clock: Callable[[], float], rng: Random, limits: Limits) -> None:
        self.ledger = Ledger(policy, self._ready)
        self.line = Line()
        index = self.ledger.fleet.index
        self.rooms = Rooms(index.changes())
        self.quarantine = Quarantine()
        self.agenda = Agenda(partial(self.quarantine.failed, "what is to be done after a deadline"))
        self.limits = limits
        self.patience = Patience(self.ledger, limits.patience)
        self.nodes: dict[NodeName, Node] = {}
        self.filters = Filters(self.nodes)
        self.pods: dict[str, Pod] = {}
        """Those that asked for slices, by uid."""
        self.arrivals = 0
        self._orders = orders
        self._clock = clock
        self._rng = rng
        self._asks: dict[str, Ask] = {}
        self._admission_changes = index.changes()
        self._new_asks = Asks(self.nodes, self._admission_changes, self.rooms, self.ledger.placer)
        self._new: set[str] = set()
        """In line since they were last asked for."""
        self._outdated: dict[str, None] = {}
        """Those whose shape has to be found again."""
        self._homeless: set[str] = set()
        """Ungated pods whose promise is lost."""
        self._given_up: set[NodeName] = set()
        """Nodes that have not been ready for too long."""
        self._shut_counts: dict[str, int] = {}
        """How often a pod was not let go though its slices were made."""
        self.held_back: dict[str, str] = {}
        """Pods that are not placed again for a while for that reason."""
        self._failures: dict[Grant, int] = {}
        self._again = 0.0
        """When to think again about keeping room."""
        self._unkeepable: set[str] = set()
        """Pods that room cannot be kept for, of those that were thought about since then."""
        self._pass_complete = True
        self._complete = False

    @property
    def due(self) -> float | None:
        """When `decide` has to be called though nothing woke it."""
        if not self._pass_complete:
            return self._clock()
        again = self._again if len(self.line) else None
        return min((each for each in (self.agenda.next, again) if each is not None), default=None)

    # What is there --------------------------------------------------------------------------------------------------

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        name = NodeName(_changed(old, new).metadata.name)
        self.quarantine.release(Kind.NODE, name)
        try:
            self._reconcile_node(name, new)
        except Exception as error:
            self.set_aside(Kind.NODE, name, error)
        if new is None:
            self.quarantine.release(Kind.NODE, name)

    def instaslice_changed(self, old: Instaslice | None, new: Instaslice | None) -> None:
        name = NodeName(_changed(old, new).metadata.name)
        self.quarantine.release(Kind.INSTASLICE, name)
        try:
            self._reconcile_instaslice(name, old, new)
        except Exception as error:
            self.set_aside(Kind.INSTASLICE, name, error)
        if new is None:
            self.quarantine.release(Kind.INSTASLICE, name)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Any pod of the cluster: all take CPU and memory."""
        uid = _changed(old, new).metadata.uid
        self.quarantine.release(Kind.POD, uid)
        try:
            self._reconcile_pod(uid, old, new)
        except Exception as error:
            if new is not None and (uid in self.pods or names.REQUESTED in new.metadata.annotations):
                self.pods[uid] = new
            self.set_aside(Kind.POD, uid, error)
        if new is None:
            self.quarantine.release(Kind.POD, uid)

    def set_aside(self, kind: Kind, key: str, error: Exception) -> None:
        """Leave an object alone until it changes, which could not be handled or cannot be read. Nobody is sent to such
        a node, and such a pod does not wait any more; but what was promised stays promised."""
        why = self.quarantine.add(kind, key, error)
        match kind:
            case Kind.POD:
                self.line.leave(key)
                self._homeless.discard(key)
                self._orders.tell(key)
            case Kind.NODE:
                self.filters.node_changed(self.nodes.pop(NodeName(key), None), None)
                self.rooms.remove_node(key)
                self._admission_changes.add(NodeName(key))
                self._room_came()  # where pods are spread over nodes, one less may be what they wait for
            case Kind.INSTASLICE:
                self.ledger.set_aside(NodeName(key), f"its Instaslice object is set aside ({why})")

    def _reconcile_node(self, name: NodeName, new: Node | None) -> None:
        if new is None:
            self._node_gone(name)
            return
        old = self.nodes.get(name)
        changed = self.rooms.set_node(new)
        self.nodes[name] = new
        if old is None or admission.facts(old) != admission.facts(new):
            self._admission_changes.add(name)
            self.filters.node_changed(old, new)
            changed = True
        if new.ready:
            self._given_up.discard(name)
        if old is None or old.ready != new.ready:
            self._take_news(self.ledger.reconsider())
            if not new.ready:
                self.agenda.at(self._clock() + self.limits.node, partial(self._node_overdue, name, new))
        if changed:
            self._room_came()

    def _reconcile_instaslice(self, name: NodeName, old: Instaslice | None, new: Instaslice | None) -> None:
        if new is None:
            self._take_news(self.ledger.forget(name))
            return
        news = self.ledger.report(new, self._clock())
        if old is None or old.status != new.status:
            self._heard(self.ledger.books[name])
        if news.pods or news.aside:
            news.nodes.add(name)
        self._take_news(news)
        for uid in [each for each in self._homeless if pinned(self.pods[each]) == name]:
            self._look(uid)

    def _take_news(self, news: News) -> None:
        for place in news.aside:
            self._set_aside(place)
        for uid in news.pods:
            self._look(uid)
        for name in news.nodes:
            self._orders.write(name, soon=False)
        if news.freed:
            self._room_came()

    def _ready(self, name: NodeName) -> bool:
        node = self.nodes.get(name)
        return node is not None and node.ready

    def _reconcile_pod(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        if new is None or new.ended:
            self._discharge(uid)
        else:
            if (
                new.spec.node_name
                and (old is None or old.ended or old.spec != new.spec)
                and self.rooms.charge(uid, new.spec.node_name, effective(new))
            ):
                self._room_came()
            self._filtered(new)
        if new is not None and (uid in self.pods or names.REQUESTED in new.metadata.annotations or gated(new)):
            self.pods[uid] = new
            if old is not None and (old.spec != new.spec or old.metadata.labels != new.metadata.labels):
                self._narrowed(new)
            self._look(uid)
        elif self.pods.pop(uid, None) is not None:
            self._look(uid)
            self._asks.pop(uid, None)
            self._forget_shut(uid)

    def storage_changed(self, old: StorageObject | None, new: StorageObject | None) -> None:
        """Claims and volumes, and what says where they can be used."""
        try:
            helps = self.filters.storage_changed(old, new)
        except Exception as error:
            thing = new or old
            name = thing.metadata.name if thing is not None else ""
            self.quarantine.failed(f"{type(thing).__name__} {name} is left as it was", error)
            return
        if helps:
            # Those that waited for a claim may now wait for something else, and are to be told.
            self._new |= self.filters.held_by_claims
            self.filters.held_by_claims.clear()
            self._room_came()

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        try:
            helps = self.filters.namespace_changed(old, new)
        except Exception as error:
            self.quarantine.failed(f"namespace {_changed(old, new).metadata.name} is left as it was", error)
            return
        if helps:
            self._room_came()

    def _filtered(self, pod: Pod) -> None:
        """What other pods are judged by: where this one is, and what it demands of them."""
        if pod.spec.node_name:
            helps = self.filters.assign(pod, NodeName(pod.spec.node_name))
        else:
            helps = self.filters.refresh(pod)
        if helps:
            self._room_came()
        if told := self.filters.tells_apart(pod):
            self._reshape(uid for uid in self.line.uids() if told(self.pods[uid]))

    def _reshape(self, uids: Iterable[str]) -> None:
        """More counts for these pods than did when they came. Until they are of other shapes they are only asked for
        too seldom: each is judged by itself."""
        self._outdated.update(dict.fromkeys(uids))
        if self._outdated:
            self._orders.wake()

    def _update_shapes(self, over: Callable[[], bool]) -> None:
        while self._outdated and not over():
            uid, _ = self._outdated.popitem()
            if uid not in self.line:
                continue
            try:
                self._narrowed(self.pods[uid])
                self._queue(self.pods[uid])
            except Exception as error:
                self.set_aside(Kind.POD, uid, error)

    def _narrowed(self, pod: Pod) -> None:
        """Where a pod may go can be narrowed while it waits: it is of another shape then, and keeps its time."""
        self.line.leave(pod.metadata.uid)
        if (before := self._asks.pop(pod.metadata.uid, None)) is not None and gated(pod):
            self.ask(pod).since = before.since

    def resume(self) -> None:
        """All that is there was told: from now on what is missing is gone. Nothing is decided before."""
        self._complete = True
        for promise in self.ledger.promises.values():
            # It was asked for of an earlier process, and tells what to expect.
            self.ledger.placer.arrived(Demand(tuple(slot.allocation.profile for slot in promise.slots)))
        for uid in {**self.ledger.promises, **self.pods}:
            self._look(uid)
        for name in self.ledger.books:
            self._orders.write(name, soon=False)
        self._orders.wake()

    def _room_came(self) -> None:
        """There may be room for somebody who was refused before."""
        self.line.ask_again()
        if len(self.line):
            self._orders.wake()

    def _discharge(self, uid: str) -> None:
        helps = self.filters.remove(uid)
        if self.rooms.discharge(uid) or helps:
            self._room_came()

    # Decide ---------------------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """One pass along the line, or as much of it as may be done at once: `due` says when to go on."""
        now = self._clock()
        until = now + STEP_SECONDS

        def over() -> bool:
            return self._clock() >= until

        self.agenda.run(now, over)
        self._update_shapes(over)
        self._keep_room(now, until)
        self._pass_complete = self.line.serve(self._served, over) and not self._outdated
        for uid in [each for each in self._new if each not in self.line or self.line.was_refused(each)]:
            self._new.discard(uid)
            if uid in self.line:
                self._orders.tell(uid)

    def refusal(self, uid: str) -> Refusal | None:
        """Why a waiting pod finds no room now. Read its words before anything changes."""
        ask, pod = self._asks[uid], self.pods[uid]
        if self._plan(pod, ask) is not None:
            return None
        answer = self.fits_beside(pod, ask)
        if isinstance(answer, Plan):
            # Its GPUs have room, but the node advertises less than they hold, or pods run there whose slices are lost
            # and are still counted. Said only then, as words about GPUs say more.
            verdict = self.filters.for_pod(pod)
            answer = self.ledger.placer.place(
                ask.demand(lambda name: name in ask.admitted and name in ask.fits and verdict(name) is None)
            )
        return answer if isinstance(answer, Refusal) else None

    def fits_beside(self, pod: Pod, ask: Ask) -> Plan | Refusal:
        """Where the pod would go if nobody counted our own resources."""
        verdict = self.filters.for_pod(pod)
        return self.ledger.placer.place(
            ask.demand(lambda name: name in ask.admitted and name in ask.fits_beside and verdict(name) is None)
        )

    def ask(self, pod: Pod) -> Ask:
        """What a pod wants."""
        found = self._asks.get(pod.metadata.uid)
        if found is None:
            found = self._asks[pod.metadata.uid] = self._new_asks.of(pod, self.filters.shape(pod))
        return found

    def _served(self, uid: str) -> bool:
        """Whether the pod waits no longer: it is placed, or set aside."""
        try:
            return self._place(uid)
        except Exception as error:
            self.set_aside(Kind.POD, uid, error)
            return True

    def _place(self, uid: str) -> bool:
        ask, kept = self._asks[uid], self.patience.kept
        with self.patience.lifted_for(uid):
            plan = self._plan(self.pods[uid], ask)
            if plan is not None:
                self._promise(self.pods[uid], ask, plan)
        if plan is not None and kept is not None and kept.uid == uid:
            self._room_came()  # what it leaves of what was kept for it
        return plan is not None

    def _plan(self, pod: Pod, ask: Ask) -> Plan | None:
        index, verdict = self.ledger.fleet.index, self.filters.for_pod(pod)
        nodes = ask.nodes(index.all) if verdict.everywhere is None else 0
        if nodes and verdict.checks:
            nodes = sum(1 << bit for bit in bits(nodes) if verdict(index.name(bit)) is None)
        if not nodes:
            return None

        def among(name: NodeName) -> bool:
            bit = index.bit(name)
            return bit is not None and bool(nodes >> bit & 1)

        prefers = self.filters.preferences(pod, map(index.name, bits(nodes)))
        plan = self.ledger.placer.place(ask.demand(among, prefers))
        return plan if isinstance(plan, Plan) else None

    def _promise(self, pod: Pod, ask: Ask, plan: Plan) -> None:
        meta = pod.metadata
        promise = self.ledger.promise(
            PodRef(namespace=meta.namespace, name=meta.name, uid=meta.uid),
            ask.wants,
            plan,
            self._attempt(),
            self._clock(),
            cpu=ask.cpu,
            memory=ask.memory,
        )
        self._mind(pod, promise)
        self._orders.write(plan.node, soon=True)

    def _attempt(self) -> str:
        return f"{self._rng.getrandbits(32):08x}"

    def _mind(self, pod: Pod, promise: Promise) -> None:
        """Count what the pod will use there, and see to it that it does not wait for ever. A promise that was made
        before this process began has its whole time once more."""
        promise.minded = True
        if pod.spec.node_name:
            return
        now = self._clock()
        self.rooms.charge(promise.uid, promise.node, self.ask(pod).amounts)
        if self.filters.assign(pod, promise.node):
            self._room_came()
        if gated(pod):
            self.agenda.at(now + self.limits.create, partial(self._create_overdue, promise))
            # To the second, so that of a burst there is one look a second and not one a pod.
            self.agenda.at(ceil(now + SLOW), partial(self._create_slow, promise))
        else:
            self.agenda.at(now + self.limits.bind, partial(self._bind_overdue, promise))

    # One pod --------------------------------------------------------------------------------------------------------

    def _look(self, uid: str) -> None:
        """Do what the state of a pod asks for. Safe to repeat."""
        if not self._complete or self.quarantine.why(Kind.POD, uid):
            return
        try:
            self._do(uid)
        except Exception as error:
            self.set_aside(Kind.POD, uid, error)

    def _do(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if uid in self.ledger.rivals:
            for other in self.ledger.keep(uid, _told(pod)):
                self._orders.write(other.node, soon=True)
        promise = self.ledger.promises.get(uid)
        known = uid in self._homeless
        self._homeless.discard(uid)
        if pod is None or pod.ended or self._nobody_ends(pod):
            if self.line.leave(uid) and self.patience.kept is not None and self.patience.kept.uid == uid:
                self._orders.wake()  # what is kept for it is for others now
            if promise is not None:
                self._take_back(promise, _why_gone(pod))
                if pod is not None and not pod.ended:
                    self._orders.tell(uid)
        elif promise is not None and _may_use(pod, promise):
            # An object that comes back brings promises for pods that have waited since.
            self.line.leave(uid)
            self._advance(pod, promise)
        elif gated(pod):
            if not held_by_others(pod):
                self._queue(pod)
        elif promise is not None:
            self._take_back(promise, f"the pod was let go to node {pinned(pod)} before")
            self._do(uid)
        elif names.MIG_UUIDS in pod.metadata.annotations and not self._restored(pod):
            self._homeless.add(uid)
            self._orders.tell(uid)
            if not known and not pod.spec.node_name:
                self.agenda.at(self._clock() + self.limits.bind, partial(self._homeless_overdue, uid))

    def _nobody_ends(self, pod: Pod) -> bool:
        """It was deleted, and there is no kubelet that would say when it has ended."""
        node = NodeName(pod.spec.node_name)
        return pod.metadata.deletion_timestamp is not None and (not node or node in self._given_up)

    def _advance(self, pod: Pod, promise: Promise) -> None:
        uid, failed = promise.uid, promise.failed
        if not promise.minded:
            self._mind(pod, promise)
            # Whoever promised it may have been killed before it said so.
            self._orders.tell(uid)
        if gated(pod):
            shut = "" if failed else self._shut(pod, promise)
            if failed or shut:
                self._take_back(promise, failed or shut)
                self._orders.tell(uid)
                if shut:
                    self._hold_back(uid, shut)
                self._queue(pod)
            elif promise.created and self.ledger.books[promise.node].unready:
                # Ungated now, it would be refused there. `_create_overdue` places it elsewhere if this lasts.
                self._orders.tell(uid)
            elif promise.created:
                for slot in promise.slots if self._failures else ():
                    self._failures.pop(slot.grant, None)
                self._orders.ungate(uid)
            return
        self._forget_shut(uid)
        if any(slot.allocation.state is not AllocationState.UNGATED for slot in promise.slots):
            promise.become(AllocationState.UNGATED)
            self._orders.write(promise.node, soon=False)
            self._orders.tell(uid)
            if not pod.spec.node_name:
                self.agenda.at(self._clock() + self.limits.bind, partial(self._bind_overdue, promise))
        told = pod.condition(names.SLICE_READY)
        was_ill = told is not None and told.reason in ILL
        closed = self.ledger.books[promise.node].closed
        if failed or was_ill or any(slot.allocation.gpu in closed for slot in promise.slots):
            self._orders.tell(uid)

    def _shut(self, pod: Pod, promise: Promise) -> str:
        """Why a pod that may go now is better not let go: its node was cordoned, say, since it was chosen, and nobody
        would bind the pod there."""
        node = self.nodes.get(promise.node)
        if not promise.created or node is None:
            return ""
        refusal = admission.refusal(pod, node)
        if refusal is None and (refused := self.filters.for_pod(pod, pinned=promise.node)(promise.node)):
            return f"nobody would bind the pod to node {promise.node} any more: {refused}"
        return f"node {promise.node} {refusal}" if refusal else ""

    def _hold_back(self, uid: str, why: str) -> None:
        """Where a slice that was made was of no use, the second time and from then on, the next is made later and
        later: what we think of a node before it and after it may differ for as long as the pod is there."""
        count = self._shut_counts[uid] = self._shut_counts.get(uid, 0) + 1
        if count > 1:
            self.held_back[uid] = why
            self.agenda.at(self._clock() + min(LONGEST_RETRY, 2.0 ** min(count - 2, 20)), partial(self._let_again, uid))

    def _let_again(self, uid: str, _: float) -> None:
        if self.held_back.pop(uid, None) is not None:
            self._look(uid)

    def _forget_shut(self, uid: str) -> None:
        self._shut_counts.pop(uid, None)
        self.held_back.pop(uid, None)

    def _queue(self, pod: Pod) -> None:
        ask = self.ask(pod)
        if ask.bad:
            self._orders.tell(pod.metadata.uid)
        uid, meta = pod.metadata.uid, pod.metadata
        if not ask.wants or uid in self.held_back:
            return
        since = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
        if self.line.add(uid, ask.shape, pod.spec.priority, since, meta.namespace):
            # What was lost with its node's object, or its GPU, would count against the pod itself.
            self._discharge(uid)
            if ask.since is None:
                ask.since = self._clock()
                self.arrivals += 1
                self.ledger.placer.arrived(ask.demand())
            self._new.add(uid)
            self._orders.wake()

    def _take_back(self, promise: Promise, reason: str) -> None:
        self.ledger.take_back(promise.uid, reason)
        pod = self.pods.get(promise.uid)
        if pod is None or not pod.spec.node_name:
            self._discharge(promise.uid)
        self._orders.write(promise.node, soon=True)

    def _restored(self, pod: Pod) -> bool:
        meta, node = pod.metadata, NodeName(pod.spec.node_name)
        ref = PodRef(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        ask, now, told = self.ask(pod), self._clock(), _told(pod)
        disputed = {
            uuid
            for other in self.pods.values()
            if other.metadata.uid != meta.uid and not other.ended and pinned(other) == node
            for uuid in _told(other)
        } & set(told)
        if not self.ledger.restore(
            ref, ask.wants, node, told, self._attempt(), now, cpu=ask.cpu, memory=ask.memory, disputed=disputed
        ):
            return False
        log.info("pod %s/%s: found its slices on %s again", meta.namespace, meta.name, node)
        self._orders.write(node, soon=True)
        return True

    # When something takes too long ----------------------------------------------------------------------------------

    def _create_slow(self, promise: Promise, _: float) -> None:
        if self.ledger.promises.get(promise.uid) is promise and not promise.created:
            self._orders.tell(promise.uid)

    def _create_overdue(self, promise: Promise, now: float) -> None:
        pod = self.pods.get(promise.uid)
        if self.ledger.promises.get(promise.uid) is not promise or pod is None or not gated(pod):
            return
        unready = self.ledger.books[promise.node].unready
        if promise.created and not unready:
            # Its gate is about to go, unless the node falls silent before that.
            self.agenda.at(now + self.limits.create, partial(self._create_overdue, promise))
            return
        silent = f"the agent of node {promise.node} has not answered for {now - promise.since:.0f} s"
        words = unready or silent
        log.warning("pod %s/%s: %s; trying elsewhere", pod.metadata.namespace, pod.metadata.name, words)
        for gpu in self.ledger.books[promise.node].gpus:
            self.ledger.close(gpu, promise.node, "silent", words)
        self._take_back(promise, words)
        self._orders.tell(promise.uid)
        self._queue(pod)

    def _heard(self, book: Book) -> None:
        """The agent of a node has spoken: it may have been silent before."""
        opened = [self.ledger.reopen(gpu, book.name, "silent") for gpu in book.gpus]
        if any(opened):
            self._room_came()

    def _bind_overdue(self, promise: Promise, now: float) -> None:
        """A pod that its owner replaces fails, so that the next one can be sent elsewhere: this one is pinned. Any
        other keeps its slices, as what is in its way may go, until somebody who waits would get them."""
        pod = self.pods.get(promise.uid)
        if self.ledger.promises.get(promise.uid) is not promise or pod is None or pod.spec.node_name:
            return
        if not promise.overdue and refused_by_scheduler(pod):
            self._refused(pod, promise.node, now)
        if lost_if_it_fails(pod) and not self._needed(promise):
            if not promise.overdue:
                promise.overdue = True
                self._orders.tell(promise.uid)
            self.agenda.at(now + min(LOOK_AGAIN, self.limits.bind), partial(self._bind_overdue, promise))
            return
        late = f"not bound to node {promise.node} within {self.limits.bind:.0f} s"
        self._orders.fail(promise.uid, f"{late} ({unbound(pod)})")

    def _refused(self, pod: Pod, node: NodeName, now: float) -> None:
        """Send no other pod of its owner there for a while: whatever it was that we do not see would refuse it too."""
        wait, name = self.filters.not_bound(pod, node), owner(pod)
        self.agenda.at(now + wait, partial(self._try_again, name, node))
        self._reshape([uid for uid in self.line if owner(self.pods[uid]) == name])

    def _try_again(self, name: str, node: NodeName, _: float) -> None:
        self.filters.retry(name, node)
        self._room_came()

    def _needed(self, promise: Promise) -> bool:
        """Whether a pod that waits, one of the first, would find room if these slices were given back."""
        there = self.ledger.fleet.nodes.get(promise.node)
        if there is None or not len(self.line):
            return False
        emptied = self.ledger.fleet.alone(there)
        with suppress(FleetError):  # of a GPU that is closed nobody gets anything
            for slot in promise.slots:
                emptied.give_back(slot.grant)
        placer = Placer(emptied, self.ledger.placer.policy)
        self.rooms.discharge(promise.uid)
        try:
            return any(self._would_take(head.uid, placer) for head in self.line.heads_in_turns()[:MOST_ASKED])
        finally:
            self.rooms.charge(promise.uid, promise.node, self.ask(self.pods[promise.uid]).amounts)

    def _would_take(self, uid: str, placer: Placer) -> bool:
        """Whether a pod that waits would go where the placer places."""
        ask, verdict = self._asks[uid], self.filters.for_pod(self.pods[uid])
        if not any(name in ask.admitted for name in placer.fleet.nodes):
            return False
        demand = ask.demand(lambda name: name in ask.admitted and name in ask.fits and verdict(name) is None)
        return isinstance(placer.place(demand), Plan)

    def _homeless_overdue(self, uid: str, now: float) -> None:
        """Sent to a node whose Instaslice object went away: it can run nowhere else."""
        if uid not in self._homeless or self.pods[uid].spec.node_name:
            return
        node = pinned(self.pods[uid])
        if self.quarantine.why(Kind.INSTASLICE, node):
            # Its slices may stand in there.
            self.agenda.at(now + self.limits.bind, partial(self._homeless_overdue, uid))
            return
        self._orders.fail(uid, f"its slices on node {node} are gone" if node else "its slices are gone")

    def _node_overdue(self, name: NodeName, then: Node, _: float) -> None:
        node = self.nodes.get(name)
        if node is None or node.ready or node.metadata.uid != then.metadata.uid:
            return
        self._given_up.add(name)
        self._leave_node(name, f"node {name} has not been ready for {self.limits.node:.0f} s")

    def _node_gone(self, name: NodeName) -> None:
        self.filters.node_changed(self.nodes.pop(name, None), None)
        self._given_up.discard(name)
        self.rooms.remove_node(name)
        self._admission_changes.add(name)
        self._leave_node(name, f"node {name} is gone")
        self._take_news(self.ledger.reconsider())
        self._room_came()  # where pods are spread over nodes, one less may be what they wait for

    def _leave_node(self, name: NodeName, words: str) -> None:
        """Nothing will come of what was promised there. Pods that did not start yet are placed anew, those that can
        only start there fail, and those that Kubernetes has deleted give back what they held."""
        for promise in [each for each in self.ledger.promises.values() if each.node == name]:
            pod = self.pods.get(promise.uid)
            if pod is None:
                continue
            try:
                self._leave(pod, promise, words)
            except Exception as error:
                self.set_aside(Kind.POD, promise.uid, error)

    def _leave(self, pod: Pod, promise: Promise, words: str) -> None:
        if gated(pod):
            self._take_back(promise, words)
            self._queue(pod)
        elif not pod.spec.node_name:
            self._orders.fail(promise.uid, words)
        elif pod.metadata.deletion_timestamp is not None or promise.node not in self.nodes:
            self._take_back(promise, words)
        self._orders.tell(promise.uid)

    def _set_aside(self, place: Grant) -> None:
        """A place that failed is tried again later and later; at once when its agent says that the GPU is well."""
        count = self._failures[place] = self._failures.get(place, 0) + 1
        wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(count - 1, 20))
        self.agenda.at(self._clock() + wait, partial(self._bring_back, place))
        self._orders.wake()

    def _bring_back(self, place: Grant, _: float) -> None:
        if self.ledger.bring_back(place.node, place):
            self._room_came()

    # Patience -------------------------------------------------------------------------------------------------------

    def _keep_room(self, now: float, until: float) -> None:
        """Once a pod has waited too long, keep room for it: for the first in line that any node could hold. Choose
        anew now and then, since what is in the way there may never end."""
        kept = self.patience.kept
        if kept is not None and (kept.uid not in self.line or kept.until <= now):
            self.patience.drop()
            self.line.ask_again()
            self._again = now
        if self.patience.kept is None and now >= self._again:
            self._again = now + self._choose(now, until)

    def _choose(self, now: float, until: float) -> float:
        """Seconds until there is something to choose again."""
        least = self.limits.patience
        for head in self.line.heads():
            ask, pod = self._asks[head.uid], self.pods[head.uid]
            assert ask.since is not None, "it stands in line"
            left = ask.since + self.limits.patience - now
            if left > 0:
                least = min(least, left)
            elif head.uid not in self._unkeepable:
                if self._kept(pod, ask, now):
                    self._unkeepable.clear()
                    return self.limits.patience
                self._unkeepable.add(head.uid)
                if self._clock() >= until:
                    return SHORTEST_LOOK
        # Those that no node could hold are looked at again: a node may have come.
        self._unkeepable.clear()
        return max(min(least, LOOK_AGAIN), SHORTEST_LOOK)

    def _kept(self, pod: Pod, ask: Ask, now: float) -> bool:
        try:
            return self._keep(pod, ask, now)
        except Exception as error:
            self.set_aside(Kind.POD, pod.metadata.uid, error)
            return False

    def _keep(self, pod: Pod, ask: Ask, now: float) -> bool:
        """Keep room for a pod that has waited too long; False where it fits now, or no node could ever hold it."""
        nodes = ask.admitted.among(self.ledger.fleet.index.all)
        held = self.filters.for_pod(pod).everywhere
        refusal = self.refusal(pod.metadata.uid) if nodes and held is None else None
        if refusal is None:
            return False
        could = partial(self.could_admit, pod, ask.amounts)
        return self.patience.keep(pod.metadata.uid, ask.profiles, could, refusal.short is Short.NODES, now)

    def could_admit(self, pod: Pod, amounts: Amounts, name: NodeName) -> bool:
        """Whether a node would admit the pod if nothing ran there."""
        return self.could_suffice(pod, amounts, name) and self.filters.for_pod(pod)(name, emptied=True) is None

    def could_suffice(self, pod: Pod, amounts: Amounts, name: NodeName) -> bool:
        """The same, whatever volumes and other pods elsewhere say."""
        node = self.nodes.get(name)
        return node is not None and admission.refusal(pod, node) is None and self.rooms.could_hold(name, amounts)


def _changed(old: T | None, new: T | None) -> T:
    """The object that a change is of."""
    thing = new or old
    assert thing is not None, "a change has two sides"
    return thing


def _may_use(pod: Pod, promise: Promise) -> bool:
    """Whether the pod can still run where it was promised slices. One that was let go to another node cannot: a write
    that had no answer took effect after those slices had failed and others were promised."""
    return gated(pod) or pinned(pod) in ("", promise.node)


def _told(pod: Pod | None) -> list[str]:
    """The slices that a pod that is past its gate was given."""
    uuids = pod.metadata.annotations.get(names.MIG_UUIDS, "") if pod is not None and not gated(pod) else ""
    return uuids.split(",") if uuids else []


def _why_gone(pod: Pod | None) -> str:
    if pod is None:
        return "the pod is gone"
    return f"the pod has {pod.status.phase.lower()}" if pod.ended else "the pod was deleted"
