"""Serve one node or many in one process: a watch on nodes, one on Instaslice objects, a queue of nodes to reconcile.

One worker reconciles a node at a time, so each object has one write in flight. An idle node costs one check a minute.
"""

import asyncio
import logging
import random
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from instaslice.agent import report
from instaslice.agent.gpu_source import GpuSource, Warn
from instaslice.agent.gpu_worker import DriverCall, OrphanPolicy, WorkerContext
from instaslice.agent.job_mapping import JobMapping
from instaslice.agent.kubelet.node_devices import NodeDevices
from instaslice.agent.node import NodeAgent, unserved
from instaslice.agent.node_metrics import NodeMetrics
from instaslice.agent.resources import advertised, correction
from instaslice.agent.served_node import ServedNode
from instaslice.agent.usage import in_use
from instaslice.api.instaslice import EMPTY_STATUS, INSTASLICES, Allocation, Instaslice, PreparedSlice
from instaslice.api.reasons import NodeEvent, ServingReason
from instaslice.api.writing import CONCURRENT_WRITES, STATUS_COOLDOWN, UNTRACKED, cooldown
from instaslice.drivers.executor import GpuExecutor
from instaslice.errors import InstasliceError
from instaslice.kube.cache import Cache, freeze_heap
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import Clock
from instaslice.kube.coalescing_writer import CoalescingWriter, same_object
from instaslice.kube.core import NODES, Node, ObjectReference
from instaslice.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from instaslice.kube.events import EventKey, Recorder
from instaslice.kube.heartbeat import Heartbeat
from instaslice.kube.meta import Key
from instaslice.kube.queue import Queue
from instaslice.kube.watch import Reflector
from instaslice.observe.logs import about

log = logging.getLogger(__name__)

MANAGER = "instaslice-agent"
RETRY_SECONDS = 1.0
WORKERS = 16
"""Nodes reconciled side by side."""


