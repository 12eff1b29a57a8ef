"""What the dispatcher wants done, and how long it waits for it."""

from dataclasses import dataclass
from typing import Protocol

from instaslice.placement import NodeName


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds."""

    patience: float = 300.0
    """Until room is kept for the first in line."""
    create: float = 120.0
    """Until a node whose agent does not answer is left alone."""
    bind: float = 300.0
    """Until a pod that nobody binds gives its slices back."""
    node: float = 300.0
    """Until a node that is not ready is given up, as Kubernetes' own default toleration."""


class Orders(Protocol):
    """Each may be given again and again, and looks at what is when its turn comes."""

    def write_spec(self, node: NodeName, *, soon: bool) -> None:
        """The spec of a node is another; `soon` where somebody waits for it."""

    def ungate(self, uid: str) -> None:
        """All slices of the pod exist."""

    def fail(self, uid: str, reason: str) -> None:
        """The pod cannot run any more and would hog what it holds."""

    def update_condition(self, uid: str) -> None:
        """What is to be said about the pod is another."""

    def wake(self) -> None:
        """Somebody who waits may fit now: have `decide` called."""


class NullOrders:
    """Carries out none: for whoever only asks a dispatcher what it would do."""

    def write_spec(self, node: NodeName, *, soon: bool) -> None: ...

    def ungate(self, uid: str) -> None: ...

    def fail(self, uid: str, reason: str) -> None: ...

    def update_condition(self, uid: str) -> None: ...

    def wake(self) -> None: ...
