"""The fleet as `instaslice status` prints it: bars, one line per node, or totals by model, as many as can be read.

Pure: a FleetStatus comes in, something that rich prints comes out.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final
from zlib import crc32

from rich.console import Group
from rich.style import Style
from rich.text import Text

from instaslice.cli.terminal import explanations
from instaslice.cli.terminal.bars import CELL, PALETTE, slot_style
from instaslice.cli.terminal.plain_table import table_lines
from instaslice.controller.fleet_status import FleetStatus, GpuOccupancy, NodeOccupancy, SlotHolder
from instaslice.controller.held_slots import SlotState
from instaslice.kube.meta import Key

MOST_BARS: Final = 32
"""GPUs that are drawn as bars unless more are asked for."""
MOST_NODES: Final = 60
"""Nodes that get a line each."""
MOST_SLOTS: Final = 40
"""Slices that are listed below the bars."""
MOST_WAITING: Final = 20
MOST_TROUBLES: Final = 10
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


class Detail(IntEnum):
    """How much is shown of each GPU."""

    MODELS = 0
    NODES = 1
    BARS = 2
    SLICES = 3
    EVERYTHING = 4
    """Every slice with its container and MIG UUID, every waiting pod."""


def fitting_detail(status: FleetStatus) -> Detail:
    """What can be read at a glance."""
    gpus = sum(len(node.gpus) for node in status.nodes)
    if gpus > MOST_BARS:
        return Detail.NODES if len(status.nodes) <= MOST_NODES else Detail.MODELS
    return Detail.SLICES if sum(status.slots.values()) <= MOST_SLOTS else Detail.BARS


def fleet_picture(status: FleetStatus, detail: Detail, width: int, *, cut: bool = True) -> Group:
    """Everything. Bars are at most `width` wide; lines of tables end there too if they are `cut`, which they are on a
    terminal. In a pipe nobody could see the rest."""
    shades = {slot.key: _colour(slot.key) for _, _, slot in _slots(status) if slot.key is not None}
    parts: list[Text] = [_headline(status)]
    match detail:
        case Detail.MODELS:
            parts += [*_models(status), *_troubles(status)]
        case Detail.NODES:
            parts += _node_lines(status, shades, width)
        case _:
            parts += _bars(status, shades, width)
    if detail >= Detail.SLICES:
        parts += _slices(status, shades, everything=detail is Detail.EVERYTHING)
    elif status.slots:
        parts.append(_dim("`instaslice status -o wide` lists all slices, --node NAME those of one node"))
    parts += _waiting(status, None if detail is Detail.EVERYTHING else MOST_WAITING)
    parts += [Text(f"left out  {each}", style="yellow") for each in status.left_out]
    parts += [Text(f"missing   {each}", style="yellow") for each in status.missing.values()]
    if not cut:
        for part in parts:
            part.no_wrap, part.overflow = True, "ignore"
    return Group(*parts)


def _colour(pod: Key) -> str:
    """By its name, so that a pod keeps its colour when others come and go."""
    return PALETTE[crc32(str(pod).encode()) % len(PALETTE)]


def _headline(status: FleetStatus) -> Text:
    parts = []
    if "instaslices" not in status.missing:
        parts.append(_fleet_and_memory(status))
    if "pods" not in status.missing:
        parts.append(f"{_count(len(status.waiting), 'pod')} {'waits' if len(status.waiting) == 1 else 'wait'}")
    return Text("; ".join(parts), style="bold")


def _fleet_and_memory(status: FleetStatus) -> str:
    unhealthy = sum(model.unhealthy for model in status.models)
    fleet = f"{_count(len(status.nodes), 'node')}, {_count(sum(model.gpus for model in status.models), 'GPU')}"
    fleet += f" ({unhealthy} unhealthy)" if unhealthy else ""
    slices = [f"{_count(status.slots.get(SlotState.CREATED, 0), 'slice')} held"]
    slices += [f"{count} {MEANINGS[state]}" for state in MARKS if MARKS[state] and (count := status.slots.get(state))]
    total, free, unusable, out = (
        sum(getattr(model, name) for model in status.models)
        for name in ("total_gb", "free_gb", "unusable_gb", "out_of_use_gb")
    )
    memory = f"{free:.0f} of {total:.0f} GB free"
    memory += f", {unusable:.0f} of them unusable" if unusable else ""
    memory += f", {out:.0f} out of use" if out else ""
    return f"{fleet}: {', '.join(slices)}; {memory}"


def _bars(status: FleetStatus, shades: dict[Key, str], width: int) -> Iterator[Text]:
    gpus = [gpu for node in status.nodes for gpu in node.gpus]
    if not gpus:
        return
    slices = max(gpu.memory_slices for gpu in gpus) or 1
    left = max(len(_label(node, gpu)) for node in status.nodes for gpu in node.gpus) + 1
    right = max(len(_room(gpu)) for gpu in gpus)
    cell = (width - left - right - 2) // slices - 1
    beside = cell >= CELL[0]
    if not beside:
        cell = (width - left - 1) // slices - 1
    cell = max(CELL[0], min(CELL[1], cell))
    for node in status.nodes:
        yield _node_heading(node)
        for gpu in node.gpus:
            line = Text(_label(node, gpu).ljust(left), no_wrap=True, overflow="crop")
            line.append_text(_bar(gpu, shades, cell, status))
            room = Text(_room(gpu), style="red" if gpu.out_of_use else "")
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


def _bar(gpu: GpuOccupancy, shades: dict[Key, str], cell: int, status: FleetStatus) -> Text:
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
            bar.append(_slot_label(slot, wide, status), style=slot_style(slot.state, _shade(slot, shades)))
            at += slot.size
        bar.append("|", style="bright_black")
    return bar


def _slot_label(slot: SlotHolder, width: int, status: FleetStatus) -> str:
    """The profile, the pod and its age, as much of it as there is room for."""
    profile = f"{MARKS[slot.state]}{slot.profile}"
    pod = slot.pod.partition("/")[2]
    whole = " ".join(each for each in (profile, pod, explanations.age(slot.since, status.now)) if each)
    fitting = (each for each in (whole, f"{profile} {pod}") if len(each) <= width - 2)
    return next(fitting, profile)[:width].center(width)


def _shade(slot: SlotHolder, shades: dict[Key, str]) -> str | None:
    return shades.get(slot.key) if slot.key is not None else None


def _room(gpu: GpuOccupancy) -> str:
    """What is left of a GPU."""
    if gpu.out_of_use:
        return gpu.out_of_use
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
    return _dim("  ".join(marks)) if marks else None


def _node_lines(status: FleetStatus, shades: dict[Key, str], width: int) -> Iterator[Text]:
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
            line.append(" ").append_text(_compact(gpu, shades))
            used += gpu.memory_slices + 1
        if node.out_of_use:
            line.append(f"  {node.out_of_use}", style="red")
        yield line
    yield _dim(
        "# held  + being created  - being destroyed  ! failed  ? not created by InstaSlice  · free  x out of use"
    )
    yield from (Text(f"unhealthy  {each}", style="red") for each in _some(_unhealthy(status)))


def _compact(gpu: GpuOccupancy, shades: dict[Key, str]) -> Text:
    text = Text()
    starts = {slot.start: slot for slot in gpu.slots}
    at = 0
    while at < gpu.memory_slices:
        slot = starts.get(at)
        if slot is None:
            text.append("x" if gpu.out_of_use else "·", style="bright_black")
            at += 1
        else:
            text.append((MARKS[slot.state] or "#") * slot.size, style=Style(color=_shade(slot, shades) or "white"))
            at += slot.size
    return text


def _models(status: FleetStatus) -> Iterator[Text]:
    rows = [
        (
            model.model,
            str(model.nodes),
            str(model.gpus),
            str(model.unhealthy),
            *(f"{gb:.0f}" for gb in (model.held_gb, model.free_gb, model.unusable_gb, model.out_of_use_gb)),
            ", ".join(f"{profile or 'nothing'} {count}" for profile, count in model.largest_fit.items()),
        )
        for model in status.models
    ]
    columns = ("MODEL", "NODES", "GPUS", "UNHEALTHY", "HELD GB", "FREE GB", "UNUSABLE", "OUT OF USE")
    yield from map(_row, table_lines((*columns, "LARGEST FIT, GPUS"), rows))


def _troubles(status: FleetStatus) -> Iterator[Text]:
    out = [f"{node.name}: {node.out_of_use}" for node in status.nodes if node.out_of_use]
    yield from (Text(f"out of use  {each}", style="red") for each in _some(out))
    yield from (Text(f"unhealthy   {each}", style="red") for each in _some(_unhealthy(status)))


def _unhealthy(status: FleetStatus) -> list[str]:
    return [
        f"GPU {gpu.index if gpu.index is not None else gpu.uuid} of {node.name}: {gpu.out_of_use}"
        for node in status.nodes
        for gpu in node.gpus
        if gpu.out_of_use and gpu.out_of_use != node.out_of_use
    ]


def _some(all_of_them: list[str]) -> list[str]:
    more = len(all_of_them) - MOST_TROUBLES
    return [*all_of_them[:MOST_TROUBLES], *([f"and {more} more"] if more > 0 else [])]


def _slices(status: FleetStatus, shades: dict[Key, str], *, everything: bool) -> Iterator[Text]:
    slots = list(_slots(status))
    if not slots:
        return
    columns = ["NODE", "GPU", "START", "PROFILE", "STATE", "FOR", "POD"]
    columns += ["CONTAINER", "MIG UUID"] if everything else []
    columns += ["REASON"] if any(slot.reason for _, _, slot in slots) else []
    rows = [
        [
            node.name,
            str(gpu.index) if gpu.index is not None else gpu.uuid,
            str(slot.start),
            slot.profile,
            str(slot.state),
            explanations.age(slot.since, status.now),
            slot.pod,
            *([slot.container, slot.mig_uuid] if everything else []),
            *([slot.reason] if columns[-1] == "REASON" else []),
        ]
        for node, gpu, slot in slots
    ]
    heading, *lines = table_lines(columns, rows)
    yield Text()
    yield _row(heading)
    for (_, _, slot), line in zip(slots, lines, strict=True):
        row = _row(line)
        if shade := _shade(slot, shades):
            row.highlight_words([slot.pod], style=shade)
        yield row


def _waiting(status: FleetStatus, most: int | None) -> Iterator[Text]:
    if not status.waiting:
        return
    shown = status.waiting[:most]
    rows = [
        (str(each.position) if each.position is not None else "-", *explanations.waiting_row(each, status.now))
        for each in shown
    ]
    yield Text()
    yield from map(_row, table_lines(("QUEUE", *explanations.COLUMNS), rows))
    if (more := len(status.waiting) - len(shown)) > 0:
        yield _dim(f"and {more} more: `instaslice explain -A` lists all")


def _slots(status: FleetStatus) -> Iterable[tuple[NodeOccupancy, GpuOccupancy, SlotHolder]]:
    return ((node, gpu, slot) for node in status.nodes for gpu in node.gpus for slot in gpu.slots)


def _row(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ellipsis")


def _dim(text: str) -> Text:
    return Text(text, style="dim")


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
