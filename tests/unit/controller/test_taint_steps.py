"""The patch that puts our taint on a node or takes it away."""

import msgspec
import pytest
from fitting import node

from instaslice.controller.taints import steps_to

OURS = {"key": "gpu.das.com/managed", "effect": "NoSchedule"}
THEIRS = {"key": "team", "value": "a", "effect": "NoExecute"}
STRICTER = {"key": "gpu.das.com/managed", "effect": "NoExecute"}
MARK = {"gpu.das.com/tainted": "true"}
NOTE = {"some": "note"}
MARKED = "/metadata/annotations/gpu.das.com~1tainted"


def holds(path, value):
    return {"op": "test", "path": path, "value": value}


def add(path, value):
    return {"op": "add", "path": path, "value": value}


@pytest.mark.parametrize(
    "taints, annotations, steps",
    [
        pytest.param([THEIRS, OURS], MARK, [], id="there already"),
        pytest.param([OURS], {}, [], id="there since the node was registered: not ours to mark"),
        pytest.param(
            [],
            {},
            [
                holds("/spec/taints", None),
                add("/spec/taints", [OURS]),
                holds("/metadata/annotations", None),
                add("/metadata/annotations", MARK),
            ],
            id="the first taint, if it is still the first",
        ),
        pytest.param([THEIRS], NOTE, [add("/spec/taints/-", OURS), add(MARKED, "true")], id="beside others"),
        pytest.param([STRICTER], MARK, [add("/spec/taints/-", OURS), add(MARKED, "true")], id="beside a stricter one"),
    ],
)
def test_putting_it_there(taints, annotations, steps):
    assert made(taints, annotations, wanted=True) == steps


ONLY_THE_MARK = [holds("/metadata/resourceVersion", "7"), {"op": "remove", "path": MARKED}]


@pytest.mark.parametrize(
    "taints, annotations, steps",
    [
        pytest.param([THEIRS], {}, [], id="not there already"),
        pytest.param([], {}, [], id="no taints at all"),
        pytest.param([OURS], NOTE, [], id="there since the node was registered: not ours to take"),
        pytest.param(
            [THEIRS, OURS],
            MARK,
            [
                {"op": "remove", "path": MARKED},
                holds("/spec/taints/1/key", OURS["key"]),
                holds("/spec/taints/1/effect", OURS["effect"]),
                {"op": "remove", "path": "/spec/taints/1"},
            ],
            id="taken from its place, if it is still there",
        ),
        pytest.param([THEIRS], MARK, ONLY_THE_MARK, id="another took it, and left our mark, if it has not come back"),
        pytest.param([STRICTER], MARK, ONLY_THE_MARK, id="a stricter one is not ours"),
    ],
)
def test_taking_it_away(taints, annotations, steps):
    assert made(taints, annotations, wanted=False) == steps


def made(taints, annotations, *, wanted):
    bare = node(taints=taints)
    meta = msgspec.structs.replace(bare.metadata, annotations=annotations, resource_version="7")
    return msgspec.to_builtins(steps_to(msgspec.structs.replace(bare, metadata=meta), wanted=wanted))
