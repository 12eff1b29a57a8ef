"""What a pod is told while the agent of its node does not answer: what is waited for, until when, and where it went."""

from datetime import timedelta

import msgspec
import pytest
from small_worlds import NOW, allocation, instaslice, made, pod
from small_worlds import world as objects
from test_condition_writer import Desk

from instaslice.api.instaslice import AllocationState, SliceState
from instaslice.api.names import GATE, REQUESTED, SLICE_READY
from instaslice.controller.explain import Explainer, Stage
from instaslice.controller.pod_reconciler import SLOW_SECONDS
from instaslice.kube.core import Condition, PodStatus
from instaslice.placement import policies

UNTIL = "after 120 s the pod is placed elsewhere"
NO_ANSWER = "the agent there has not answered yet; "


@pytest.fixture
async def desk():
    async with Desk().running() as made:
        made.world.add_node("b")
        yield made


async def slow(desk, seconds=SLOW_SECONDS + 1):
    """Time passes; who has something to be told is told."""
    desk.world.told.clear()
    desk.world.wait(seconds)
    await desk.told(*desk.world.told)


async def placed(desk, *mute):
    """A pod that is sent to a node whose agent is silent."""
    desk.world.mute = set(mute)
    uid = desk.world.add_pod("7g.40gb")
    desk.world.settle()
    await slow(desk)
    assert desk.world.on(uid) == "a"
    return uid


async def test_a_pod_whose_agent_is_silent_is_told_so_and_until_when(desk):
    uid = await placed(desk, "a")
    about = "7g.40gb at 0 of GPU 0 on node a: being created; "
    assert desk.condition(uid) == ("False", "Creating", f"{about}{NO_ANSWER}{UNTIL}")


async def test_the_condition_follows_the_pod_to_another_node_and_says_why_it_went(desk):
    uid = await placed(desk, "a", "b")
    first = desk.world.pods[uid].condition(SLICE_READY).last_transition_time
    await slow(desk, 120 - SLOW_SECONDS - 1)
    assert desk.world.on(uid) == "b"
    await slow(desk)
    why = "(placed again: the agent of node a has not answered for 120 s)"
    about = f"7g.40gb at 0 of GPU 0 on node b: being created {why}; "
    assert desk.condition(uid) == ("False", "Creating", f"{about}{NO_ANSWER}{UNTIL}")
    assert desk.world.pods[uid].condition(SLICE_READY).last_transition_time > first, "it waits for another agent now"


async def test_an_agent_that_has_answered_is_not_called_silent_any_more(desk):
    uid = await placed(desk, "a")
    (wanted,) = desk.world.spec("a").allocations
    desk.world.told.clear()
    desk.world.report("a", slices=(desk.world._made(wanted, SliceState.CREATING),))
    await desk.told(*desk.world.told)
    assert desk.condition(uid)[2] == f"7g.40gb at 0 of GPU 0 on node a: being created; {UNTIL}"


def explained(written, reports=()):
    """A pod whose slice was reserved 94 seconds ago; `written` is what its condition says."""
    mine = msgspec.structs.replace(allocation("w", "1g.5gb", 3), state=AllocationState.CREATING)
    waits = pod("w", "1g.5gb", gates=[GATE])
    said = Condition(SLICE_READY, "False", "Creating", written, NOW - timedelta(seconds=94))
    meta = msgspec.structs.replace(waits.metadata, annotations={REQUESTED: "{}"})
    waits = msgspec.structs.replace(waits, metadata=meta, status=PodStatus(phase="Pending", conditions=[said]))
    here = objects([waits], [instaslice(mine, slices=[made(mine, state) for state in reports])])
    return Explainer(here, policies.named("adaptive")).explain(here.pods[0])


ABOUT = "1g.5gb at 3 of GPU 0 on node gpu-0: being created"


def test_explain_quotes_the_controller_that_knows_its_own_limit_and_the_move():
    written = f"{ABOUT} (placed again: x); {NO_ANSWER}after 20 s the pod is placed elsewhere"
    said = explained(written)
    assert (said.stage, said.message) == (Stage.CREATING, written)
    assert NOW - said.since == timedelta(seconds=94)


@pytest.mark.parametrize(
    "written, reports, said",
    [
        pytest.param("1g.5gb at 3 of GPU 0 on node gone: being created; x", [], NO_ANSWER, id="of another node"),
        pytest.param(f"{ABOUT}; {NO_ANSWER}x", [SliceState.CREATING], "", id="of before the agent answered"),
    ],
)
def test_explain_does_not_quote_what_is_out_of_date(written, reports, said):
    assert explained(written, reports).message == f"{ABOUT}; {said}{UNTIL}"
