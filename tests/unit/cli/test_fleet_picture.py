"""What `instaslice status` prints of a fleet, and of what has changed in it."""

from datetime import timedelta

import msgspec
import pytest
from gpu_nodes import NOW, allocation, fleet, made, node
from rich.console import Console

from instaslice.api.instaslice import READY, AllocationState, ConditionStatus, Health, InstasliceCondition
from instaslice.cli.terminal.fleet_changes import changes
from instaslice.cli.terminal.fleet_picture import (
    MOST_BARS,
    MOST_NODES,
    MOST_WAITING,
    Detail,
    fitting_detail,
    fleet_picture,
)
from instaslice.controller.explanation import Stage
from instaslice.controller.fleet_status import QueuedPod


def queued(position, name="w", message="nothing is free; a slice must end"):
    since = NOW - timedelta(minutes=4)
    return QueuedPod(
        pod=f"team-a/{name}", stage=Stage.WAITING, since=since, asks={"1g.5gb": 2}, message=message, position=position
    )


def drawn(status, detail=None, width=120, *, colour=False, cut=True, **options):
    console = Console(
        width=width, force_terminal=colour, color_system="truecolor" if colour else None, no_color=not colour, **options
    )
    with console.capture() as capture:
        detail = fitting_detail(status) if detail is None else detail
        console.print(fleet_picture(status, detail, width, cut=cut), crop=cut)
    return capture.get()


TRAIN = node([allocation("train", "3g.20gb", 4, AllocationState.UNGATED)], [made("train", "3g.20gb", 4)])


def test_a_small_fleet_in_full():
    assert drawn(fleet(TRAIN, waiting=[queued(1)])).splitlines() == [
        "1 node, 1 GPU: 1 slice held; 20 of 40 GB free; 1 pod waits",
        "gpu-0  1 x A100-40GB",
        "  GPU 0 |   ·    |   ·    |   ·    |   ·    |           3g.20gb train           | fits 4g.20gb, 20 GB free",
        "",
        "NODE   GPU  START  PROFILE  STATE    FOR  POD",
        "gpu-0  0    4      3g.20gb  created       default/train",
        "",
        "QUEUE  POD       STAGE             FOR    ASKS FOR    WHY",
        "1      team-a/w  waiting for room  4 min  2 x 1g.5gb  nothing is free",
    ]


@pytest.mark.parametrize(
    "there, text",
    [
        pytest.param(node([allocation("a")]), "|+1g.5gb |", id="being created"),
        pytest.param(
            node([allocation("a", state=AllocationState.DELETING)], [made("a")]), "|-1g.5gb |", id="being destroyed"
        ),
        pytest.param(node(health=Health.UNHEALTHY, reason="Xid 79"), "|   x    |", id="free and out of use"),
    ],
)
def test_states_are_told_apart_without_colours_and_explained(there, text):
    lines = drawn(fleet(there))
    assert text in lines
    assert {"+": "+ being created", "-": "- being destroyed", " ": "x free, out of use"}[text[1]] in lines


SAID = "the driver does not answer: reboot the node"


@pytest.mark.parametrize(
    "there, message, room",
    [
        pytest.param(node(), SAID, "out of use", id="a healthy GPU"),
        pytest.param(node(health=Health.UNHEALTHY, reason=SAID), SAID, "unhealthy", id="a GPU of the same reason"),
        pytest.param(
            node(health=Health.UNHEALTHY, reason="Xid 79"), SAID, "unhealthy: Xid 79", id="a GPU of a reason of its own"
        ),
    ],
)
def test_why_a_node_is_out_of_use_is_not_said_again_for_its_gpus(there, message, room):
    ready = InstasliceCondition(
        type=READY, status=ConditionStatus.FALSE, reason="DriverGone", message=message, last_transition_time=NOW
    )
    status = msgspec.structs.replace(there.status, conditions=(ready,))
    text = drawn(fleet(msgspec.structs.replace(there, status=status)), Detail.BARS)
    heading, bar = text.splitlines()[1:3]
    assert heading == f"gpu-0  1 x A100-40GB  its agent does not serve: {message}"
    assert bar.endswith(f"| {room}")
    assert text.count(message) == 1


