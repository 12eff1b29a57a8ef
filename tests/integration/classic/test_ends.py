"""However and whenever a pod ends, its slots come back: `stage` checks that after every story."""

import pytest
from stage import pod

from instaslice.api.instaslice import AllocationState, SliceState
from instaslice.kube.core import NODES, PODS
from instaslice.kube.meta import Key
from instaslice.local.operator import AGENT, CONTROLLER

SOFT, FORCED = {}, {"grace_seconds": 0}
HOW = pytest.mark.parametrize("how", [pytest.param(SOFT, id="deleted"), pytest.param(FORCED, id="force-deleted")])


class Pauses:
    """Processes of the cluster that stand still for a while."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._stopped = set()

    def stop(self, component):
        self._cluster.pause(component)
        self._stopped.add(component)

    def go_on(self, *components):
        """These, or all."""
        for each in components or tuple(self._stopped):
            self._cluster.resume(each)
            self._stopped.discard(each)


@pytest.fixture
def held_up(sliced):
    pauses = Pauses(sliced)
    yield pauses
    pauses.go_on()


async def successor(stage):
    """One more pod, which needs a whole GPU: it runs once all of it is free again."""
    await stage.create(pod("successor", "7g.40gb"))
    await stage.running("successor")


@HOW
async def test_while_it_waits(stage, how):
    await stage.node()
    await stage.create(pod("holder", "7g.40gb"))
    await stage.running("holder")
    await stage.create(pod("waits"))
    await stage.waits("waits")
    await stage.delete("waits", **how)
    await stage.gone("waits")
    await stage.delete("holder")
    await successor(stage)


@HOW
async def test_while_its_slice_is_being_made(stage, how):
    node = await stage.node()
    await stage.fault(node, "0 hang")
    await stage.create(pod("creating"))
    await stage.allocated("creating", AllocationState.CREATING)
    await stage.delete("creating", **how)
    await stage.allocated("creating", AllocationState.DELETING)
    await stage.fault(node, "")
    await successor(stage)


@HOW
async def test_when_one_of_its_slices_is_made_and_the_other_is_not(stage, how):
    node = await stage.node(gpus=2)
    await stage.fault(node, "1 hang")
    await stage.create(pod("half", {"7g.40gb": 2}))
    made = [SliceState.CREATED, SliceState.CREATING]
    await stage.until("one slice", lambda: sorted(_states(stage.thing(node).status.slices)) == made)
    await stage.delete("half", **how)
    await stage.allocated("half", AllocationState.DELETING)  # the other is destroyed already
    await stage.fault(node, "")
    await successor(stage)


@HOW
async def test_when_its_slice_is_made_and_nobody_has_let_it_go_yet(stage, held_up, how):
    node = await stage.node()
    held_up.stop(AGENT)
    await stage.create(pod("created"))
    await stage.allocated("created", AllocationState.CREATING)
    held_up.stop(CONTROLLER)
    held_up.go_on(AGENT)
    await stage.until("a slice", lambda: _states(stage.thing(node).status.slices) == [SliceState.CREATED])
    await stage.delete("created", **how)
    await stage.gone("created")
    held_up.go_on()
    await successor(stage)


def _states(things):
    return [each.state for each in things]


@HOW
async def test_when_it_is_let_go_and_not_bound(stage, held_up, how):
    await stage.node()
    held_up.stop("kube-scheduler")
    await stage.create(pod("ungated"))
    await stage.ungated("ungated")
    await stage.delete("ungated", **how)
    await stage.free()
    held_up.go_on()
    await successor(stage)


@HOW
async def test_when_it_is_bound_and_does_not_run_yet(stage, held_up, how):
    await stage.node()
    held_up.stop("kwok")
    await stage.create(pod("bound"))
    await stage.bound("bound")
    await stage.delete("bound", **how)
    held_up.go_on()
    await successor(stage)


@HOW
async def test_while_it_runs(stage, how):
    await stage.node()
    await stage.create(pod("runs"))
    await stage.running("runs")
    await stage.delete("runs", **how)
    await successor(stage)


async def test_while_it_is_ending_it_keeps_its_slice(stage, held_up):
    """Its containers may still use it. Force-deleted, it has none."""
    await stage.node()
    await stage.create(pod("ending"))
    await stage.running("ending")
    held_up.stop("kwok")
    await stage.delete("ending")
    await stage.until("a mark", lambda: stage.pod("ending").metadata.deletion_timestamp)
    await stage.create(pod("wants-all", "7g.40gb"))
    await stage.waits("wants-all")
    assert [each.wanted for each in stage.held("ending")] == [True]
    await stage.delete("ending", grace_seconds=0)
    held_up.go_on()
    await stage.running("wants-all")


async def test_while_somebody_still_uses_its_slice_the_slot_stays_reserved(stage):
    node = await stage.node()
    await stage.create(pod("held", "3g.20gb"))
    await stage.running("held")
    (held,) = stage.held("held")
    await stage.fault(node, f"0 held {held.start}")
    await stage.delete("held")
    await stage.gone("held")
    await stage.until("words", lambda: any(each.reason for each in stage.thing(node).status.slices))
    assert _states(stage.held("held")) == [AllocationState.DELETING]
    await stage.create(pod("wants-all", "7g.40gb"), pod("beside", "3g.20gb"))
    await stage.running("beside")
    await stage.waits("wants-all")
    await stage.delete("beside")
    await stage.fault(node, "")
    await stage.running("wants-all")


@pytest.mark.parametrize("exit_code, phase", [("0", "Succeeded"), ("1", "Failed")])
async def test_when_it_is_done(stage, exit_code, phase):
    await stage.node()
    await stage.create(pod("ends", run_for="500ms", exit_code=exit_code))
    await stage.phase("ends", phase)
    await successor(stage)
    assert stage.pod("ends"), "it is still there to be read"


async def test_when_the_kubelet_rejects_it(stage):
    node = await stage.node()
    # The story plays the kubelet, not kwok.
    await stage.client.merge(NODES, Key("", node), {"metadata": {"labels": {"type": None}}})
    await stage.create(pod("rejected"))
    await stage.bound("rejected")
    told = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}
    await stage.client.merge(PODS, Key(stage.namespace, "rejected"), {"status": told}, subresource="status")
    await stage.free()
    await stage.client.merge(NODES, Key("", node), {"metadata": {"labels": {"type": "kwok"}}})
    await successor(stage)


async def _made_again(stage):
    """A pod of that name, once it runs. kwok deletes by name alone: when it means the first it may hit the second, and
    that is made once more then."""
    seen = set()
    # By each change: both may have come and gone before the story looks.
    stage.pods.on_change(lambda old, new: seen.update(each.metadata.uid for each in (old, new) if each is not None))
    for _ in range(5):
        (made,) = await stage.create(pod("again"))

        def running_or_gone(uid=made.metadata.uid):
            found = stage.pod("again")
            if found is not None and found.metadata.uid == uid:
                return found.status.phase == "Running"
            return uid in seen

        await stage.until("the second", running_or_gone)
        if (found := stage.pod("again")) is not None:
            return found
    raise AssertionError("it is deleted each time")


async def test_a_pod_of_the_same_name_made_at_once_has_slices_of_its_own(stage):
    await stage.node()
    await stage.create(pod("again"))
    (first,) = await stage.running("again")
    await stage.delete("again", grace_seconds=0)
    second = await _made_again(stage)
    assert second.metadata.uid != first.metadata.uid
    await stage.until("one allocation", lambda: [each.pod.uid for each in stage.present()] == [second.metadata.uid])
