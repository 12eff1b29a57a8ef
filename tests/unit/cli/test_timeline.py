"""The states of a pod, with the times at which they were seen."""

import pytest
from gpu_nodes import allocation, made, node, pod
from rich.console import Console

from instaslice.api.instaslice import AllocationState, SliceState
from instaslice.cli.terminal.timeline import (
    CREATING,
    ENDED,
    GATED,
    RELEASED,
    RUNNING,
    STATES,
    UNGATED,
    WAITS,
    Timelines,
    table,
)
from instaslice.kube.meta import Key

TRAIN = Key("default", "train")
EMPTY = node()
ALLOCATED = node([allocation("train")])
CREATED_SLICE = node([allocation("train")], [made("train")])
HALF = node([allocation("train"), allocation("train", start=1)], [made("train")])
GOING = node([allocation("train", state=AllocationState.DELETING)], [made("train", state=SliceState.DELETING)])
GONE = node([allocation("train", state=AllocationState.DELETING)], [made("train", state=SliceState.DELETED)])


def run(**more):
    return pod(gated=False, on="gpu-0", **more)


def states(transitions):
    return [each.state for each in transitions]


def test_each_state_is_reported_once_and_in_order():
    timelines = Timelines()
    scenes = [
        (pod(), EMPTY),
        (pod(), ALLOCATED),
        (pod(), CREATED_SLICE),
        (pod(gated=False), CREATED_SLICE),
        (run(phase="Running"), CREATED_SLICE),
        (run(phase="Succeeded"), CREATED_SLICE),
        (run(phase="Succeeded"), GOING),
        (run(phase="Succeeded"), GONE),
        (run(phase="Succeeded"), EMPTY),
    ]
    transitions = [states(timelines.update(seen, [where], at)) for at, (seen, where) in enumerate(scenes)]
    assert transitions == [
        ["gated"],
        ["creating"],
        ["created"],
        ["ungated"],
        ["Running"],
        ["ended"],
        [],
        ["released"],
        [],
    ]
    assert timelines.pods[TRAIN].times == dict(zip(STATES, (0, 1, 2, 3, 4, 5, 7), strict=True))
    assert timelines.between((TRAIN, GATED), (TRAIN, RUNNING)) == 4


@pytest.mark.parametrize(
    "seen, where, expected",
    [
        pytest.param(pod(), HALF, CREATING, id="one of two slices is there"),
        pytest.param(pod(gated=False), ALLOCATED, UNGATED, id="ungated, before its node says that the slice is there"),
        pytest.param(run(phase="Succeeded"), EMPTY, ENDED, id="ended without a slice that anybody saw"),
        pytest.param(run(phase="Failed"), GOING, ENDED, id="failed, and its slice is going"),
        pytest.param(pod(), node([allocation("other")]), GATED, id="another pod's slice"),
    ],
)
def test_what_is_seen_first_implies_all_before_it(seen, where, expected):
    timelines = Timelines()
    assert states(timelines.update(seen, [where], 1.0)) == list(STATES[: STATES.index(expected) + 1])
    assert timelines.update(seen, [where], 2.0) == []


def test_a_wait_is_reported_once_and_again_when_its_reason_changes():
    timelines = Timelines()
    full = pod(says=("Waiting", "no GPU has room"))
    assert states(timelines.update(full, [EMPTY], 1)) == [GATED, WAITS]
    assert timelines.update(full, [EMPTY], 2) == []
    changed = timelines.update(pod(says=("Waiting", "next in line")), [EMPTY], 3)
    assert [str(each) for each in changed] == ["pod train: waits: next in line"]
    assert states(timelines.update(pod(says=("Creating", "being made")), [ALLOCATED], 4)) == [CREATING]
    assert timelines.pods[TRAIN].waits == ""


def test_a_transition_reads_as_a_line():
    timelines = Timelines()
    timelines.update(pod(), [ALLOCATED], 0)
    timelines.update(run(phase="Running"), [CREATED_SLICE], 1)
    assert str(timelines.update(run(phase="Failed"), [CREATED_SLICE], 2)[0]) == "pod train: Failed"
    assert str(timelines.update(run(phase="Failed"), [EMPTY], 3)[0]) == f"pod train: {RELEASED}"


def test_the_table_counts_from_when_the_pod_was_created():
    timelines = Timelines()
    timelines.update(pod(), [EMPTY], 5.0)
    timelines.update(run(phase="Running"), [CREATED_SLICE], 5.25)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table(timelines.pods.values(), {TRAIN: "1g.5gb"}, {}))
    line = capture.get().splitlines()[1].split()
    assert line == ["train", "1g.5gb", "gpu-0", "5.0", *["+0.25"] * 4]
