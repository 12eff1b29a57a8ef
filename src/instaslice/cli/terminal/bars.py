"""The GPUs of a cluster as bars: one cell per memory slice, in the colour of the pod that holds it.

Pure: Instaslice objects come in, something that rich prints comes out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rich.console import Group
from rich.style import Style
from rich.text import Text

from instaslice.api.instaslice import GpuStatus, Health, Instaslice, SliceState
from instaslice.api.summary import holds_slot
from instaslice.controller.lifecycle import Phase, phase_of_slice
from instaslice.kube.meta import Key

PALETTE: Final = ("#4c9be8", "#f2a65a", "#6cc24a", "#e86a92", "#b084eb", "#e5d352", "#4cc9b0", "#d98880", "#a3b18a")
CELL: Final = (3, 8)
"""Least and most characters per memory slice: eight hold `1g.5gb` with a margin."""


class SegmentState(Enum):
    """What is in a segment of a bar."""

    FREE = "free"
    CREATING = "coming"  # allocated, and being created
    CREATED = "there"
    DELETING = "going"  # its pod has ended, and it is being destroyed
    FAILED = "failed"
    FOREIGN = "foreign"  # no allocation names it


SEGMENT_STATES: Final = {
    Phase.CREATING: SegmentState.CREATING,
    Phase.CREATED: SegmentState.CREATED,
    Phase.DELETING: SegmentState.DELETING,
    Phase.FAILED: SegmentState.FAILED,
}


@dataclass(frozen=True)
class Segment:
    """Adjacent memory slices of a GPU, and what is in them."""

    size: int
    state: SegmentState = SegmentState.FREE
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
    starts = dict(_occupied(node, gpu.uuid))
    made: list[Segment] = []
    at = 0
    while at < width:
        segment = starts.get(at, Segment(1))
        made.append(segment)
        at += segment.size
    return made


def _occupied(node: Instaslice, gpu: str) -> Iterator[tuple[int, Segment]]:
    """Allocated and existing slices, by start. Where both take one slot, the slice to come hides the one to go."""
    reported = {slice_.id: slice_ for slice_ in node.status.slices if slice_.gpu == gpu}
    allocated = {each.id: each for each in node.spec.allocations if each.gpu == gpu}
    for slice_ in reported.values():
        if slice_.id not in allocated and holds_slot(slice_):
            state = SegmentState.FOREIGN if slice_.state is SliceState.FOREIGN else SegmentState.DELETING
            yield slice_.start, Segment(slice_.size, state, slice_.profile)
    for allocation in allocated.values():
        phase = phase_of_slice(allocation, reported.get(allocation.id))
        if phase is not Phase.DELETED:
            pod = Key(allocation.pod.namespace, allocation.pod.name)
            yield allocation.start, Segment(allocation.size, SEGMENT_STATES[phase], allocation.profile, pod)


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
    if segment.state is SegmentState.FREE:
        return "·".center(width)
    both = f"{segment.profile} {segment.pod.name}" if segment.pod else segment.profile
    return (both if len(both) <= width - 2 else segment.profile)[:width].center(width)


def _style(segment: Segment, pod_colours: Mapping[Key, str]) -> Style:
    colour = pod_colours.get(segment.pod, "white") if segment.pod else "white"
    match segment.state:
        case SegmentState.FREE:
            return Style(color="bright_black", bgcolor="grey23")
        case SegmentState.CREATING:
            return Style(color=colour, bgcolor="grey23", italic=True)
        case SegmentState.CREATED:
            return Style(color="#101010", bgcolor=colour, bold=True)
        case SegmentState.DELETING:
            return Style(color=colour, bgcolor="grey23", strike=True)
        case SegmentState.FAILED:
            return Style(color="white", bgcolor="red")
        case SegmentState.FOREIGN:
            return Style(color="white", bgcolor="grey37")
