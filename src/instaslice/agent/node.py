"""One node: a worker for each GPU, and the status of its Instaslice object made from what they report."""

from datetime import datetime

import msgspec

from instaslice.agent.decision import reported
from instaslice.agent.worker import GpuWorker, Surroundings
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
    NodeCapacity,
    PreparedSlice,
    SliceState,
)
from instaslice.api.summary import summary
from instaslice.drivers import Ailment, GpuUuid, Ill
from instaslice.drivers import driver as drivers
from instaslice.geometry import Model
from instaslice.kube import quantities
from instaslice.kube.core import Node

GPUS_READY = "GpusReady"
"""The condition that says whether slices can be made on all GPUs of the node."""


class NodeAgent:
    """Takes in what is promised, has it made, and says what is. Nothing here waits; `changed` tells of progress."""

    def __init__(self, around: Surroundings, before: InstasliceStatus) -> None:
        """`before` is what was reported last: all that is known of an earlier process."""
        self._around = around
        self._boot = around.driver.boot_id()
        self._conditions = before.conditions
        # Not all may answer by now, and what is on those must not be taken for gone.
        self._remembered = _gpus(before) if around.driver.silent() else ()
        self._spec: tuple[str, int] | None = None
        self._workers: dict[str, GpuWorker] = {}
        self._geometries: tuple[ModelGeometry, ...] = ()
        self._homeless = before.slices
        self._muster(_restarted(before.boot_id, self._boot))
        self._homeless = ()

    def take(self, thing: Instaslice) -> None:
        """The object as it is now; one whose spec is known is no news."""
        self._muster()
        spec = thing.metadata.uid, thing.metadata.generation
        if spec == self._spec:
            return
        self._spec = spec
        by: dict[str, list[Allocation]] = {uuid: [] for uuid in self._workers}
        homeless = []
        for each in thing.spec.allocations:
            if each.gpu in by:
                by[each.gpu].append(each)
            else:
                homeless.append(self._nowhere(each))
        for uuid, allocations in by.items():
            self._workers[uuid].take(tuple(allocations))
        self._homeless = tuple(homeless)

    def _muster(self, lost: str = "") -> None:
        """A worker for each GPU: those that answer, and those that we knew and that do not answer now."""
        driver = self._around.driver
        there = {gpu.uuid: gpu for gpu in driver.discover()}
        for gpu in self._remembered:
            if any(each.may_be(gpu.uuid, gpu.index) for each in driver.silent()):
                there.setdefault(gpu.uuid, gpu)
        if there.keys() == self._workers.keys():
            return
        past, before = self.slices, self._workers
        self._workers = {
            gpu.uuid: before.get(gpu.uuid)
            or GpuWorker(gpu, self._around, [each for each in past if each.gpu == gpu.uuid], lost)
            for gpu in sorted(there.values(), key=lambda gpu: gpu.index)
        }
        for gone in before.keys() - there.keys():
            before[gone].end()
        # Made once: they are the larger part of a status.
        self._geometries = tuple(map(ModelGeometry.of, {model.name: model for model in self.models}.values()))
        self._spec = None  # promises are dealt out anew

    def look(self) -> None:
        """What is on the GPUs may have changed behind our back."""
        for worker in self._workers.values():
            worker.look()

    def advance(self) -> None:
        """Do what is due now on every GPU, after a look at which of them are well and whether this is the same boot."""
        driver = self._around.driver
        silent = driver.silent()
        boot = driver.boot_id()
        lost = _restarted(self._boot, boot)
        self._boot = boot
        for worker in self._workers.values():
            gpu = worker.gpu
            hung = next((each.ill for each in silent if each.may_be(gpu.uuid, gpu.index)), None)
            worker.health(hung or driver.watch_health(gpu.uuid, worker.told, 0))
            if lost:
                worker.look(lost)
            worker.advance()

    def again(self) -> float | None:
        """Seconds until `advance` will have something to do even if nothing happens."""
        return min((wait for worker in self._workers.values() if (wait := worker.again()) is not None), default=None)

    def end(self) -> None:
        """Do nothing more. A call that has begun goes on in its thread, as hardware would."""
        for worker in self._workers.values():
            worker.end()

    @property
    def models(self) -> tuple[Model, ...]:
        """Of each GPU, in order."""
        return tuple(worker.gpu.model for worker in self._workers.values())

    @property
    def slices(self) -> tuple[PreparedSlice, ...]:
        """What there is to say of every slice now."""
        return (*self._homeless, *(each for worker in self._workers.values() for each in worker.reports))

    @property
    def ills(self) -> dict[str, str]:
        """Each GPU, in order, and why it is not well; empty words when it is."""
        return {uuid: worker.ill.words if worker.ill else "" for uuid, worker in self._workers.items()}

    @property
    def unread(self) -> set[str]:
        """The GPUs of which it is not known yet what is on them, but from what was reported before."""
        return {uuid for uuid, worker in self._workers.items() if not worker.read}

    def status(self, capacity: NodeCapacity | None, silence: str = "") -> InstasliceStatus:
        """What is, as far as it is known; `capacity` is what pods may use of the node, `silence` why none can start."""
        generation = self._spec[1] if self._spec else 0
        now = self._around.clock.now()
        before = self._conditions
        ready = (ConditionStatus.FALSE, "KubeletSilent") if silence else (ConditionStatus.TRUE, "Serving")
        self._conditions = (_condition(before, READY, *ready, truncated(silence), now), self._gpus_ready(before, now))
        status = InstasliceStatus(
            observed_generation=generation,
            boot_id=self._boot,
            node=capacity,
            models=self._geometries,
            gpus=tuple(map(_gpu, self._workers.values())),
            slices=self.slices,
            conditions=self._conditions,
        )
        return msgspec.structs.replace(status, summary=summary(status))

    def _gpus_ready(self, before: tuple[InstasliceCondition, ...], now: datetime) -> InstasliceCondition:
        ills: dict[int, tuple[str, Ill]] = {
            **{each.index: (each.uuid or "UUID not known", each.ill) for each in self._around.driver.silent()},
            **{each.gpu.index: (each.gpu.uuid, each.ill) for each in self._workers.values() if each.ill},
        }
        if not ills:
            return _condition(before, GPUS_READY, ConditionStatus.TRUE, "AllWell", "", now)
        kinds = {ill.kind for _, ill in ills.values()}
        worst = next(kind for kind in Ailment if kind in kinds)
        message = "; ".join(_named(index, uuid, ill) for index, (uuid, ill) in sorted(ills.items()))
        return _condition(before, GPUS_READY, ConditionStatus.FALSE, worst, truncated(message), now)

    def _nowhere(self, told: Allocation) -> PreparedSlice:
        """What becomes of an allocation on a GPU that was taken out of the node."""
        has = ", ".join(self._workers) or "none"
        if not told.wanted:
            return reported(told, SliceState.DELETED)
        return reported(told, SliceState.FAILED, reason=f"GPU {told.gpu} is not in this node (it has {has})")


