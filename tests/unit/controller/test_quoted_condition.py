"""What is explained to a user who may read the pods of one namespace and no more."""

import msgspec
import pytest
from small_worlds import NOW, pod, world

from instaslice.api.names import GATE, SLICE_READY
from instaslice.controller.explanation import Stage
from instaslice.controller.quoted_condition import QuotedConditions
from instaslice.kube.core import Condition

WHY = "nodes: grant it"


def says(found, reason, message="as it is", status="False"):
    said = Condition(SLICE_READY, status, reason, message, NOW)
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=[said]))


def gated(name="w", *gates, **more):
    return pod(name, "1g.5gb", gates=[GATE, *gates], phase="Pending", **more)


def past(**more):
    return pod("w", "1g.5gb", given=["MIG-1"], on="gpu-0", **more)


@pytest.mark.parametrize(
    "found, stage, message",
    [
        pytest.param(says(gated(), "Waiting"), Stage.WAITING, "as it is", id="waits"),
        pytest.param(says(gated(), "WaitingForVolume"), Stage.WAITING, "as it is", id="waits for a claim"),
        pytest.param(says(gated(), "Creating"), Stage.CREATING, "as it is", id="slices being made"),
        pytest.param(says(gated(), "UngateRefused"), Stage.STARTING, "as it is", id="gate stays"),
        pytest.param(gated(), Stage.WAITING, "its condition says nothing yet; does the controller run?", id="new"),
        pytest.param(says(past(), "SliceReady", status="True"), Stage.RUNNING, "as it is", id="runs"),
        pytest.param(
            says(past(phase="Pending"), "SliceReady", status="True"), Stage.STARTING, "as it is", id="is to run"
        ),
        pytest.param(says(past(), "SliceLost"), Stage.TROUBLED, "as it is", id="lost its slice"),
        pytest.param(
            gated("w", "example.com/quota"),
            Stage.HELD,
            "waits for other gates to be removed first: example.com/quota",
            id="another gate",
        ),
        pytest.param(pod("w"), Stage.NOT_OURS, "asks for no slices; InstaSlice has nothing to do with it", id="none"),
    ],
)
def test_the_condition_is_quoted_with_the_stage_that_it_stands_for(found, stage, message):
    said = QuotedConditions(world([found]), WHY).explain(found)
    assert (said.stage, said.message, said.quoted, said.left_out) == (stage, message, True, [WHY])


def test_those_that_wait_are_listed_the_oldest_first():
    pods = [says(past(), "SliceReady", status="True"), gated("young", age=1), gated("old", age=9)]
    assert [each.pod for each in QuotedConditions(world(pods), WHY).waiting()] == ["team-a/old", "team-a/young"]