@pytest.mark.parametrize("width", [30, 46, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    status = fleet(TRAIN, node(name="gpu-1", health=Health.UNHEALTHY, reason="Xid 79: it has fallen off the bus"))
    status = msgspec.structs.replace(status, waiting=[queued(1, message="nothing is free " * 9)])
    for detail in Detail:
        lines = drawn(status, detail, width).splitlines()
        assert max(map(len, lines)) <= max(width, 42), "three characters per memory slice are the least"


def test_nothing_is_cut_in_a_pipe():
    message = "nothing is free " * 20
    status = fleet(TRAIN, waiting=[queued(1, message=message)])
    assert message.strip() in drawn(status, width=60, cut=False)
    assert message.strip() not in drawn(status, width=60)


def test_what_others_wrote_does_nothing_to_the_terminal():
    evil = "denied\x1b[2J\nerror: all is lost"
    sick = node(name="gpu-1", health=Health.UNHEALTHY, reason=evil)
    status = fleet(TRAIN, sick, waiting=[queued(1, message=evil)], left_out=[evil], missing={"storage": evil})
    for detail in Detail:
        text = drawn(status, detail, colour=True)
        assert "[2J" in text, "the text itself is shown"
        assert "\x1b[2J" not in text
        assert not any(line.startswith("error") for line in text.splitlines())


def test_no_color_means_none():
    assert "\x1b[" in drawn(fleet(TRAIN), colour=True)
    assert "\x1b[" not in drawn(fleet(TRAIN))


def many(count):
    return fleet(*(node(name=f"gpu-{index:04}") for index in range(count)))


@pytest.mark.parametrize(
    "count, detail, lines",
    [
        pytest.param(MOST_BARS, Detail.SLICES, 2 * MOST_BARS + 1, id="bars"),
        pytest.param(MOST_NODES, Detail.NODES, MOST_NODES + 5, id="one line per node"),
        pytest.param(2000, Detail.MODELS, 3, id="totals by model"),
    ],
)
def test_a_large_fleet_is_summarised(count, detail, lines):
    status = many(count)
    assert fitting_detail(status) is detail
    assert len(drawn(status).splitlines()) == lines
    assert len(drawn(status, Detail.EVERYTHING).splitlines()) == 2 * count + 1


def test_one_character_per_memory_slice():
    lines = drawn(fleet(TRAIN), Detail.NODES).splitlines()
    assert lines[1] == "gpu-0  1 x A100-40GB  ····####"
    assert lines[5].split() == ["A100-40GB", "1", "1", "0", "20", "20", "0", "0", "4g.20gb", "1"]


def test_a_cluster_without_agents_is_told_so():
    assert drawn(fleet()).splitlines()[1] == "no node has an Instaslice object: does an agent run?"


def test_what_is_out_of_use_is_named_in_a_summary_and_the_rest_of_it_counted():
    sick = [node(name=f"gpu-{index:02}", health=Health.UNHEALTHY, reason="Xid 79") for index in range(12)]
    lines = drawn(fleet(*sick), Detail.MODELS).splitlines()
    assert "unhealthy   GPU 0 of gpu-00: unhealthy: Xid 79" in lines
    assert lines[-1] == "unhealthy   and 2 more"
    assert lines[2].split() == ["A100-40GB", "12", "12", "12", "0", "0", "0", "480", "nothing", "12"]


def test_a_long_queue_is_cut_and_the_rest_counted():
    status = fleet(TRAIN, waiting=[queued(index) for index in range(1, MOST_WAITING + 6)])
    assert "and 5 more: `instaslice explain -A` lists all" in drawn(status)
    assert "more:" not in drawn(status, Detail.EVERYTHING)


@pytest.mark.parametrize(
    "kind, headline",
    [
        pytest.param("pods", "1 node, 1 GPU: 1 slice held; 20 of 40 GB free", id="not who waits"),
        pytest.param("instaslices", "0 pods wait", id="not the GPUs"),
    ],
)
def test_nothing_is_counted_that_could_not_be_read(kind, headline):
    lines = drawn(fleet(TRAIN, missing={kind: f"{kind} may not be listed"})).splitlines()
    assert lines[0] == headline
    assert lines[-1] == f"missing   {kind} may not be listed"


def test_what_has_changed_is_a_line_each():
    before = fleet(node([allocation("train", "3g.20gb", 4)]), waiting=[queued(1), queued(2, "x")])
    after = fleet(TRAIN, waiting=[queued(1, "x")], left_out=["pod team-a/odd: is odd"])
    assert list(changes(before, before)) == []
    assert list(changes(before, after)) == [
        "slice 3g.20gb at 4 of GPU 0 of gpu-0: created for pod default/train",
        "pod team-a/x: waiting for room, position 1: nothing is free; a slice must end",
        "left out: pod team-a/odd: is odd: cannot be read",
        "pod team-a/w: no longer waits",
    ]
    assert "node gpu-0: in use" in list(changes(None, after))
    assert list(changes(after, fleet())) == [
        "node gpu-0: gone",
        "GPU 0 of gpu-0: gone",
        "slice 3g.20gb at 4 of GPU 0 of gpu-0: gone",
        "pod team-a/x: no longer waits",
        "left out: pod team-a/odd: is odd: gone",
    ]
