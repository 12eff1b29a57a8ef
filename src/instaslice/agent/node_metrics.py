"""The metrics of the nodes that an agent serves: read from their last status at each scrape, but for driver calls."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry

from instaslice.agent.gpu_worker import DriverCall
from instaslice.agent.served_node import ServedNode
from instaslice.api.instaslice import READY, Allocation, ConditionStatus, Health, InstasliceStatus, SliceState
from instaslice.observe import metrics
from instaslice.observe import registry as registries
from instaslice.observe.registry import Reading, Samples

Allocated = Callable[[str], Mapping[str, Allocation]]
"""The allocations of a node, by id."""


class NodeMetrics:
    def __init__(self, served: Mapping[str, ServedNode], allocated: Allocated, registry: CollectorRegistry) -> None:
        """`served` are the nodes by name."""
        self._served = served
        self._allocated = allocated
        self._seconds = registries.histogram(registry, metrics.OPERATION_SECONDS)
        self._errors = registries.counter(registry, metrics.OPERATION_ERRORS)
        registries.read_from(registry, self.read)

    def called(self, call: DriverCall) -> None:
        """A call to the driver has ended."""
        self._seconds.labels(call.operation, call.profile).observe(call.seconds)
        if call.error is not None:
            self._errors.labels(call.operation, call.profile, type(call.error).__name__).inc()

    def read(self) -> Iterator[Reading]:
        statuses = {name: served.status for name, served in self._served.items() if served.status is not None}
        yield metrics.NODE_READY, {(name,): _is_ready(status) for name, status in statuses.items()}
        yield (
            metrics.GPU_HEALTHY,
            {
                (name, gpu.uuid, str(gpu.index), gpu.model): gpu.health is Health.HEALTHY
                for name, status in statuses.items()
                for gpu in status.gpus
            },
        )
        slices: dict[tuple[str, ...], float] = {}
        info: dict[tuple[str, ...], float] = {}
        for name, status in statuses.items():
            count = Counter(each.state for each in status.slices)
            slices |= {(name, state.value): count[state] for state in SliceState}
            info |= _infos(status, self._allocated(name))
        yield metrics.SLICES, slices
        yield metrics.SLICE, info


def _is_ready(status: InstasliceStatus) -> bool:
    return all(each.status is not ConditionStatus.FALSE for each in status.conditions if each.type == READY)


def _infos(status: InstasliceStatus, allocations: Mapping[str, Allocation]) -> Samples:
    """The slices that exist and were allocated. One that a pod left behind counts until it is destroyed."""
    found: dict[tuple[str, ...], float] = {}
    for each in status.slices:
        allocation = allocations.get(each.id)
        if allocation is None or each.gi is None or each.mig_uuid is None:
            continue
        pod = allocation.pod
        place = each.gpu, str(each.gi), each.profile, each.mig_uuid
        found[*place, pod.namespace, pod.name, allocation.container] = 1
    return found
