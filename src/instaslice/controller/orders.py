"""What the dispatcher can order, and how long it waits for it."""

from dataclasses import dataclass
from typing import Protocol

from instaslice.placement import NodeName
from instaslice.placement.longest_waiting import PATIENCE


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds."""

    patience: float = PATIENCE
    """Until GPUs are reserved for the first pod in the queue."""
    create: float = 120.0
    """Until a node whose agent does not answer is avoided."""
    bind: float = 300.0
    """Until a pod that is not bound releases its slices."""
    node: float = 300.0
    """Until a node that is not ready is given up, as with Kubernetes' own default toleration."""


class Orders(Protocol):
    """Each may be repeated, and is carried out according to the state of the cluster when its turn comes."""

    def write_spec(self, node: NodeName, *, soon: bool) -> None:
        """The spec of a node has changed; `soon` where a pod waits for it."""

    def ungate(self, uid: str) -> None:
        """All slices of the pod exist."""

    def fail(self, uid: str, reason: str) -> None:
        """The pod can never run, and would keep what it holds."""

    def update_condition(self, uid: str) -> None:
        """The condition of the pod may have changed."""

    def wake(self) -> None:
        """A waiting pod may fit now: have `decide` called."""


class NullOrders:
    """Carries out none: to ask a dispatcher what it would do."""

    def write_spec(self, node: NodeName, *, soon: bool) -> None: ...

    def ungate(self, uid: str) -> None: ...

    def fail(self, uid: str, reason: str) -> None: ...

    def update_condition(self, uid: str) -> None: ...

    def wake(self) -> None: ...
