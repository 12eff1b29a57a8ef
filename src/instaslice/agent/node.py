"""One node: a worker for each GPU, and the status of its Instaslice object, made from their reports."""

from datetime import datetime

import msgspec

from instaslice.agent.decision import report_of
from instaslice.agent.gpu_worker import GpuWorker, WorkerContext
from instaslice.agent.kubelet.advertised_devices import AdvertisedGpu
from instaslice.api.bounds import truncated
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    READY,
    Allocation,
    ConditionStatus,
    GpuStatus,
    Health,
    Instaslice,
    InstasliceCondition,
    InstasliceStatus,
    PreparedSlice,
    SliceState,
)
from instaslice.api.reasons import GpusReason, ServingReason
from instaslice.api.summary import summary
from instaslice.drivers import GpuUuid, Unhealthy, UnhealthyReason
from instaslice.drivers import driver as drivers
from instaslice.geometry import Model

GPUS_READY = "GpusReady"
"""The condition that says whether slices can be made on all GPUs of the node."""


class NodeAgent:
    """Has the allocated slices made, and reports what exists. Never blocks; `context.changed` says that there is
    progress."""

    def __init__(self, context: WorkerContext, before: InstasliceStatus) -> None:
        """`before` is the last report: all that is known of an earlier process."""
        self._context = context
        self._boot = context.driver.boot_id()
        self._conditions = before.conditions
        # Some GPUs may not answer yet; their slices must not be taken for gone.
        self._known_before = _gpus(before) if context.driver.unresponsive() else ()
        self._spec: tuple[str, int] | None = None
        self._workers: dict[str, GpuWorker] = {}
        self._geometries: tuple[ModelGeometry, ...] = ()
        self._unplaced = before.slices
        self._known_healthy = {gpu.uuid for gpu in before.gpus if gpu.health is Health.HEALTHY}
        self._sync_workers(_boot_changed(before.boot_id, self._boot))
        self._unplaced = ()

    def set_allocations(self, instaslice: Instaslice) -> None:
        """Take over the spec of the object, where it has changed."""
        self._sync_workers()
        spec = instaslice.metadata.uid, instaslice.metadata.generation
        if spec == self._spec:
            return
        self._spec = spec
        by: dict[str, list[Allocation]] = {uuid: [] for uuid in self._workers}
        unplaced = []
        for each in instaslice.spec.allocations:
            if each.gpu in by:
                by[each.gpu].append(each)
            else:
                unplaced.append(self._report_unknown_gpu(each))
        for uuid, allocations in by.items():
            self._workers[uuid].set_allocations(tuple(allocations))
        self._unplaced = tuple(unplaced)

    def _sync_workers(self, lost: str = "") -> None:
        """Have a worker for each GPU that answers, and for each that we knew and that does not answer now."""
        driver = self._context.driver
        there = {gpu.uuid: gpu for gpu in driver.discover()}
        for gpu in self._known_before:
            if any(each.matches(gpu.uuid, gpu.index) for each in driver.unresponsive()):
                there.setdefault(gpu.uuid, gpu)
        if there.keys() == self._workers.keys():
            return
        past, before = self.slices, self._workers
        self._workers = {
            gpu.uuid: before.get(gpu.uuid)
            or GpuWorker(
                gpu,
                self._context,
                [each for each in past if each.gpu == gpu.uuid],
                lost,
                known=gpu.uuid in self._known_healthy,
            )
            for gpu in sorted(there.values(), key=lambda gpu: gpu.index)
        }
        for gone in before.keys() - there.keys():
            before[gone].stop()
        # Made once: they are the larger part of a status.
        self._geometries = tuple(map(ModelGeometry.of, {model.name: model for model in self.models}.values()))
        self._spec = None  # allocations are distributed again

    def reread(self) -> None:
        """List the slices of all GPUs again: they may have changed without us."""
        for worker in self._workers.values():
            worker.reread()

    def advance(self) -> None:
        """Do what is due now on every GPU, after checking their health and whether the node was rebooted."""
        driver = self._context.driver
        unresponsive = driver.unresponsive()
        boot = driver.boot_id()
        lost = _boot_changed(self._boot, boot)
        self._boot = boot
        for worker in self._workers.values():
            gpu = worker.gpu
            hung = next((each.unhealthy for each in unresponsive if each.matches(gpu.uuid, gpu.index)), None)
            worker.set_health(hung or driver.watch_health(gpu.uuid, worker.driver_health, 0))
            if lost:
                worker.reread(lost)
            worker.advance()

    def next_due(self) -> float | None:
        """Seconds until `advance` will have something to do even if nothing happens."""
        return min((wait for worker in self._workers.values() if (wait := worker.next_due()) is not None), default=None)

    def stop(self) -> None:
        """Do nothing more. A call that has begun continues in its thread, as the hardware would."""
        for worker in self._workers.values():
            worker.stop()

    @property
    def models(self) -> tuple[Model, ...]:
        """Of each GPU, in order."""
        return tuple(worker.gpu.model for worker in self._workers.values())

    @property
    def slices(self) -> tuple[PreparedSlice, ...]:
        """The report of every slice."""
        return (*self._unplaced, *(each for worker in self._workers.values() for each in worker.reports))

    @property
    def gpus(self) -> list[AdvertisedGpu]:
        """Each GPU, in order, as the kubelet is to know it."""
        return [
            AdvertisedGpu(uuid, each.gpu.model, each.unhealthy.message if each.unhealthy else "", each.listed)
            for uuid, each in self._workers.items()
        ]

    def status(self, kubelet_silence: str = "") -> InstasliceStatus:
        """The status now; `kubelet_silence` is why no pod can start."""
        generation = self._spec[1] if self._spec else 0
        now = self._context.clock.now()
        before = self._conditions
        ready = (
            (ConditionStatus.FALSE, ServingReason.KUBELET_SILENT)
            if kubelet_silence
            else (ConditionStatus.TRUE, ServingReason.SERVING)
        )
        self._conditions = (
            _condition(before, READY, *ready, truncated(kubelet_silence), now),
            self._gpus_ready(before, now),
        )
        status = InstasliceStatus(
            observed_generation=generation,
            boot_id=self._boot,
            models=self._geometries,
            gpus=tuple(map(_gpu, self._workers.values())),
            slices=self.slices,
            conditions=self._conditions,
        )
        return msgspec.structs.replace(status, summary=summary(status))

    def _gpus_ready(self, before: tuple[InstasliceCondition, ...], now: datetime) -> InstasliceCondition:
        unhealthy: dict[int, tuple[str, Unhealthy]] = {
            **{
                each.index: (each.uuid or "UUID not known", each.unhealthy)
                for each in self._context.driver.unresponsive()
            },
            **{each.gpu.index: (each.gpu.uuid, each.unhealthy) for each in self._workers.values() if each.unhealthy},
        }
        if not unhealthy:
            return _condition(before, GPUS_READY, ConditionStatus.TRUE, GpusReason.ALL_WELL, "", now)
        reasons = {each.reason for _, each in unhealthy.values()}
        worst = next(reason for reason in UnhealthyReason if reason in reasons)
        message = "; ".join(_gpu_message(index, uuid, each) for index, (uuid, each) in sorted(unhealthy.items()))
        return _condition(before, GPUS_READY, ConditionStatus.FALSE, worst, truncated(message), now)

    def _report_unknown_gpu(self, allocation: Allocation) -> PreparedSlice:
        """The report of an allocation on a GPU that is not in the node."""
        has = ", ".join(self._workers) or "none"
        if any(not each.uuid for each in self._context.driver.unresponsive()):
            state = SliceState.CREATING if allocation.wanted else SliceState.DELETING
            return report_of(allocation, state, reason="a GPU of this node does not answer, and may be the one")
        if not allocation.wanted:
            return report_of(allocation, SliceState.DELETED)
        return report_of(
            allocation, SliceState.FAILED, reason=f"GPU {allocation.gpu} is not in this node (it has {has})"
        )


