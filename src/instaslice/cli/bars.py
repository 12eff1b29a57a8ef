"""The GPUs of a cluster as bars: a cell for each memory slice, coloured by the pod that holds it.

Pure: Instaslice objects in, something that rich prints out. Who watches the objects decides when it is drawn.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rich.console import Group
from rich.style import Style
from rich.text import Text

from instaslice.api.instaslice import (
    Allocation,
    AllocationState,
    GpuStatus,
    Health,
    Instaslice,
    PreparedSlice,
    SliceState,
)
from instaslice.api.summary import holds_slot
from instaslice.kube.meta import Key

PALETTE: Final = ("#4c9be8", "#f2a65a", "#6cc24a", "#e86a92", "#b084eb", "#e5d352", "#4cc9b0", "#d98880", "#a3b18a")
CELL: Final = (3, 8)
"""Characters of one memory slice, at least and at most: eight hold `1g.5gb` with air around it."""


class Look(Enum):
    """How far the slice in a piece of a bar is."""

    FREE = "free"
    COMING = "coming"  # promised, and being made
    THERE = "there"
    GOING = "going"  # its pod is gone, and it is being destroyed
    FAILED = "failed"
    FOREIGN = "foreign"  # nobody asked us for it


@dataclass(frozen=True)
class Piece:
    """Some memory slices of a GPU, side by side, and what is in them."""

    size: int
    look: Look = Look.FREE
    profile: str = ""
    pod: Key | None = None


def colours(pods: Iterable[Key]) -> dict[Key, str]:
    """A colour for each pod, by the order in which they are given; after nine they come again."""
    return {pod: PALETTE[index % len(PALETTE)] for index, pod in enumerate(dict.fromkeys(pods))}


def bars(found: Iterable[Instaslice], shades: Mapping[Key, str], *, width: int = 120) -> Group:
    """All GPUs of all nodes, a line each, as wide as `width` characters allow and need."""
    all_of_them = [
        (each, gpu)
        for each in sorted(found, key=lambda each: each.metadata.name)
        for gpu in sorted(each.status.gpus, key=lambda gpu: gpu.index)
    ]
    if not all_of_them:
        return Group(Text("no GPUs reported yet", style="dim"))
    labels = [f"{each.metadata.name} GPU {gpu.index} {gpu.model}" for each, gpu in all_of_them]
    left = max(map(len, labels)) + 1
    cells = max(sum(piece.size for piece in pieces(*one)) for one in all_of_them) or 1
    cell = max(CELL[0], min(CELL[1], (width - left) // cells - 1))
    return Group(
        *(_line(label.ljust(left), *one, shades, cell) for label, one in zip(labels, all_of_them, strict=True))
    )


def pieces(of: Instaslice, gpu: GpuStatus) -> list[Piece]:
    """One GPU from its first memory slice to its last; free slices one by one."""
    width = next((model.memory_slices for model in of.status.models if model.name == gpu.model), 0)
    starts = dict(_held(of, gpu.uuid))
    made: list[Piece] = []
    at = 0
    while at < width:
        piece = starts.get(at, Piece(1))
        made.append(piece)
        at += piece.size
    return made


def _held(of: Instaslice, gpu: str) -> Iterator[tuple[int, Piece]]:
    """What is promised or there, by its start. Where a slot was just handed on, the one to come hides the one to go."""
    reported = {slice_.id: slice_ for slice_ in of.status.slices if slice_.gpu == gpu}
    promised = {each.id: each for each in of.spec.allocations if each.gpu == gpu}
    for slice_ in reported.values():
        if slice_.id not in promised and holds_slot(slice_):
            look = Look.FOREIGN if slice_.state is SliceState.FOREIGN else Look.GOING
            yield slice_.start, Piece(slice_.size, look, slice_.profile)
    for allocation in promised.values():
        look = _look(allocation, reported.get(allocation.id))
        if look is not Look.FREE:
            pod = Key(allocation.pod.namespace, allocation.pod.name)
            yield allocation.start, Piece(allocation.size, look, allocation.profile, pod)


def _look(allocation: Allocation, reported: PreparedSlice | None) -> Look:
    state = reported.state if reported else None
    if state is SliceState.DELETED or (reported is None and allocation.state is AllocationState.DELETED):
        return Look.FREE
    if allocation.state is AllocationState.DELETING or state is SliceState.DELETING:
        return Look.GOING
    if state is SliceState.FAILED:
        return Look.FAILED
    return Look.THERE if state is SliceState.CREATED else Look.COMING


def _line(label: str, of: Instaslice, gpu: GpuStatus, shades: Mapping[Key, str], cell: int) -> Text:
    line = Text(label, no_wrap=True, overflow="crop")
    for piece in pieces(of, gpu):
        line.append(_inside(piece, cell), style=_style(piece, shades))
        line.append(" ")
    if gpu.health is not Health.HEALTHY:
        line.append(f"unhealthy: {gpu.reason}", style="bold red")
    return line


def _inside(piece: Piece, cell: int) -> str:
    """The profile in the middle of its cells, and the pod where there is room for both."""
    # The gaps between the cells of one slice belong to it; the one after it is left.
    width = piece.size * (cell + 1) - 1
    if piece.look is Look.FREE:
        return "·".center(width)
    both = f"{piece.profile} {piece.pod.name}" if piece.pod else piece.profile
    return (both if len(both) <= width - 2 else piece.profile)[:width].center(width)


def _style(piece: Piece, shades: Mapping[Key, str]) -> Style:
    shade = shades.get(piece.pod, "white") if piece.pod else "white"
    match piece.look:
        case Look.FREE:
            return Style(color="bright_black", bgcolor="grey23")
        case Look.COMING:
            return Style(color=shade, bgcolor="grey23", italic=True)
        case Look.THERE:
            return Style(color="black", bgcolor=shade, bold=True)
        case Look.GOING:
            return Style(color=shade, bgcolor="grey23", strike=True)
        case Look.FAILED:
            return Style(color="white", bgcolor="red")
        case Look.FOREIGN:
            return Style(color="white", bgcolor="grey37")
