"""What a pod asks for, worked out once: its slices, what it needs of a node beside them, and its shape."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Self

import msgspec

from instaslice.controller.line import Shape
from instaslice.controller.requests import Amounts, effective, split
from instaslice.controller.wants import Wanted, wanted
from instaslice.errors import InstasliceError
from instaslice.kube.core import Pod
from instaslice.placement import Demand, NodeName


@dataclass(slots=True)
class Ask:
    wants: tuple[Wanted, ...]
    demand: Demand
    bindable: Demand
    """The same, only where the scheduler would bind it too: it counts our resources by pods, we count slots."""
    amounts: Amounts
    needs: Amounts
    """Of them, what is not ours."""
    ours: Amounts
    shape: Shape
    since: float | None = None
    """When it first stood in line."""
    bad: str = ""
    """Why nobody can make sense of it; it wants nothing then."""

    @classmethod
    def of(cls, pod: Pod, admits: Callable[[Pod, Amounts, NodeName], bool], filtered: Hashable = None) -> Self:
        """`filtered` is what else the scheduler's filters look at, equal for pods that they judge alike."""
        bad = ""
        amounts: Amounts = {}
        wants: tuple[Wanted, ...] = ()
        try:
            amounts, wants = effective(pod), wanted(pod)
        except InstasliceError as error:
            bad = str(error)
        profiles = tuple(want.profile for want in wants)
        needs, ours = split(amounts)
        demand = Demand(profiles, partial(admits, pod, needs), pod.metadata.name)
        bindable = Demand(profiles, partial(admits, pod, amounts), pod.metadata.name)
        where = msgspec.json.encode((pod.spec.node_selector, pod.spec.affinity, pod.spec.tolerations))
        shape = (profiles, tuple(sorted(amounts.items())), where, filtered)
        return cls(wants, demand, bindable, amounts, needs, ours, shape, bad=bad)

    @property
    def profiles(self) -> tuple[str, ...]:
        return tuple(want.profile for want in self.wants)

    @property
    def cpu(self) -> int:
        return self.amounts.get("cpu", 0)

    @property
    def memory(self) -> int:
        return self.amounts.get("memory", 0)
