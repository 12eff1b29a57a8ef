"""The fleet as `instaslice status` prints it: bars, one line per node, or totals by model, as many as can be read.

Pure: a FleetStatus comes in, something that rich prints comes out.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from rich.console import Group
from rich.text import Text

from instaslice.cli.terminal import explanations
from instaslice.cli.terminal.ages import age
from instaslice.cli.terminal.gpu_lines import MARKS, MEANINGS, bar_lines, dim, node_lines, shade
from instaslice.cli.terminal.plain_table import table_lines
from instaslice.cli.terminal.plain_text import plain
from instaslice.controller.fleet_status import FleetStatus, GpuOccupancy, NodeOccupancy, SlotHolder
from instaslice.controller.held_slots import SlotState

MOST_BARS: Final = 32
"""GPUs that are drawn as bars unless more are asked for."""
MOST_NODES: Final = 60
"""Nodes that get a line each."""
MOST_SLOTS: Final = 40
"""Slices that are listed below the bars."""
MOST_WAITING: Final = 20
MOST_TROUBLES: Final = 10


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
    parts: list[Text] = [_headline(status)]
    if not status.nodes and "instaslices" not in status.missing:
        parts.append(Text("no node has an Instaslice object: does an agent run?", style="yellow"))
    match detail:
        case Detail.MODELS:
            parts += [*_models(status), *_troubles(status)]
        case Detail.NODES:
            parts += [*node_lines(status, width), *_unhealthy_lines(status), Text(), *_models(status)]
        case _:
            parts += bar_lines(status, width)
    if detail >= Detail.SLICES:
        parts += _slices(status, everything=detail is Detail.EVERYTHING)
    elif status.slots:
        parts.append(dim("`instaslice status -o wide` lists all slices, --node NAME those of one node"))
    parts += _waiting(status, None if detail is Detail.EVERYTHING else MOST_WAITING)
    parts += [Text(f"left out  {each}", style="yellow") for each in status.left_out]
    parts += [Text(f"missing   {each}", style="yellow") for each in status.missing.values()]
    for part in parts:
        part.plain = plain(part.plain)
        if not cut:
            part.no_wrap, part.overflow = True, "ignore"
    return Group(*parts)


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
    yield from _unhealthy_lines(status)


def _unhealthy_lines(status: FleetStatus) -> Iterator[Text]:
    found = [
        f"GPU {gpu.index if gpu.index is not None else gpu.uuid} of {node.name}: {gpu.out_of_use}"
        for node in status.nodes
        for gpu in node.gpus
        if gpu.out_of_use and gpu.out_of_use != node.out_of_use
    ]
    yield from (Text(f"unhealthy   {each}", style="red") for each in _some(found))


def _some(all_of_them: list[str]) -> list[str]:
    more = len(all_of_them) - MOST_TROUBLES
    return [*all_of_them[:MOST_TROUBLES], *([f"and {more} more"] if more > 0 else [])]


def _slices(status: FleetStatus, *, everything: bool) -> Iterator[Text]:
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
            age(slot.since, status.now),
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
        if colour := shade(slot):
            row.highlight_words([slot.pod], style=colour)
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
        yield dim(f"and {more} more: `instaslice explain -A` lists all")


def _slots(status: FleetStatus) -> Iterable[tuple[NodeOccupancy, GpuOccupancy, SlotHolder]]:
    return ((node, gpu, slot) for node in status.nodes for gpu in node.gpus for slot in gpu.slots)


def _row(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ellipsis")


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
