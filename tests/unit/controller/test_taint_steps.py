"""The patch that puts our taint on a node or takes it away."""

import msgspec
import pytest
from fitting import node

from instaslice.controller.taints import steps_to

OURS = {"key": "gpu.das.com/managed", "effect": "NoSchedule"}
THEIRS = {"key": "team", "value": "a", "effect": "NoExecute"}
STRICTER = {"key": "gpu.das.com/managed", "effect": "NoExecute"}


def holds(path, value):
    return {"op": "test", "path": path, "value": value}


@pytest.mark.parametrize(
    "taints, wanted, steps",
    [
        pytest.param([THEIRS, OURS], True, [], id="there already"),
        pytest.param([THEIRS], False, [], id="not there already"),
        pytest.param(None, False, [], id="no taints at all"),
        pytest.param(
            None,
            True,
            [holds("/spec/taints", None), {"op": "add", "path": "/spec/taints", "value": [OURS]}],
            id="the first taint, if it is still the first",
        ),
        pytest.param([THEIRS], True, [{"op": "add", "path": "/spec/taints/-", "value": OURS}], id="beside others"),
        pytest.param(
            [THEIRS, OURS],
            False,
            [
                holds("/spec/taints/1/key", OURS["key"]),
                holds("/spec/taints/1/effect", OURS["effect"]),
                {"op": "remove", "path": "/spec/taints/1"},
            ],
            id="taken from its place, if it is still there",
        ),
        pytest.param([STRICTER], False, [], id="an administrator's stricter one is not ours"),
    ],
)
def test_steps(taints, wanted, steps):
    made = steps_to(node(**({"taints": taints} if taints else {})), wanted=wanted)
    assert msgspec.to_builtins(made) == steps
