"""GPUs as `instaslice status` draws them: a bar with a cell per memory slice, or a character per memory slice.

Pure: a FleetStatus comes in, lines come out. The demo has bars of its own: it shows pods, this shows what is left.
"""

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from rich.style import Style
from rich.text import Text

from instaslice.cli.terminal.ages import age
from instaslice.cli.terminal.bars import CELL, PALETTE, slot_style
from instaslice.controller.fleet_status import FleetStatus, GpuOccupancy, NodeOccupancy, SlotHolder
from instaslice.controller.held_slots import SlotState

MARKS: Final = {
    SlotState.CREATING: "+",
    SlotState.CREATED: "",
    SlotState.DELETING: "-",
    SlotState.FAILED: "!",
    SlotState.FOREIGN: "?",
}
MEANINGS: Final = {
    SlotState.CREATING: "being created",
    SlotState.CREATED: "held",
    SlotState.DELETING: "being destroyed",
    SlotState.FAILED: "failed",
    SlotState.FOREIGN: "not created by InstaSlice",
}

UNHEALTHY: Final = "unhealthy: "
"""What precedes the reason of a GPU's driver."""


def bar_lines(status: FleetStatus, width: int) -> Iterator[Text]:
    """A heading for each node and a bar for each GPU."""
    gpus = [gpu for node in status.nodes for gpu in node.gpus]
    if not gpus:
        return
    slices = max(gpu.memory_slices for gpu in gpus) or 1
    left = max(len(_label(node, gpu)) for node in status.nodes for gpu in node.gpus) + 1
    right = max(len(_room(node, gpu)) for node in status.nodes for gpu in node.gpus)
    cell = (width - left - right - 2) // slices - 1
    beside = cell >= CELL[0]
    if not beside:
        cell = (width - left - 1) // slices - 1
    cell = max(CELL[0], min(CELL[1], cell))
    for node in status.nodes:
        yield _node_heading(node)
        for gpu in node.gpus:
            line = Text(_label(node, gpu).ljust(left), no_wrap=True, overflow="crop")
            line.append_text(_bar(gpu, cell, status))
            room = Text(_room(node, gpu), style="red" if gpu.out_of_use else "")
            if beside:
                yield line.append(" " * ((slices - gpu.memory_slices) * (cell + 1) + 1)).append_text(room)
            else:
                yield line
                yield Text("    ").append_text(room)
    if marks := _legend(status):
        yield marks


def _label(node: NodeOccupancy, gpu: GpuOccupancy) -> str:
    model = f" {gpu.model}" if len({each.model for each in node.gpus}) > 1 else ""
    return f"  GPU {gpu.index if gpu.index is not None else gpu.uuid}{model}"


def _node_heading(node: NodeOccupancy) -> Text:
    heading = Text(f"{node.name}  {_gpus_of(node)}")
    return heading.append(f"  {node.out_of_use}", style="red") if node.out_of_use else heading


def _gpus_of(node: NodeOccupancy) -> str:
    models = [gpu.model for gpu in node.gpus if gpu.index is not None]
    return ", ".join(f"{models.count(each)} x {each}" for each in dict.fromkeys(models)) or "no GPUs reported"


def _bar(gpu: GpuOccupancy, cell: int, status: FleetStatus) -> Text:
    """One GPU from its first memory slice to its last, between rules: without colours they show where a slice ends."""
    bar = Text("|")
    starts = {slot.start: slot for slot in gpu.slots}
    at = 0
    while at < gpu.memory_slices:
        slot = starts.get(at)
        if slot is None:
            bar.append(("x" if gpu.out_of_use else "·").center(cell), style=slot_style(SlotState.FREE, None))
            at += 1
        else:
            wide = slot.size * (cell + 1) - 1
            bar.append(_slot_label(slot, wide, status), style=slot_style(slot.state, shade(slot)))
            at += slot.size
        bar.append("|", style="bright_black")
    return bar


def _slot_label(slot: SlotHolder, width: int, status: FleetStatus) -> str:
    """The profile, the pod and its age, as much of it as there is room for."""
    profile = f"{MARKS[slot.state]}{slot.profile}"
    pod = slot.pod.partition("/")[2]
    whole = " ".join(each for each in (profile, pod, age(slot.since, status.now)) if each)
    fitting = (each for each in (whole, f"{profile} {pod}") if len(each) <= width - 2)
    return next(fitting, profile)[:width].center(width)


def shade(slot: SlotHolder) -> str | None:
    """The colour of its pod, by its name: so that it keeps it when others come and go."""
    return PALETTE[crc32(slot.pod.encode()) % len(PALETTE)] if slot.pod else None


def _room(node: NodeOccupancy, gpu: GpuOccupancy) -> str:
    """What is left of a GPU. Why nothing is placed on it is said once: the heading of its node may have it."""
    if gpu.out_of_use:
        reason = gpu.out_of_use.removeprefix(UNHEALTHY)
        if reason not in node.out_of_use:
            return gpu.out_of_use
        return "out of use" if gpu.healthy else "unhealthy"
    if not gpu.free_gb:
        return "full"
    if not gpu.largest_fit:
        return f"{gpu.free_gb:.0f} GB free, unusable"
    unusable = f", {gpu.unusable_gb:.0f} unusable" if gpu.unusable_gb else ""
    return f"fits {gpu.largest_fit}, {gpu.free_gb:.0f} GB free{unusable}"


def _legend(status: FleetStatus) -> Text | None:
    marks = [f"{MARKS[state]} {MEANINGS[state]}" for state in MARKS if MARKS[state] and status.slots.get(state)]
    if any(gpu.out_of_use for node in status.nodes for gpu in node.gpus):
        marks.append("x free, out of use")
    return dim("  ".join(marks)) if marks else None


def node_lines(status: FleetStatus, width: int) -> Iterator[Text]:
    """One character per memory slice."""
    names = max((len(node.name) for node in status.nodes), default=0)
    models = max((len(_gpus_of(node)) for node in status.nodes), default=0)
    for node in status.nodes:
        line = Text(f"{node.name.ljust(names)}  {_gpus_of(node).ljust(models)} ", no_wrap=True, overflow="crop")
        used = line.cell_len
        for gpu in node.gpus:
            if used + gpu.memory_slices + 1 > width and used > names:
                yield line
                line = Text(" " * (names + 2), no_wrap=True, overflow="crop")
                used = line.cell_len
            line.append(" ").append_text(_compact(gpu))
            used += gpu.memory_slices + 1
        if node.out_of_use:
            line.append(f"  {node.out_of_use}", style="red")
        yield line
    yield dim("# held  + being created  - being destroyed  ! failed  ? not created by InstaSlice  · free  x out of use")


def _compact(gpu: GpuOccupancy) -> Text:
    text = Text()
    starts = {slot.start: slot for slot in gpu.slots}
    at = 0
    while at < gpu.memory_slices:
        slot = starts.get(at)
        if slot is None:
            text.append("x" if gpu.out_of_use else "·", style="bright_black")
            at += 1
        else:
            text.append((MARKS[slot.state] or "#") * slot.size, style=Style(color=shade(slot) or "white"))
            at += slot.size
    return text


def dim(text: str) -> Text:
    return Text(text, style="dim")
