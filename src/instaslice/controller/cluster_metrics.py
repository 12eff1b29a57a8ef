"""The metrics of the cluster, read from the controller's state at each scrape.

Costs as much as there are nodes, waiting pods and kinds of state, and nothing between scrapes. Decides nothing.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from instaslice.api.reasons import PodReason
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.ledger import HEALTH, UNREADABLE, UNREADY
from instaslice.controller.lifecycle import Phase
from instaslice.controller.node_record import NodeRecord
from instaslice.controller.pod_reconciler import SILENT
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.state_times import StateTimes
from instaslice.controller.work_queues import WorkQueues
from instaslice.kube.clock import Clock
from instaslice.observe import metrics
from instaslice.observe.registry import Reading
from instaslice.placement.longest_waiting import RESERVED
from instaslice.placement.room import ModelRoom, rooms

GPU_STATES: Final = {
    "": "open",
    HEALTH: "unhealthy",
    RESERVED: "reserved",
    SILENT: "silent",
    UNREADABLE: "unreadable",
    UNREADY: "unready",
}
"""Why a GPU is closed → the label."""
UNKNOWN: Final = "Unknown"
"""The reason of a pod whose condition has not been written, or not by us."""
NODE_STATES: Final = ("serving", "not serving", "unreadable")
BYTES_PER_GB: Final = 1e9


class ClusterMetrics:
    def __init__(self, dispatcher: Dispatcher, orders: WorkQueues, times: StateTimes, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._state = dispatcher.state
        self._orders = orders
        self._times = times
        self._clock = clock

    def read(self) -> Iterator[Reading]:
        yield from self._pods()
        yield from self._nodes()
        yield from _gpus(rooms(self._state.ledger.fleet))
        yield from self._troubles()

    def _pods(self) -> Iterator[Reading]:
        yield metrics.ALLOCATIONS, {(phase.value,): count for phase, count in self._times.allocations().items()}
        reasons = Counter(dict.fromkeys([*map(str, PodReason), UNKNOWN], 0))
        for reason, count in self._times.waiting().items():
            reasons[reason if reason in reasons else UNKNOWN] += count
        yield metrics.WAITING_PODS, {(reason,): count for reason, count in reasons.items()}
        yield metrics.QUEUE, {(): len(self._state.queue)}
        yield metrics.STATE_OLDEST, {(phase.value,): age for phase, age in self._oldest().items()}
        orders = self._orders
        lengths = {
            "write specs": len(orders.specs),
            "ungate pods": len(orders.ungates),
            "fail pods": len(orders.failures),
            "conditions of waiting pods": len(orders.waiting_conditions),
            "conditions of ready pods": len(orders.ready_conditions),
        }
        yield metrics.WORK_QUEUE, {(queue,): length for queue, length in lengths.items()}

    def _oldest(self) -> dict[Phase, float]:
        # By when pods were created: a restart of ours does not make them younger.
        created = min((head.since for head in self._state.queue.heads()), default=None)
        now = self._clock.now().timestamp()
        waiting = {} if created is None else {Phase.WAITING: max(0.0, now - created)}
        return self._times.oldest() | waiting

    def _nodes(self) -> Iterator[Reading]:
        records = self._state.ledger.nodes.values()
        states = Counter(map(_state_of, records))
        yield metrics.NODES, {(state,): states[state] for state in NODE_STATES}
        yield metrics.FOREIGN, {(): sum(len(record.foreign_slices) for record in records)}
        yield metrics.FAILED_PLACEMENTS, {(): sum(len(record.quarantined) for record in records)}

    def _troubles(self) -> Iterator[Reading]:
        yield metrics.LOST_PODS, {(): self._dispatcher.lost_pods}
        kinds = Counter(kind for kind, _, _ in self._state.quarantine)
        yield metrics.SET_ASIDE, {(kind.value,): kinds[kind] for kind in ObjectKind}
        yield metrics.FAILURES, {(): self._state.quarantine.failures}


def _state_of(record: NodeRecord) -> str:
    return "unreadable" if record.unreadable else "not serving" if record.unready else "serving"


def _gpus(found: list[ModelRoom]) -> Iterator[Reading]:
    """Two geometries may have the name of one model: their numbers are added."""
    gpus: Counter[tuple[str, ...]] = Counter()
    memory: Counter[tuple[str, ...]] = Counter()
    with_room: Counter[tuple[str, ...]] = Counter()
    held: Counter[tuple[str, ...]] = Counter()
    largest: dict[tuple[str, ...], float] = {}
    for room in found:
        model, slice_bytes = room.model, round(room.slice_gb * BYTES_PER_GB)
        gpus.update({(model, label): room.gpus[why] for why, label in GPU_STATES.items()})
        memory.update({(model, state.value): slices * slice_bytes for state, slices in room.memory.items()})
        with_room.update({(model, profile): count for profile, count in room.with_room.items()})
        held.update({(model, profile): count for profile, count in room.held.items()})
        largest[model,] = max(largest.get((model,), 0), room.largest * slice_bytes)
    yield metrics.GPUS, gpus
    yield metrics.MEMORY, memory
    yield metrics.LARGEST, largest
    yield metrics.ROOM, with_room
    yield metrics.HELD, held
