"""Carries out what the dispatcher decides: watches, writes, and says why. One leader runs it.

Crash-only. Everything it knows comes from the API server at start; what it was about to do when it was killed, the
next one finds still to be done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from random import Random
from typing import Any, TypeVar

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.api.pods import gated
from instaslice.api.writing import CONCURRENT_WRITES
from instaslice.controller import patches
from instaslice.controller.autoscaling import Hints
from instaslice.controller.condition_writer import ConditionWriter
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.orders import Limits
from instaslice.controller.pod_condition import PodCondition
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.scheduling.storage import KINDS
from instaslice.controller.shapes import Shapes
from instaslice.controller.specs import Specs
from instaslice.controller.taints import Taints
from instaslice.errors import InstasliceError
from instaslice.kube.cache import Cache, freeze_heap
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock, Timer
from instaslice.kube.core import NAMESPACES, NODES, PODS, Namespace, Node, Pod
from instaslice.kube.errors import NotFound, Refused, Unreadable
from instaslice.kube.meta import Object, ObjectMeta, key_of
from instaslice.kube.queue import Queue
from instaslice.kube.resource import Resource
from instaslice.kube.watch import Reflector
from instaslice.placement import NodeName, Policy

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=str)

MANAGER = "instaslice-controller"
SET_ASIDE = {NODES.kind: ObjectKind.NODE, INSTASLICES.kind: ObjectKind.INSTASLICE, PODS.kind: ObjectKind.POD}
LAZY_SECONDS, LATEST_SECONDS = 1.0, 10.0
"""How long a write that nobody waits for may wait for company: the latter while pods wait for other writes."""
UNGATES_AT_ONCE = 16
WAVE_SECONDS = 0.3
"""After a pod was promised slices or may be let go, for which words still wait: a burst comes in waves."""
HINT_SECONDS = 2.0
HINTS = "hints"
"""The one key of a queue: what is hinted at is thought of as a whole."""
MOST_HINTED = 200
"""Waiting pods that are looked at for hints, the first in line."""
QUIET_SECONDS = 20.0
"""Without arrivals: a time to think about what arrived."""


@dataclass(frozen=True)
class Settings:
    limits: Limits = field(default_factory=Limits)
    instance: str = "instaslice-controller"
    """Who says what Events say."""
    namespace: str = names.NAMESPACE
    taint_nodes: bool = False
    hints: int = 0
    """Placeholder pods for node autoscalers, at most."""


class Controller:
    """`run` it while leading. `leads` is asked before a pod is let go."""

    def __init__(
        self,
        client: Client,
        policy: Policy,
        *,
        clock: Clock,
        rng: Random,
        settings: Settings,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._policy = policy
        self._clock = clock
        self._rng = rng
        self._leads = leads
        self.pods: Cache[Pod] = Cache()
        self.nodes: Cache[Node] = Cache()
        self.instaslices: Cache[Instaslice] = Cache()
        self.namespaces: Cache[Namespace] = Cache()
        self.storage: dict[Resource[Any], Cache[Any]] = {kind: Cache() for kind in KINDS}
        self.dispatcher = Dispatcher(self, policy, clock.monotonic, rng, settings.limits)
        self._specs = Specs(client, self.dispatcher.ledger, MANAGER, clock)
        self._writes: Queue[NodeName] = Queue(clock=clock)
        self._echoes: Queue[NodeName] = Queue(clock=clock)
        """Of which nodes there is something to write that nobody waits for."""
        self._ungates: Queue[str] = Queue(clock=clock)
        self._failures: Queue[str] = Queue(clock=clock)
        self._why_failed: dict[str, str] = {}
        self._conditions = ConditionWriter(client, self.dispatcher, self._busy, clock=clock, instance=settings.instance)
        self._taints = Taints(client, self.nodes, self.instaslices, clock, wanted=settings.taint_nodes)
        # Also with none: those of an earlier time have to go.
        self._hints = Hints(client, clock, settings.namespace, settings.hints, rng=rng)
        self._most_hinted = MOST_HINTED if settings.hints else 0
        self._shapes = Shapes()
        self._hinting: Queue[str] = Queue(clock=clock)
        self._awake = False
        self._defects: asyncio.Queue[Exception] = asyncio.Queue()
        """What ends the process."""
        self._calm_at = 0.0
        self._timer: Timer | None = None

    async def run(self) -> None:
        """Until cancelled. Raises Deposed where another writes what only one may write: start anew then."""
        async with asyncio.TaskGroup() as group:
            caches: dict[Resource[Any], Cache[Any]] = {
                NODES: self.nodes,
                INSTASLICES: self.instaslices,
                PODS: self.pods,
                NAMESPACES: self.namespaces,
                **self.storage,
            }
            for resource, cache in caches.items():
                group.create_task(self._watch(resource, cache), name=f"watch {resource.plural}")
            await asyncio.gather(*(cache.synced() for cache in caches.values()))
            freeze_heap()
            self.resume()
            log.info("%d pods with slices or waiting, %d nodes", len(self.dispatcher.pods), len(self.instaslices))
            group.create_task(self._fallen(), name="end with a failed pass")
            write = partial(self._apart, ObjectKind.INSTASLICE, self._write)
            group.create_task(self._writes.work(write, workers=CONCURRENT_WRITES), name="write specs")
            group.create_task(self._echoes.work(self._echo), name="write what nobody waits for")
            ungate = partial(self._apart, ObjectKind.POD, self._ungate)
            group.create_task(self._ungates.work(ungate, workers=UNGATES_AT_ONCE), name="ungate pods")
            group.create_task(self._failures.work(partial(self._apart, ObjectKind.POD, self._fail)), name="fail pods")
            group.create_task(self._conditions.run(), name="tell")
            group.create_task(self._learn(), name="learn")
            group.create_task(self._taints.run(), name="taint nodes")
            self.nodes.on_change(self._node_shape)
            group.create_task(self._hints.run(), name="autoscaling hints")
            group.create_task(self._hinting.work(self._hint), name="what to hint at")

    def resume(self) -> None:
        """Take in what the caches hold, which is all that there is, and every change from then on."""
        self.namespaces.on_change(self.dispatcher.namespace_changed)
        for cache in self.storage.values():
            cache.on_change(self.dispatcher.storage_changed)
        # Nodes first, then what is promised on them, then the pods that it is promised to.
        self.nodes.on_change(self.dispatcher.node_changed)
        self.instaslices.on_change(self._instaslice_changed)
        self.pods.on_change(self.dispatcher.pod_changed)
        self.dispatcher.resume()

    # Orders of the dispatcher ---------------------------------------------------------------------------------------

    def write_spec(self, node: NodeName, *, soon: bool) -> None:
        if soon:
            self._writes.add_after(node, self._specs.changed(node))
            self._calm_at = self._clock.monotonic() + WAVE_SECONDS
        else:
            self._echoes.add_after(node, LAZY_SECONDS)
            self._writes.add_after(node, LATEST_SECONDS)

    def ungate(self, uid: str) -> None:
        self._ungates.add(uid)
        self._calm_at = self._clock.monotonic() + WAVE_SECONDS

    def fail(self, uid: str, reason: str) -> None:
        self._why_failed[uid] = reason
        self._failures.add(uid)

    def update_condition(self, uid: str) -> None:
        self._conditions.update(uid)

    def wake(self) -> None:
        # Once for all that one chunk of a watch brings.
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._decide)

    def _decide(self) -> None:
        self._awake = False
        try:
            self.dispatcher.decide()
        except Exception as error:
            # The loop would only log it.
            self._defects.put_nowait(error)
            raise
        self._hinting.add_after(HINTS, HINT_SECONDS)
        if self._timer is not None:
            self._timer.cancel()
        due = self.dispatcher.due
        self._timer = (
            None if due is None else self._clock.call_later(max(0.0, due - self._clock.monotonic()), self.wake)
        )

    # Work -----------------------------------------------------------------------------------------------------------

    async def _watch(self, resource: Resource[T], cache: Cache[T]) -> None:
        kind = SET_ASIDE.get(resource.kind)

        def unreadable(meta: ObjectMeta, error: Unreadable) -> None:
            if kind is None:
                # It stays as it was before, or is not there: pods that need it wait, and say so.
                log.warning("%s", error)
            else:
                self.dispatcher.quarantine_object(kind, meta.uid if kind is ObjectKind.POD else meta.name, error)

        await Reflector(self._client, resource, cache, clock=self._clock, rng=self._rng, unreadable=unreadable).run()

    async def _apart(self, kind: ObjectKind, work: Callable[[K], Awaitable[float | None]], key: K) -> float | None:
        """A turn of a queue; what fails unexpectedly costs the object that it was about."""
        try:
            return await work(key)
        except InstasliceError:
            raise
        except Exception as error:
            self.dispatcher.quarantine_object(kind, key, error)
            return None

    async def _fallen(self) -> None:
        raise await self._defects.get()

    def _instaslice_changed(self, old: Instaslice | None, new: Instaslice | None) -> None:
        self._specs.seen(old, new)
        self.dispatcher.instaslice_changed(old, new)

    async def _write(self, node: NodeName) -> float | None:
        # After a pause of this process others may have decided meanwhile; the renewal is about to notice.
        return await self._specs.write(node) if self._leads() else LAZY_SECONDS

    async def _echo(self, node: NodeName) -> float | None:
        if self._busy():
            return LAZY_SECONDS
        self._writes.add(node)
        return None

    def _busy(self) -> bool:
        """Whether pods wait for a write of ours, or did a moment ago."""
        return bool(len(self._ungates) or len(self._writes)) or self._clock.monotonic() < self._calm_at

    async def _ungate(self, uid: str) -> float | None:
        """Level-based: done where the gate is gone, however that came about."""
        pod, reservation = self.dispatcher.pods.get(uid), self.dispatcher.ledger.reservations.get(uid)
        if pod is None or reservation is None or not gated(pod) or not reservation.created:
            return None
        if self.dispatcher.ledger.nodes[reservation.node].unready:
            return None  # since it was ordered; it is ordered again when the node serves
        if not self._leads():
            return LAZY_SECONDS
        try:
            fresh = await self._client.patch(
                PODS, key_of(pod), patches.ungate(pod, reservation.node, reservation.uuids), manager=MANAGER
            )
        except (Refused, NotFound) as error:
            # Also a 404 may be the word of a webhook, which denies with any code.
            try:
                fresh = await self._client.get(PODS, key_of(pod))
            except NotFound:
                return None  # the watch will say so
            if fresh.metadata.uid == uid and gated(fresh):
                if self._clock.monotonic() < reservation.since + self.dispatcher.limits.bind:
                    reservation.ungate_refused = error.message
                    self.update_condition(uid)
                    raise
                # Somebody's policy, say. Its slices are others' by now.
                self.fail(uid, f"the API server does not let it go ({error.message})")
                return None
        # The watch brings the same a moment later; until then we would do it again.
        self.pods.refresh(fresh)
        return None

    async def _fail(self, uid: str) -> float | None:
        """End a pod that holds slices and will never run. It stays to be read, and its owner makes another."""
        reason, pod = self._why_failed.get(uid), self.dispatcher.pods.get(uid)
        if not reason or pod is None or pod.ended or pod.spec.node_name:
            self._why_failed.pop(uid, None)
            return None
        message = f"{reason}; its slices were given back. Create it again"
        status = {"phase": "Failed", "reason": "SliceReleased", "message": message}
        # With the version that we judged by: bound meanwhile, it lives.
        body = {"metadata": {"resourceVersion": pod.metadata.resource_version}, "status": status}
        # The reason stays until then: what goes wrong on the way is tried again.
        with suppress(NotFound):
            await self._client.merge(PODS, key_of(pod), body, manager=MANAGER, subresource="status")
            self._conditions.event(pod, PodCondition(False, "SliceReleased", message, warning=True))
        self._why_failed.pop(uid, None)
        return None

    def _node_shape(self, _: Node | None, new: Node | None) -> None:
        # One that is set aside is not there.
        if new is not None and NodeName(new.metadata.name) in self.dispatcher.nodes:
            self._shapes.learn(new)

    async def _hint(self, _: str) -> None:
        """Tell autoscalers of the pods that wait and that one more node of a known kind would hold."""
        waiting: dict[str, Pod] = {}
        memory: dict[str, int] = {}
        for uid in islice(self.dispatcher.queue, self._most_hinted):
            pod = self.dispatcher.pods[uid]
            # No node helps one that waits for a claim.
            held = self.dispatcher.filters.for_pod(pod).everywhere
            if held is None and (found := self._shapes.memory_for(pod)):
                waiting[uid], memory[uid] = pod, found
        self._hints.set(waiting, memory)

    async def _learn(self) -> None:
        """Let the policy think about what arrived, in a quiet moment, ever more seldom: it takes seconds."""
        next_at = 300
        while True:
            before = self.dispatcher.arrivals
            await self._clock.sleep(QUIET_SECONDS)
            if self.dispatcher.arrivals >= next_at and self.dispatcher.arrivals == before and not self._busy():
                study = self._policy.study(self.dispatcher.ledger.fleet)
                if study is not None:
                    # In a thread, which must not touch what the loop goes on changing.
                    adopt = await asyncio.to_thread(study.think)
                    adopt()
                next_at = 4 * self.dispatcher.arrivals
