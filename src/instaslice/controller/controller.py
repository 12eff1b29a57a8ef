"""Watches the cluster, lets the dispatcher decide, and carries out its orders. One leader runs it.

Crash-only: everything it knows comes from the API server at start, and what it was about to do when it was killed the
next leader finds still to be done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from random import Random
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.api.pods import gated
from instaslice.api.reasons import PodReason
from instaslice.api.writing import CONCURRENT_WRITES
from instaslice.controller import patches
from instaslice.controller.autoscaling import AutoscalingHints
from instaslice.controller.cluster_metrics import ClusterMetrics
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.condition_writer import ConditionWriter
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.kept_quotas import KeptQuotas
from instaslice.controller.learning import Learning
from instaslice.controller.node_shapes import NodeShapes
from instaslice.controller.orders import Limits
from instaslice.controller.placement_check.decisions import HOLD_SECONDS
from instaslice.controller.placement_check.kueue_watch import KueueWatch
from instaslice.controller.pod_condition import PodCondition
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.spec_writer import SpecWriter
from instaslice.controller.state_times import StateTimes
from instaslice.controller.static_mig_labels import StaticMigLabels
from instaslice.controller.taints import Taints
from instaslice.controller.work_queues import WorkQueues
from instaslice.errors import InstasliceError
from instaslice.kube.cache import Cache, freeze_heap
from instaslice.kube.client import EVERYTHING, Client, Selector
from instaslice.kube.clock import Clock, Timer
from instaslice.kube.core import LEASES, NAMESPACES, NODES, PODS, Lease, Namespace, Node, Pod
from instaslice.kube.errors import NotFound, Refused, Unreadable
from instaslice.kube.meta import Object, ObjectMeta, key_of
from instaslice.kube.queue import Queue
from instaslice.kube.resource import Resource
from instaslice.kube.storage import STORAGE_KINDS
from instaslice.kube.watch import Reflector
from instaslice.observe import registry as registries
from instaslice.observe.metrics import DECISION_SECONDS
from instaslice.placement import NodeName, Policy

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=str)

OBJECT_KINDS = {NODES.kind: ObjectKind.NODE, INSTASLICES.kind: ObjectKind.INSTASLICE, PODS.kind: ObjectKind.POD}
NOT_LEADING_SECONDS = 1.0
"""After which an order is tried again that came while the lease may not be ours."""
UNGATES_AT_ONCE = 16
HINT_SECONDS = 2.0
HINTS = "hints"
"""The one key of a queue: hints are worked out as a whole."""
MOST_HINTED = 200
"""Waiting pods that are considered for hints, the first in the queue."""


@dataclass(frozen=True)
class Settings:
    limits: Limits = field(default_factory=Limits)
    instance: str = names.CONTROLLER
    """The reporting instance of Events."""
    namespace: str = names.NAMESPACE
    taint_nodes: bool = False
    static_mig_labels: bool = False
    keep_quotas: bool = False
    hints: int = 0
    """Placeholder pods for node autoscalers, at most."""
    admission_check: bool = False
    hold_seconds: float = HOLD_SECONDS
    """How long places are held for the pods of a workload of Kueue."""


class Controller:
    """`run` it while leading. `leads` is asked before anything is written that only one may write."""

    def __init__(
        self,
        client: Client,
        policy: Policy,
        *,
        clock: Clock,
        rng: Random,
        settings: Settings,
        leads: Callable[[], bool] = lambda: True,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._leads = leads
        self._namespace = settings.namespace
        self.pods: Cache[Pod] = Cache()
        self.nodes: Cache[Node] = Cache()
        self.instaslices: Cache[Instaslice] = Cache()
        self.namespaces: Cache[Namespace] = Cache()
        self.leases: Cache[Lease] = Cache()
        self.storage: dict[Resource[Any], Cache[Any]] = {kind: Cache() for kind in STORAGE_KINDS}
        self.state = ClusterState(policy)
        self._specs = SpecWriter(client, self.state.ledger, names.CONTROLLER, clock)
        self.orders = WorkQueues(self.state, self._specs, clock)
        self.dispatcher = Dispatcher(self.state, self.orders, clock.monotonic, rng, settings.limits)
        self._conditions = ConditionWriter(
            client, self.state, self.dispatcher.placer, self.orders, clock=clock, instance=settings.instance
        )
        self._learning = Learning(
            client, policy, self.state, self.orders, clock, namespace=settings.namespace, leads=leads
        )
        self._taints = Taints(client, self.nodes, self.instaslices, clock, wanted=settings.taint_nodes)
        self._labels = StaticMigLabels(client, self.nodes, self.instaslices, clock, wanted=settings.static_mig_labels)
        self._quotas = KeptQuotas(client, clock, rng, wanted=settings.keep_quotas)
        # Also with none: those of an earlier time have to go.
        self._hints = AutoscalingHints(
            client, clock, names.PLACEHOLDERS, settings.hints, rng=rng, former=settings.namespace
        )
        self._most_hinted = MOST_HINTED if settings.hints else 0
        self._shapes = NodeShapes()
        self.started = False
        """Whether all that the API server has was taken in."""
        self.registry = registry or CollectorRegistry()
        self._times = StateTimes(self.dispatcher, clock, self.registry)
        self._decision_seconds = registries.histogram(self.registry, DECISION_SECONDS)
        metrics = ClusterMetrics(self.dispatcher, self.orders, self._times, clock)
        registries.read_from(self.registry, lambda: metrics.read() if self.started else ())
        self._hinting: Queue[str] = Queue(clock=clock)
        self.kueue: KueueWatch | None = None
        if settings.admission_check:
            self.kueue = KueueWatch(
                client,
                self.dispatcher,
                self.orders,
                clock,
                rng,
                leads=leads,
                hold_seconds=settings.hold_seconds,
            )
        self._timer: Timer | None = None

    async def run(self) -> None:
        """Until cancelled. Raises Deposed where another process writes what only one may write: restart then."""
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
            if self.kueue is not None:
                group.create_task(self.kueue.run(), name="answer Kueue")
            agents = Selector(self._namespace, fields=f"metadata.name={names.EMULATION}")
            group.create_task(self._watch(LEASES, self.leases, agents), name="watch leases of agents")
            # Not awaited: without it, as with the roles of an earlier version, every agent counts as there.
            await asyncio.gather(*(cache.synced() for cache in caches.values()))
            if self.kueue is not None:
                await self.kueue.known()
            await self._learning.recall()
            freeze_heap()
            self.start()
            log.info("%d pods with slices or waiting, %d nodes", len(self.state.pods), len(self.instaslices))
            group.create_task(self._decide_when_woken(), name="decide")
            write = partial(self._contained, ObjectKind.INSTASLICE, self._write)
            group.create_task(self.orders.specs.work(write, workers=CONCURRENT_WRITES), name="write specs")
            ungate = partial(self._contained, ObjectKind.POD, self._ungate)
            group.create_task(self.orders.ungates.work(ungate, workers=UNGATES_AT_ONCE), name="ungate pods")
            fail = partial(self._contained, ObjectKind.POD, self._fail)
            group.create_task(self.orders.failures.work(fail), name="fail pods")
            group.create_task(self._conditions.run(), name="write conditions")
            group.create_task(self._learning.run(), name="learn")
            group.create_task(self._taints.run(), name="taint nodes")
            group.create_task(self._labels.run(), name="label nodes")
            group.create_task(self._quotas.run(), name="keep quotas")
            self.nodes.on_change(self._node_shape)
            group.create_task(self._hints.run(), name="autoscaling hints")
            group.create_task(self._hinting.work(self._hint), name="work out hints")

    def start(self) -> None:
        """Take in what the caches hold, which is every object, and each change from then on."""
        self.namespaces.on_change(self.dispatcher.namespace_changed)
        for cache in self.storage.values():
            cache.on_change(self.dispatcher.storage_changed)
        # Nodes first, then what is reserved on them, then the pods that it is reserved for.
        self.nodes.on_change(self.dispatcher.node_changed)
        self.instaslices.on_change(self._instaslice_changed)
        self.pods.on_change(self._pod_changed)
        self.leases.on_change(self.dispatcher.lease_changed)
        self.dispatcher.start()
        if self.kueue is not None:
            # Nothing has been placed yet: places that an earlier process held are still free.
            self.kueue.start()
        self._times.live = self.started = True

    async def _watch(self, resource: Resource[T], cache: Cache[T], selector: Selector = EVERYTHING) -> None:
        kind = OBJECT_KINDS.get(resource.kind)

        def unreadable(meta: ObjectMeta, error: Unreadable) -> None:
            if kind is None:
                # It stays as it was before, or missing: pods that need it wait, and say so.
                log.warning("%s", error)
            else:
                self.dispatcher.quarantine(kind, meta.uid if kind is ObjectKind.POD else meta.name, error)

        await Reflector(
            self._client,
            resource,
            cache,
            clock=self._clock,
            rng=self._rng,
            selector=selector,
            unreadable=unreadable,
        ).run()

    def _instaslice_changed(self, old: Instaslice | None, new: Instaslice | None) -> None:
        self._specs.seen(old, new)
        self.dispatcher.instaslice_changed(old, new)
        self._times.instaslice_changed(old, new)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self.dispatcher.pod_changed(old, new)
        self._times.pod_changed(old, new)

    async def _decide_when_woken(self) -> None:
        while True:
            await self.orders.woken.wait()
            # A pass may wake the next: all other tasks have their turn between the two.
            await asyncio.sleep(0)
            self.orders.woken.clear()
            self._decide()

    def _decide(self) -> None:
        """Once for all that one chunk of a watch brought."""
        began = self._clock.monotonic()
        self.dispatcher.decide()
        if self.kueue is not None:
            self.kueue.check.decide()
        self._decision_seconds.observe(self._clock.monotonic() - began)
        self._hinting.add_after(HINTS, HINT_SECONDS)
        self._conditions.revise()
        if self._timer is not None:
            self._timer.cancel()
        due = min((each for each in self._due() if each is not None), default=None)
        wait = None if due is None else max(0.0, due - self._clock.monotonic())
        self._timer = None if wait is None else self._clock.call_later(wait, self.orders.wake)

    def _due(self) -> Iterator[float | None]:
        yield self.dispatcher.due
        if self.kueue is not None:
            yield self.kueue.check.due

    # Carry out orders -----------------------------------------------------------------------------------------------

    async def _contained(self, kind: ObjectKind, work: Callable[[K], Awaitable[float | None]], key: K) -> float | None:
        """A turn of a queue; what fails unexpectedly costs only the object that it was about."""
        try:
            return await work(key)
        except InstasliceError:
            raise
        except Exception as error:
            self.dispatcher.quarantine(kind, key, error)
            return None

    async def _write(self, node: NodeName) -> float | None:
        # After a pause of this process another may have decided meanwhile; the renewal of the lease will tell.
        return await self._specs.write(node) if self._leads() else NOT_LEADING_SECONDS

    async def _ungate(self, uid: str) -> float | None:
        """Level-based: done where the gate is gone, however that came about."""
        pod, reservation = self.state.pods.get(uid), self.state.ledger.reservations.get(uid)
        if pod is None or reservation is None or not gated(pod) or not reservation.created:
            return None
        if self.state.ledger.nodes[reservation.node].unready:
            return None  # since it was ordered; it is ordered again when the node serves
        if not self._leads():
            return NOT_LEADING_SECONDS
        try:
            fresh = await self._client.patch(
                PODS,
                key_of(pod),
                patches.ungate(pod, reservation.node, reservation.uuids, reservation.given),
                manager=names.CONTROLLER,
            )
        except (Refused, NotFound) as error:
            # A webhook may deny with any code, also with 404.
            try:
                fresh = await self._client.get(PODS, key_of(pod))
            except NotFound:
                return None  # the watch will say so
            if fresh.metadata.uid == uid and gated(fresh):
                if self._clock.monotonic() < reservation.since + self.dispatcher.limits.bind:
                    reservation.ungate_refused = error.message
                    self.orders.update_condition(uid)
                    raise
                # A policy of the cluster, say. Others can use its slices.
                self.orders.fail(uid, f"the API server refuses to remove its gate ({error.message})")
                return None
        # The watch brings the same a moment later; until then we would do it again.
        self.pods.refresh(fresh)
        return None

    async def _fail(self, uid: str) -> float | None:
        """End a pod that holds slices and will never run. It stays to be read, and its owner creates another."""
        reason, pod = self.orders.why_failed.get(uid), self.state.pods.get(uid)
        if not reason or pod is None or pod.ended or pod.spec.node_name:
            self.orders.why_failed.pop(uid, None)
            return None
        if not self._leads():
            return NOT_LEADING_SECONDS
        message = f"{reason}; its slices were released. Create it again"
        status = {"phase": "Failed", "reason": PodReason.SLICE_RELEASED, "message": message}
        # With the version that we judged by: bound meanwhile, it lives.
        body = {"metadata": {"resourceVersion": pod.metadata.resource_version}, "status": status}
        # The reason stays until then: what goes wrong on the way is tried again.
        with suppress(NotFound):
            await self._client.merge(PODS, key_of(pod), body, manager=names.CONTROLLER, subresource="status")
            self._conditions.event(pod, PodCondition(False, PodReason.SLICE_RELEASED, message, warning=True))
        self.orders.why_failed.pop(uid, None)
        return None

    # Beside the orders ----------------------------------------------------------------------------------------------

    def _node_shape(self, _: Node | None, new: Node | None) -> None:
        # One in quarantine is not known to the dispatcher.
        if new is not None and NodeName(new.metadata.name) in self.state.nodes:
            self._shapes.learn(new)

    async def _hint(self, _: str) -> None:
        """Tell autoscalers of the pods that wait and that one more node of a known kind would hold."""
        waiting: dict[str, Pod] = {}
        memory: dict[str, int] = {}
        for uid in islice(self.state.queue, self._most_hinted):
            pod = self.state.pods[uid]
            # No node helps one that waits for a claim.
            held = self.state.filters.for_pod(pod).rules_out_all
            if held is None and (found := self._shapes.memory_for(pod)):
                waiting[uid], memory[uid] = pod, found
        self._hints.set(waiting, memory)
