"""GPUs reserved for the pod that has waited longest, so that smaller pods do not pass it indefinitely.

One pod at a time: the first in the queue, once it has waited longer than its patience. The GPUs are closed to all other
pods until it fits there. `placement.gpu_reservation` chooses them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from instaslice.controller.ledger import Ledger
from instaslice.placement import GpuId, NodeName
from instaslice.placement.gpu_reservation import gpus_to_reserve

RESERVED = "reserved"
"""The kind of reason for which the GPUs are closed."""


@dataclass(frozen=True, slots=True)
class ReservedGpus:
    """GPUs that are reserved for a pod, until when."""

    uid: str
    node: NodeName
    gpus: tuple[GpuId, ...]
    until: float


class LongestWaiting:
    """`patience` is how long the first in the queue lets others pass, and how long one choice is held before the next;
    in seconds."""

    def __init__(self, ledger: Ledger, patience: float) -> None:
        self.patience = patience
        self.reserved: ReservedGpus | None = None
        self._ledger = ledger

    def reserve(
        self, uid: str, profiles: Sequence[str], eligible: Callable[[NodeName], bool], whole_node: bool, now: float
    ) -> bool:
        """Reserve GPUs for a pod; whether any node could ever hold it. `eligible` says of a node whether it would admit
        the pod if it were empty, `whole_node` whether all GPUs of a node are reserved and not only one."""
        self.release()
        gpus = gpus_to_reserve(self._ledger.fleet, profiles, eligible, whole_node)
        if not gpus:
            return False
        node = self._ledger.fleet.node_of[self._ledger.fleet.number(gpus[0])].name
        self._close(ReservedGpus(uid, node, gpus, now + self.patience))
        return True

    def is_for(self, uid: str) -> bool:
        return self.reserved is not None and self.reserved.uid == uid

    @contextmanager
    def lifted_for(self, uid: str) -> Iterator[None]:
        """What is reserved for this pod is open to it; where it then holds slices, nothing is reserved any more."""
        reserved = self.reserved
        if reserved is None or reserved.uid != uid:
            yield
            return
        self.release()
        yield
        if uid not in self._ledger.reservations and self._still_there(reserved):
            self._close(reserved)

    def release(self) -> None:
        """Reserve nothing. Safe to repeat."""
        if self.reserved is not None:
            reserved, self.reserved = self.reserved, None
            for gpu in self._still_there(reserved):
                self._ledger.fleet.open(gpu, RESERVED)

    def _close(self, reserved: ReservedGpus) -> None:
        self.reserved = reserved
        for gpu in self._still_there(reserved):
            why = f"reserved for a pod that has waited longer than {self.patience:.0f} s"
            self._ledger.fleet.close(gpu, RESERVED, why)

    def _still_there(self, reserved: ReservedGpus) -> list[GpuId]:
        record = self._ledger.nodes.get(reserved.node)
        return [gpu for gpu in reserved.gpus if record is not None and gpu in record.gpus]