def unserved(instaslice: Instaslice, why: str, now: datetime) -> InstasliceStatus:
    """The status of a node whose GPUs cannot be used at all."""
    before = instaslice.status
    ready = _condition(before.conditions, READY, ConditionStatus.FALSE, ServingReason.NO_DRIVER, truncated(why), now)
    generation = instaslice.metadata.generation
    return msgspec.structs.replace(before, observed_generation=generation, gpus=(), conditions=(ready,), summary=None)


def _gpu(worker: GpuWorker) -> GpuStatus:
    gpu, unhealthy = worker.gpu, worker.unusable
    health = Health.UNHEALTHY if unhealthy else Health.HEALTHY
    reason = truncated(unhealthy.message) if unhealthy else ""
    return GpuStatus(uuid=gpu.uuid, index=gpu.index, model=gpu.model.name, health=health, reason=reason)


def _gpus(status: InstasliceStatus) -> tuple[drivers.Gpu, ...]:
    """As they were last reported; the status may have been edited since."""
    models = {each.name: each.model() for each in status.models}
    return tuple(
        drivers.Gpu(GpuUuid(gpu.uuid), gpu.index, models[gpu.model]) for gpu in status.gpus if gpu.model in models
    )


def _gpu_message(index: int, uuid: str, unhealthy: Unhealthy) -> str:
    # Messages of the driver begin with the name of the GPU in the call.
    message = unhealthy.message.removeprefix(f"GPU {uuid}: ").removeprefix(f"GPU {index}: ")
    return f"GPU {index} ({uuid}): {message}"


def _boot_changed(before: str | None, now: str) -> str:
    return f"the node was restarted (boot {now}, before {before})" if before and before != now else ""


def _condition(
    before: tuple[InstasliceCondition, ...], name: str, truth: ConditionStatus, reason: str, message: str, now: datetime
) -> InstasliceCondition:
    """The condition of that type; it keeps its transition time while its status does not change."""
    for each in before:
        if each.type == name and each.status is truth:
            now = each.last_transition_time
    moment = now.replace(microsecond=0)
    return InstasliceCondition(type=name, status=truth, reason=reason, last_transition_time=moment, message=message)
