"""One node: a worker for each GPU, and the status of its Instaslice object made from what they report."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from instaslice.agent.decision import WANTED, reported
from instaslice.agent.worker import GpuWorker, Surroundings
from instaslice.api.bounds import words
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    Allocation,
    Condition,
    Gpu,
    Health,
    Instaslice,
    NodeCapacity,
    PreparedSlice,
    SliceState,
    Status,
    Truth,
)
from instaslice.api.summary import summary
from instaslice.kube import quantities
from instaslice.kube.core import Node

READY = "Ready"


class NodeAgent:
    """Takes in what is promised, has it made, and says what is. Nothing here waits; `changed` tells of progress."""

    def __init__(self, around: Surroundings, before: Status) -> None:
        """`before` is what was reported last: all that is known of an earlier process."""
        self._around = around
        self._boot = around.driver.boot_id()
        gpus = around.driver.discover()
        lost = _restarted(before.boot_id, self._boot)
        self._workers: Mapping[str, GpuWorker] = {
            gpu.uuid: GpuWorker(gpu, around, [each for each in before.slices if each.gpu == gpu.uuid], lost)
            for gpu in gpus
        }
        self.models = tuple(gpu.model for gpu in gpus)
        # Made once: they are the larger part of a status.
        self._geometries = tuple(map(ModelGeometry.of, {model.name: model for model in self.models}.values()))
        self._homeless: tuple[PreparedSlice, ...] = ()
        self._spec: tuple[str, int] | None = None
        self._conditions = before.conditions

    def take(self, thing: Instaslice) -> None:
        """The object as it is now; one whose spec is known is no news."""
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

    def look(self) -> None:
        """What is on the GPUs may have changed behind our back."""
        for worker in self._workers.values():
            worker.look()

    def advance(self) -> None:
        """Do what is due now on every GPU, after a look at which of them are well and whether this is the same boot."""
        driver = self._around.driver
        known = {worker.gpu.uuid: worker.told for worker in self._workers.values() if worker.told}
        ills = driver.watch_health(known, 0)
        boot = driver.boot_id()
        lost = _restarted(self._boot, boot)
        self._boot = boot
        for worker in self._workers.values():
            worker.health(ills.get(worker.gpu.uuid, ""))
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
    def slices(self) -> tuple[PreparedSlice, ...]:
        """What there is to say of every slice now."""
        return (*self._homeless, *(each for worker in self._workers.values() for each in worker.reports))

    @property
    def ills(self) -> dict[str, str]:
        """Each GPU, in order, and why it is not well; empty words when it is."""
        return {uuid: worker.ill for uuid, worker in self._workers.items()}

    def status(self, capacity: NodeCapacity | None) -> Status:
        """What is, as far as it is known; `capacity` is what pods may use of the node."""
        generation = self._spec[1] if self._spec else 0
        now = self._around.clock.now()
        self._conditions = (_ready(self._conditions, Truth.TRUE, "Serving", "", now),)
        status = Status(
            observed_generation=generation,
            boot_id=self._boot,
            node=capacity,
            models=self._geometries,
            gpus=tuple(map(_gpu, self._workers.values())),
            slices=self.slices,
            conditions=self._conditions,
        )
        return msgspec.structs.replace(status, summary=summary(status))

    def _nowhere(self, told: Allocation) -> PreparedSlice:
        """What becomes of an allocation on a GPU that was taken out of the node."""
        has = ", ".join(self._workers) or "none"
        if told.state not in WANTED:
            return reported(told, SliceState.DELETED)
        return reported(told, SliceState.FAILED, reason=f"GPU {told.gpu} is not in this node (it has {has})")


def unserved(thing: Instaslice, why: str, now: datetime) -> Status:
    """The status of a node whose GPUs cannot be used at all."""
    before = thing.status
    ready = _ready(before.conditions, Truth.FALSE, "NoDriver", words(why), now)
    generation = thing.metadata.generation
    return msgspec.structs.replace(before, observed_generation=generation, gpus=(), conditions=(ready,), summary=None)


def capacity(node: Node) -> NodeCapacity:
    """What pods may use of a node, by what its kubelet says. Raises BadQuantity."""
    told = node.status.allocatable
    return NodeCapacity(
        cpu=max(0, quantities.milli(told.get("cpu", 0))), memory=max(0, quantities.whole(told.get("memory", 0)))
    )


def _gpu(worker: GpuWorker) -> Gpu:
    gpu, ill = worker.gpu, worker.ill
    health = Health.UNHEALTHY if ill else Health.HEALTHY
    return Gpu(uuid=gpu.uuid, index=gpu.index, model=gpu.model.name, health=health, reason=words(ill))


def _restarted(before: str | None, now: str) -> str:
    return f"the node was started anew (boot {now}, before {before})" if before and before != now else ""


def _ready(before: tuple[Condition, ...], truth: Truth, reason: str, message: str, now: datetime) -> Condition:
    """The condition; it keeps its time while what it says does not change."""
    for each in before:
        if each.type == READY and each.status is truth:
            now = each.last_transition_time
    moment = now.replace(microsecond=0)
    return Condition(type=READY, status=truth, reason=reason, last_transition_time=moment, message=message)
