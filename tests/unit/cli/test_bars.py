"""GPUs as bars: what stands in which cell."""

import pytest
from gpu_nodes import allocation, made, node
from rich.console import Console

from instaslice.api.instaslice import AllocationState, Health, SliceState
from instaslice.cli.terminal.bars import PALETTE, bars, colours, segments
from instaslice.controller.held_slots import SlotState
from instaslice.kube.meta import Key

TRAIN = Key("default", "train")


def of(instaslice):
    """The segments of its only GPU that are not free: (first cell, cells, state, pod)."""
    at, found = 0, []
    for segment in segments(instaslice, instaslice.status.gpus[0]):
        if segment.state is not SlotState.FREE:
            found.append((at, segment.size, segment.state, segment.pod and segment.pod.name))
        at += segment.size
    assert at == 8, "every memory slice is drawn once"
    return found


def drawn(*nodes, colour=False, width=120):
    console = Console(width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    with console.capture() as capture:
        console.print(bars(nodes, colours([TRAIN]), width=width))
    return capture.get()


@pytest.mark.parametrize(
    "allocations, slices, expected",
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param([allocation("a")], [], [(0, 1, SlotState.CREATING, "a")], id="promised and not made yet"),
        pytest.param([allocation("a", start=3)], [made("a", start=3)], [(3, 1, SlotState.CREATED, "a")], id="made"),
        pytest.param(
            [allocation("a", "4g.20gb", 0, AllocationState.UNGATED), allocation("b", "3g.20gb", 4)],
            [made("a", "4g.20gb", 0)],
            [(0, 4, SlotState.CREATED, "a"), (4, 4, SlotState.CREATING, "b")],
            id="a 4g that is there beside a 3g that comes",
        ),
        pytest.param(
            [allocation("a", state=AllocationState.DELETING)],
            [made("a")],
            [(0, 1, SlotState.DELETING, "a")],
            id="being destroyed",
        ),
        pytest.param(
            [allocation("a", state=AllocationState.DELETING)],
            [made("a", state=SliceState.DELETED)],
            [],
            id="destroyed: free",
        ),
        pytest.param([], [made("a", state=SliceState.DELETED)], [], id="destroyed and forgotten"),
        pytest.param(
            [allocation("a")],
            [made("a", state=SliceState.FAILED)],
            [(0, 1, SlotState.FAILED, "a")],
            id="refused by the GPU",
        ),
        pytest.param([], [made("x", state=SliceState.FOREIGN)], [(0, 1, SlotState.FOREIGN, None)], id="nobody's"),
        pytest.param(
            [allocation("old", start=0, state=AllocationState.DELETING), allocation("new", start=0)],
            [made("old", state=SliceState.DELETED)],
            [(0, 1, SlotState.CREATING, "new")],
            id="a slot that was handed on in the same moment",
        ),
        pytest.param([allocation("a", gpu="GPU-other")], [], [], id="on another GPU"),
    ],
)
def test_what_is_in_the_cells(allocations, slices, expected):
    assert of(node(allocations, slices)) == expected


def test_the_profile_stands_in_its_cells_and_the_pod_where_there_is_room():
    whole = drawn(node([allocation("train", "7g.40gb")], [made("train", "7g.40gb")]))
    assert "7g.40gb train" in whole
    small = drawn(node([allocation("train", "1g.5gb")], [made("train", "1g.5gb")]))
    assert "1g.5gb" in small
    assert "train" not in small
    assert small.count("·") == 7


def test_a_slice_has_the_colour_of_its_pod():
    red, green, blue = (int(PALETTE[0][at : at + 2], 16) for at in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}" in drawn(node([allocation("train")], [made("train")]), colour=True)


def test_nodes_are_in_the_order_of_their_names_and_sick_gpus_say_why():
    lines = drawn(node(name="gpu-1"), node(name="gpu-0", health=Health.UNHEALTHY, reason="XID 79")).splitlines()
    assert [line.split()[0] for line in lines] == ["gpu-0", "gpu-1"]
    assert "unhealthy: XID 79" in lines[0]


def test_a_cluster_without_gpus_says_so():
    assert "no GPUs" in drawn()


def test_colours_go_by_the_order_of_the_pods_and_come_again():
    pods = [Key("default", str(index)) for index in range(len(PALETTE) + 1)]
    shades = colours(pods)
    assert shades[pods[0]] == shades[pods[-1]] == PALETTE[0]
    assert shades[pods[1]] == PALETTE[1]


@pytest.mark.parametrize("width, cells", [(40, 3), (80, 6), (200, 8)])
def test_bars_fit_the_terminal_and_are_no_wider_than_they_need(width, cells):
    (line,) = drawn(node(), width=width).splitlines()
    assert len(line.rstrip()) <= width
    assert f"·{' ' * cells}·" in line