def unserved(thing: Instaslice, why: str, now: datetime) -> InstasliceStatus:
    """The status of a node whose GPUs cannot be used at all."""
    before = thing.status
    ready = _condition(before.conditions, READY, ConditionStatus.FALSE, "NoDriver", truncated(why), now)
    generation = thing.metadata.generation
    return msgspec.structs.replace(before, observed_generation=generation, gpus=(), conditions=(ready,), summary=None)


def capacity(node: Node) -> NodeCapacity:
    """What pods may use of a node, by what its kubelet says. Raises BadQuantity."""
    told = node.status.allocatable
    return NodeCapacity(
        cpu=max(0, quantities.milli(told.get("cpu", 0))), memory=max(0, quantities.whole(told.get("memory", 0)))
    )


def _gpu(worker: GpuWorker) -> GpuStatus:
    gpu, ill = worker.gpu, worker.ill
    health = Health.UNHEALTHY if ill else Health.HEALTHY
    reason = truncated(ill.words) if ill else ""
    return GpuStatus(uuid=gpu.uuid, index=gpu.index, model=gpu.model.name, health=health, reason=reason)


def _gpus(status: InstasliceStatus) -> tuple[drivers.Gpu, ...]:
    """As they were reported; somebody may have edited that since."""
    models = {each.name: each.model() for each in status.models}
    return tuple(
        drivers.Gpu(GpuUuid(gpu.uuid), gpu.index, models[gpu.model]) for gpu in status.gpus if gpu.model in models
    )


def _named(index: int, uuid: str, ill: Ill) -> str:
    # What a call has to say begins with the name that it knew the GPU by.
    said = ill.words.removeprefix(f"GPU {uuid}: ").removeprefix(f"GPU {index}: ")
    return f"GPU {index} ({uuid}): {said}"


def _restarted(before: str | None, now: str) -> str:
    return f"the node was started anew (boot {now}, before {before})" if before and before != now else ""


def _condition(
    before: tuple[InstasliceCondition, ...], name: str, truth: ConditionStatus, reason: str, message: str, now: datetime
) -> InstasliceCondition:
    """The condition of that name; it keeps its time while its status does not change."""
    for each in before:
        if each.type == name and each.status is truth:
            now = each.last_transition_time
    moment = now.replace(microsecond=0)
    return InstasliceCondition(type=name, status=truth, reason=reason, last_transition_time=moment, message=message)