class AgentProcess:
    """Serves all nodes that match a selector, as they come and go. With `devices` that is the one node we run on: its
    kubelet learns its resources from device plugins; for others they are written into the node's status. With
    `job_mapping` dcgm-exporter is told which of its pods has which slice. `heartbeat` shows that this process runs,
    where no kubelet does."""

    def __init__(
        self,
        client: Client,
        gpu_source: GpuSource,
        *,
        selector: Selector,
        clock: Clock,
        rng: random.Random,
        orphan_policy: OrphanPolicy | None = None,
        executor: GpuExecutor | None = None,
        devices: NodeDevices | None = None,
        registry: CollectorRegistry | None = None,
        job_mapping: JobMapping | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._client = client
        self._gpu_source = gpu_source
        self._devices = devices
        self._job_mapping = job_mapping
        self._heartbeat = heartbeat
        self._clock = clock
        self._rng = rng
        self._orphan_policy = orphan_policy or OrphanPolicy()
        self._executor = executor or GpuExecutor()
        self._served: dict[str, ServedNode] = {}
        self._unserved: set[str] = set()
        """Nodes of which was reported why they cannot be served."""
        self._metrics = NodeMetrics(self._served, self._allocations, registry or CollectorRegistry())
        self._queue: Queue[str] = Queue(clock=clock)
        self._tasks: asyncio.TaskGroup | None = None
        self._started = False
        self._writing = asyncio.Semaphore(CONCURRENT_WRITES)
        self._recorder = Recorder(client, controller="gpu.das.com/agent", instance=MANAGER, clock=clock)
        self._nodes: Cache[Node] = Cache()
        self._objects: Cache[Instaslice] = Cache()
        self._wanted = f"with labels {selector.labels}" if selector.labels else selector.fields.partition("=")[2]
        # An object has the name of its node, and none of its labels.
        by_name = Selector(fields=selector.fields)
        self._reflectors = (
            Reflector(client, NODES, self._nodes, clock=clock, rng=rng, selector=selector),
            Reflector(client, INSTASLICES, self._objects, clock=clock, rng=rng, selector=by_name),
        )

    async def run(self) -> None:
        """Until cancelled. A task that fails ends it."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._gpu_source.run())
            await self._nodes.synced()
            await self._objects.synced()
            freeze_heap()
            self._started = True
            self._nodes.on_change(self._node_changed)
            self._objects.on_change(self._object_changed)
            if len(self._nodes):
                log.info("serving %d nodes", len(self._nodes))
            else:
                log.warning("no node %s yet; it will be served as soon as there is one", self._wanted)
            if self._heartbeat is not None:
                tasks.create_task(self._heartbeat.run())
            if self._devices is not None:
                tasks.create_task(self._devices.run(self._warn_no_slice, self._kubelet_changed))
            await self._queue.work(self._reconcile_or_retry, workers=WORKERS)

    @property
    def not_ready(self) -> str:
        """Why this agent does not do its job yet: nodes are not known or not reported, or no pod can start."""
        if not self._started:
            return "nodes and Instaslice objects are not known yet"
        served = self._served.values()
        missing = len(self._nodes) - len(self._unserved) - sum(each.reported for each in served)
        if not len(self._nodes):
            return f"there is no node {self._wanted}"
        if missing > 0:
            return f"{missing} of {len(self._nodes)} nodes are not reported yet"
        return self._devices.kubelet_silence if self._devices is not None else ""

    # What enqueues a node -------------------------------------------------------------------------------------------

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        self._queue.add(node.metadata.name)

    def _object_changed(self, old: Instaslice | None, new: Instaslice | None) -> None:
        # Our own writes come back as a change of the status alone.
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            instaslice = new or old
            assert instaslice is not None
            self._queue.add(instaslice.metadata.name)

    def _kubelet_changed(self) -> None:
        for name in self._served:
            self._queue.add(name)

    # Reconcile a node -----------------------------------------------------------------------------------------------

    async def _reconcile_or_retry(self, name: str) -> float | None:
        """As `_reconcile`; a server that is away is asked again soon, while the backoff of the queue would grow."""
        try:
            return await self._reconcile(name)
        except KubeError as error:
            wait = RETRY_SECONDS * (1 + self._rng.random())
            log.warning("node %s: %s; trying again in %.1f s", name, error, wait, extra=about(node=name))
            return wait

    async def _reconcile(self, name: str) -> float | None:
        node, instaslice = self._nodes.get(Key("", name)), self._objects.get(Key("", name))
        if node is None:
            self._forget(name)
            return None
        if instaslice is None or _of_another(instaslice, node):
            await self._replace_object(node, instaslice)
            return None  # the watch brings the object back
        try:
            served = self._serve(node, instaslice)
        except InstasliceError as error:
            await self._report_unserved(node, instaslice, error)
            return None
        wait = await served.reconcile(node, instaslice)
        if self._job_mapping is not None and served.status is not None:
            self._job_mapping.update(served.status, self._allocations(name))
        if self._devices is None:
            await self._advertise(node, served)
        return wait

    def _serve(self, node: Node, instaslice: Instaslice) -> ServedNode:
        """The agent of the node; a new one where the node, its GPUs or its object are no longer the same."""
        name, gpus = node.metadata.name, self._gpu_source.gpus(node)
        served = self._served.get(name)
        if served is not None:
            if served.serves(node, gpus, instaslice):
                return served
            self._stop(name)
        self._unserved.discard(name)
        uid, warn = instaslice.metadata.uid, partial(self._warn, _reference(instaslice))
        changed = partial(self._queue.add, name)
        driver, apply_annotations = self._gpu_source.connect(node, warn, changed)
        # Before the agent reads the hardware: a reboot that was requested while no agent ran has happened.
        apply_annotations(node)
        context = WorkerContext(
            driver=driver,
            executor=self._executor,
            clock=self._clock,
            orphan_policy=self._orphan_policy,
            spawn=self._spawn,
            changed=changed,
            failed=partial(_warn_failed, warn),
            in_use=partial(in_use, self._client, self._devices, name),
            called=partial(self._driver_called, name),
        )
        agent = NodeAgent(context, instaslice.status)
        served = self._served[name] = ServedNode(
            node=node,
            gpus=gpus,
            agent=agent,
            apply_annotations=apply_annotations,
            advertised=advertised(agent.models),
            warn=warn,
            writer=CoalescingWriter(
                self._client,
                INSTASLICES,
                name,
                uid,
                manager=MANAGER,
                clock=self._clock,
                cooldown=partial(cooldown, times=STATUS_COOLDOWN),
                written=None if instaslice.status == EMPTY_STATUS else instaslice.status,
                subresource="status",
                limit=self._writing,
            ),
            devices=self._devices,
            lease=self._heartbeat.key.name if self._heartbeat is not None else None,
            clock=self._clock,
            resynced_at=self._clock.monotonic(),
        )
        return served

    async def _advertise(self, node: Node, served: ServedNode) -> None:
        change = correction(node.status, served.advertised)
        if change:
            change["metadata"] = {"uid": node.metadata.uid}  # refused where the name belongs to another node by now
            with suppress(NotFound):
                await self._client.merge(
                    NODES, Key("", node.metadata.name), change, manager=MANAGER, subresource="status"
                )

    async def _replace_object(self, node: Node, instaslice: Instaslice | None) -> None:
        """Create an empty object that is deleted with its node, in place of one of an earlier node of that name."""
        meta = node.metadata
        if instaslice is not None:
            try:
                await self._client.delete(INSTASLICES, Key("", meta.name), uid=instaslice.metadata.uid)
            except (NotFound, Conflict):
                return
        owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": meta.name, "uid": meta.uid}
        # Written out: a struct would omit an empty spec, which the controller replaces by a patch.
        new = {"metadata": {"name": meta.name, "ownerReferences": [owner]}, "spec": {"allocations": []}}
        with suppress(AlreadyExists):
            made = await self._client.create(INSTASLICES, new)
            ops = [same_object(made.metadata.uid), UNTRACKED]
            await self._client.patch(INSTASLICES, Key("", meta.name), ops, manager=MANAGER)

    async def _report_unserved(self, node: Node, instaslice: Instaslice, error: InstasliceError) -> None:
        """Say on the object why its node cannot be served; a changed label brings it back here."""
        name = node.metadata.name
        self._stop(name)
        status = unserved(instaslice, str(error), self._clock.now())
        if status != instaslice.status:
            self._warn(_reference(instaslice), ServingReason.NO_DRIVER, "Discover", str(error))
            ops = [same_object(instaslice.metadata.uid), *report.patch(None, status)]
            with suppress(NotFound):
                async with self._writing:
                    await self._client.patch(INSTASLICES, Key("", name), ops, manager=MANAGER, subresource="status")
        self._unserved.add(name)

    def _forget(self, name: str) -> None:
        self._unserved.discard(name)
        if served := self._stop(name):
            self._gpu_source.forget(served.node)

    def _stop(self, name: str) -> ServedNode | None:
        served = self._served.pop(name, None)
        if served is not None:
            served.agent.stop()
        return served

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        assert self._tasks is not None
        return self._tasks.create_task(work)

    # Metrics and log ------------------------------------------------------------------------------------------------

    def _allocations(self, node: str) -> dict[str, Allocation]:
        instaslice = self._objects.get(Key("", node))
        return {each.id: each for each in instaslice.spec.allocations} if instaslice is not None else {}

    def _driver_called(self, node: str, call: DriverCall) -> None:
        self._metrics.called(call)
        pod = call.allocation.pod if call.allocation is not None else None
        keys = about(
            pod=f"{pod.namespace}/{pod.name}" if pod is not None else None,
            uid=pod.uid if pod is not None else None,
            node=node,
            gpu=call.gpu,
            seconds=call.seconds,
        )
        what = f"{call.operation} {call.profile} at {call.start}" if call.profile else f"{call.operation} slices"
        if call.error is not None:
            log.warning("%s: %s", what, call.error, extra=keys)
        else:
            log.log(logging.INFO if call.profile else logging.DEBUG, "%s: done", what, extra=keys)

    # Warnings -------------------------------------------------------------------------------------------------------

    def _warn_no_slice(self, note: str) -> None:
        for served in self._served.values():
            served.warn(NodeEvent.NO_SLICE, "Allocate", note)

    def _warn(self, regarding: ObjectReference, reason: str, action: str, note: str) -> None:
        log.warning("%s: %s", regarding.name, note, extra=about(node=regarding.name))
        self._recorder.record(EventKey(regarding, True, reason, action, note))


def _warn_failed(warn: Warn, failed: PreparedSlice) -> None:
    warn(NodeEvent.SLICE_FAILED, "Create", f"{failed.profile} at {failed.start}: {failed.reason}")


def _reference(instaslice: Instaslice) -> ObjectReference:
    meta = instaslice.metadata
    return ObjectReference(api_version=INSTASLICES.api_version, kind=INSTASLICES.kind, name=meta.name, uid=meta.uid)


def _of_another(instaslice: Instaslice, node: Node) -> bool:
    """Whether it belongs to an earlier node of the same name."""
    owners = [each for each in instaslice.metadata.owner_references if each.kind == NODES.kind]
    return bool(owners) and all(each.uid != node.metadata.uid for each in owners)
