"""The GPUs of a cluster as bars: one cell per memory slice, in the colour of the pod that holds it.

Pure: Instaslice objects come in, something that rich prints comes out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Group
from rich.style import Style
from rich.text import Text

from instaslice.api.instaslice import GpuStatus, Health, Instaslice
from instaslice.controller.held_slots import HeldSlot, SlotState, held_slots
from instaslice.kube.meta import Key

PALETTE: Final = ("#4c9be8", "#f2a65a", "#6cc24a", "#e86a92", "#b084eb", "#e5d352", "#4cc9b0", "#d98880", "#a3b18a")
CELL: Final = (3, 8)
"""Least and most characters per memory slice: eight hold `1g.5gb` with a margin."""


@dataclass(frozen=True)
class Segment:
    """Adjacent memory slices of a GPU, and what is in them."""

    size: int
    state: SlotState = SlotState.FREE
    profile: str = ""
    pod: Key | None = None


def colours(pods: Iterable[Key]) -> dict[Key, str]:
    """A colour for each pod, in the order given; the tenth pod has the colour of the first."""
    return {pod: PALETTE[index % len(PALETTE)] for index, pod in enumerate(dict.fromkeys(pods))}


def bars(instaslices: Iterable[Instaslice], pod_colours: Mapping[Key, str], *, width: int = 120) -> Group:
    """All GPUs of all nodes, one line each, at most `width` characters wide."""
    all_of_them = [
        (each, gpu)
        for each in sorted(instaslices, key=lambda each: each.metadata.name)
        for gpu in sorted(each.status.gpus, key=lambda gpu: gpu.index)
    ]
    if not all_of_them:
        return Group(Text("no GPUs reported yet", style="dim"))
    labels = [f"{each.metadata.name} GPU {gpu.index} {gpu.model}" for each, gpu in all_of_them]
    left = max(map(len, labels)) + 1
    cells = max(sum(segment.size for segment in segments(*one)) for one in all_of_them) or 1
    cell = max(CELL[0], min(CELL[1], (width - left) // cells - 1))
    return Group(
        *(_line(label.ljust(left), *one, pod_colours, cell) for label, one in zip(labels, all_of_them, strict=True))
    )


def segments(node: Instaslice, gpu: GpuStatus) -> list[Segment]:
    """One GPU from its first memory slice to its last; each free memory slice is a segment of its own."""
    width = next((model.memory_slices for model in node.status.models if model.name == gpu.model), 0)
    starts = {slot.start: _segment(slot) for slot in held_slots(node, gpu.uuid)}
    made: list[Segment] = []
    at = 0
    while at < width:
        segment = starts.get(at, Segment(1))
        made.append(segment)
        at += segment.size
    return made


def _segment(slot: HeldSlot) -> Segment:
    held = slot.allocation
    pod = Key(held.pod.namespace, held.pod.name) if held else None
    return Segment(slot.size, slot.state, slot.profile, pod)


def _line(label: str, node: Instaslice, gpu: GpuStatus, pod_colours: Mapping[Key, str], cell: int) -> Text:
    line = Text(label, no_wrap=True, overflow="crop")
    for segment in segments(node, gpu):
        line.append(_label(segment, cell), style=_style(segment, pod_colours))
        line.append(" ")
    if gpu.health is not Health.HEALTHY:
        line.append(f"unhealthy: {gpu.reason}", style="bold red")
    return line


def _label(segment: Segment, cell: int) -> str:
    """The profile in the middle of its cells, and the pod if there is room for both."""
    # The gaps between the cells of one slice belong to it, the gap after it does not.
    width = segment.size * (cell + 1) - 1
    if segment.state is SlotState.FREE:
        return "·".center(width)
    both = f"{segment.profile} {segment.pod.name}" if segment.pod else segment.profile
    return (both if len(both) <= width - 2 else segment.profile)[:width].center(width)


def _style(segment: Segment, pod_colours: Mapping[Key, str]) -> Style:
    return slot_style(segment.state, pod_colours.get(segment.pod) if segment.pod else None)


def slot_style(state: SlotState, colour: str | None) -> Style:
    """How a slot is drawn; `colour` is that of its pod."""
    colour = colour or "white"
    match state:
        case SlotState.FREE:
            return Style(color="bright_black", bgcolor="grey23")
        case SlotState.CREATING:
            return Style(color=colour, bgcolor="grey23", italic=True)
        case SlotState.CREATED:
            return Style(color="#101010", bgcolor=colour, bold=True)
        case SlotState.DELETING:
            return Style(color=colour, bgcolor="grey23", strike=True)
        case SlotState.FAILED:
            return Style(color="white", bgcolor="red")
        case SlotState.FOREIGN:
            return Style(color="white", bgcolor="grey37")
