"""Which GPUs: read from flags (`13x8xA100-40GB`) or a JSON file, built into a `Fleet`."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from instaslice.errors import BadInput
from instaslice.geometry import Model, UnknownProfile, models
from instaslice.placement import Fleet, GpuId, NodeName, could_hold
from instaslice.simulate.errors import BadFleet, unreadable
from instaslice.simulate.jobs import Wants

_FLAG = re.compile(r"(?P<nodes>\d+)x(?P<gpus>\d+)x(?P<model>.+)")
MOST_GPUS: Final = 1_000_000
"""A larger fleet is a typing error, which would otherwise show only when memory runs out."""


class NodeGroup(NamedTuple):
    """A number of equal nodes."""

    number: int
    gpus: int
    model: Model
    name: str = "node"

    def __str__(self) -> str:
        return f"{self.number}x{self.gpus}x{self.model.name}"


class FleetPlan:
    """A fleet before it is built: each policy of a comparison gets a fresh one."""

    def __init__(self, groups: Sequence[NodeGroup]) -> None:
        """Raises BadFleet where there is nothing to place on, or far more than can be meant."""
        self.groups: Final = tuple(groups)
        self.gpus: Final = sum(group.number * group.gpus for group in groups)
        if not 0 < self.gpus <= MOST_GPUS:
            raise BadFleet(f"a fleet of {self.gpus} GPUs; between 1 and {MOST_GPUS} can be simulated")
        self._possible: dict[Wants, bool] = {}

    def with_nodes(self, number: int) -> "FleetPlan":
        """The same fleet with that many nodes of its last group. Raises BadFleet where there are too many GPUs."""
        return FleetPlan((*self.groups[:-1], self.groups[-1]._replace(number=number)))

    def build(self) -> Fleet:
        """All GPUs, empty. Nodes of one name are numbered in the order in which they are added."""
        fleet = Fleet()
        used: Counter[str] = Counter()
        for group in self.groups:
            for _ in range(group.number):
                node = NodeName(f"{group.name}-{used[group.name]:05}")
                used[group.name] += 1
                for gpu in range(group.gpus):
                    fleet.add_gpu(GpuId(f"{node}/{gpu}"), node, group.model)
        return fleet

    @cached_property
    def models(self) -> dict[Model, int]:
        """Each model with how many GPUs of it there are."""
        counts: Counter[Model] = Counter()
        for group in self.groups:
            counts[group.model] += group.number * group.gpus
        return dict(counts)

    @property
    def main_model(self) -> Model:
        """The model most GPUs are of: what a fraction of a GPU is a fraction of."""
        return max(self.models, key=self.models.__getitem__)

    @cached_property
    def slices(self) -> int:
        """Memory slices of all GPUs."""
        return sum(model.memory_slices * count for model, count in self.models.items())

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The memory slices of every profile that can be placed somewhere; of two models the first one's."""
        sizes: dict[str, int] = {}
        for model in self.models:
            for profile in model.profiles:
                if profile.starts:
                    sizes.setdefault(profile.name, profile.size)
        return sizes

    def profile(self, name: str) -> str:
        """The name as the fleet has it. Raises UnknownProfile where no GPU has such a profile."""
        for model in self.models:
            try:
                found = model.profile(name)
            except UnknownProfile:
                continue
            if found.starts:
                return found.name
        raise UnknownProfile(f"profile {name} does not exist in this fleet (it has {', '.join(self.sizes)})")

    def can_ever_hold(self, wants: Wants) -> bool:
        """Whether some node could hold all of it when empty: a pod that none could hold would wait indefinitely."""
        found = self._possible.get(wants)
        if found is None:
            found = self._possible[wants] = any(
                group.number and could_hold([group.model] * group.gpus, wants) for group in self.groups
            )
        return found

    def __str__(self) -> str:
        return ", ".join(map(str, self.groups))


def from_flags(texts: Iterable[str], profiles: Sequence[str] = ()) -> FleetPlan:
    """`NODESxGPUSxMODEL`, as often as there are kinds of node; `profiles` allows only those. Raises BadFleet."""
    groups = []
    for text in texts:
        found = _FLAG.fullmatch(text.strip())
        if found is None:
            raise BadFleet(f"--fleet {text!r}: write NODESxGPUSxMODEL, like 13x8xA100-40GB")
        where = f"--fleet {text!r}" + (f" with --profiles {','.join(profiles)}" if profiles else "")
        groups.append(_nodes(where, int(found["nodes"]), int(found["gpus"]), found["model"], profiles=profiles))
    return FleetPlan(groups)


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    gpus: int
    model: str
    count: int = 1
    name: str = "node"
    profiles: list[str] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    nodes: list[_Row]


def from_file(path: Path) -> FleetPlan:
    """`{"nodes": [{"count": 13, "gpus": 8, "model": "A100-40GB"}]}`; `name` and `profiles` are optional.

    `profiles` allows only some of the model's. Raises BadFleet with the file and the entry.
    """
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=_File).nodes
    except (OSError, msgspec.MsgspecError) as error:
        raise BadFleet(unreadable(path, error)) from None
    groups = []
    for number, row in enumerate(rows, 1):
        where = f"{path}, node entry {number}"
        if row.profiles == []:
            raise BadFleet(f"{where}: profiles is empty; name those that are allowed, or leave it out")
        groups.append(_nodes(where, row.count, row.gpus, row.model, row.name, row.profiles or ()))
    try:
        return FleetPlan(groups)
    except BadFleet as error:
        raise BadFleet(f"{path}: {error}") from None


def _nodes(
    where: str, count: int, gpus: int, model: str, name: str = "node", profiles: Sequence[str] = ()
) -> NodeGroup:
    if count < 1 or gpus < 1:
        raise BadFleet(f"{where}: {count} nodes of {gpus} GPUs; both must be at least 1")
    try:
        found = models.placeable(model)
        return NodeGroup(count, gpus, found.only(profiles) if profiles else found, name)
    except BadInput as error:
        raise BadFleet(f"{where}: {error}") from None
