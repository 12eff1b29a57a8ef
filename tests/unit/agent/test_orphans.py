"""Slices that no allocation names: those that a pod uses stay, whatever became of their object; the others go."""

import fitting
import pytest
from agent_bench import Bench

from instaslice.agent.kubelet.device_ids import DeviceAssignments, DeviceHolder, DeviceId, PodSlice
from instaslice.agent.usage import in_use
from instaslice.api import names
from instaslice.api.instaslice import EMPTY_STATUS
from instaslice.drivers import Slice
from instaslice.errors import InstasliceError
from instaslice.geometry import models
from instaslice.kube.core import PODS
from instaslice.kube.errors import Unreachable

A100 = models.named("A100-40GB")
GRACE = 60


def orphan(start=0, profile="1g.5gb", gpu="GPU-0"):
    return Slice(gpu, A100.placement(profile, start), start, 0, f"MIG-{gpu}-{start}")


# The worker ------------------------------------------------------------------------------------------------------


@pytest.fixture
def bench():
    """A pod runs on its slice, another slice is nobody's, and the object of the node was deleted and made again."""
    made = Bench(grace=GRACE)
    made.write(made.wants("runs", state="creating"), made.wants("idle", start=1, state="creating"))
    made.work()
    made.write(made.wants("runs", state="ungated"), made.wants("idle", start=1, state="ungated"))
    made.work()
    made.users[made.gpus[0], "1g.5gb", 0] = "kept: pod team/runs uses it"
    made.write()
    made.written = EMPTY_STATUS
    made.restart()
    made.work()
    return made


def passes(bench, seconds):
    bench.clock.advance(seconds)
    bench.work()


def test_an_orphan_that_a_pod_uses_stays_and_says_why(bench):
    for _ in range(20):
        passes(bench, GRACE)
    assert bench.there() == [("1g.5gb", 0)]
    assert [(each.state, each.reason) for each in bench.written.slices] == [("foreign", "kept: pod team/runs uses it")]


def test_it_goes_once_its_pod_is_gone(bench):
    passes(bench, GRACE)
    bench.users.clear()
    for _ in range(10):
        passes(bench, bench.agent.next_due() or 0)
    assert bench.there() == []
    assert bench.agent.next_due() is None


def test_an_agent_that_is_started_again_asks_again(bench):
    passes(bench, GRACE)
    bench.restart()
    passes(bench, 0)
    passes(bench, GRACE)
    assert bench.there() == [("1g.5gb", 0)]


def test_who_uses_it_is_asked_ever_slower(bench):
    passes(bench, GRACE)
    waits = []
    for _ in range(8):
        waits.append(bench.agent.next_due())
        passes(bench, waits[-1])
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


@pytest.fixture
def asked(bench):
    """How many orphans were asked about, question by question."""
    found, plain = [], bench.in_use

    async def in_use(orphans):
        found.append(len(orphans))
        return await plain(orphans)

    bench.in_use = in_use
    bench.restart()
    passes(bench, 0)
    return found


def test_nobody_is_asked_before_the_grace_is_over(bench, asked):
    passes(bench, GRACE - 1)
    assert asked == []
    passes(bench, 1)
    assert asked == [2], "once for all of a GPU"


def test_before_a_destroy_is_tried_again_it_is_asked_again(bench, asked):
    bench.users.clear()
    bench.driver.faults.hold(bench.gpus[0], 0, "pid 1")
    passes(bench, GRACE)
    assert bench.there() == [("1g.5gb", 0)]
    asked.clear()
    passes(bench, bench.agent.next_due())
    assert asked == [1]


def test_an_orphan_that_is_promised_while_it_is_asked_about_is_asked_about_again_when_it_is_one_again(bench):
    users = dict(bench.users)
    answers = [bench.in_use]

    async def promised_meanwhile(_orphans):
        bench.in_use = answers.pop()
        bench.write(bench.wants("again", state="ungated"))
        bench.take()
        return {}

    bench.in_use = promised_meanwhile
    bench.restart()
    passes(bench, 0)
    passes(bench, GRACE)
    assert bench.work() == {"again": "created"}
    bench.users = users
    bench.write()
    passes(bench, 0)
    passes(bench, GRACE)
    assert bench.there() == [("1g.5gb", 0)]


def test_an_orphan_that_a_controller_promises_again_is_its_pods_and_ends_as_any_other(bench):
    passes(bench, GRACE)
    bench.write(bench.wants("again", state="ungated"))
    assert bench.work() == {"again": "created"}
    assert bench.written.slices[0].reason == ""
    bench.users.clear()
    bench.write(bench.wants("again", state="deleting"))
    assert bench.work() == {"again": "deleted"}, "at once: what kept it as an orphan is forgotten"


# Who uses it -----------------------------------------------------------------------------------------------------


class Pods:
    """Answers a list of pods."""

    def __init__(self, *pods, error=None):
        self._pods, self._error = pods, error
        self.asked = []

    async def list(self, resource, selector):
        assert resource is PODS
        self.asked.append(selector.fields)
        if self._error is not None:
            raise self._error
        return list(self._pods)


class Kubelet:
    """A node's side of the kubelet, as far as it is asked here."""

    def __init__(self, held=None):
        self._held = held

    @property
    def holders(self):
        return self

    async def in_use(self, slices):
        if self._held is None:
            raise InstasliceError("no kubelet answers")
        return {each: who for each, who in self._held.items() if each in slices}


def pod(uuids, phase="Running"):
    annotations = {} if uuids is None else {names.MIG_UUIDS: uuids}
    meta = {"name": "train", "namespace": "team", "annotations": annotations}
    return fitting.pod(meta=meta, status={"phase": phase}, nodeName="node")


@pytest.mark.parametrize(
    "pods, kept",
    [
        pytest.param([pod("MIG-GPU-0-0")], [0], id="a pod that runs"),
        pytest.param([pod("MIG-GPU-0-0", "Pending")], [0], id="a pod that starts"),
        pytest.param([pod("MIG-GPU-0-4,MIG-GPU-0-1")], [1], id="one of several slices"),
        pytest.param([pod("MIG-GPU-0-0", "Succeeded"), pod("MIG-GPU-0-1", "Failed")], [], id="pods that have ended"),
        pytest.param([pod("MIG-GPU-0-2"), pod(None), pod("")], [], id="pods with other slices, or none"),
        pytest.param([], [], id="no pods"),
    ],
)
@pytest.mark.parametrize("devices", [None, Kubelet({})], ids=["no kubelet of its own", "a kubelet"])
async def test_a_slice_that_a_pod_of_the_node_was_given_is_in_use_until_the_pod_has_ended(pods, kept, devices):
    server, orphans = Pods(*pods), [orphan(0), orphan(1)]
    found = await in_use(server, devices, "node", orphans)
    assert sorted(each.placement.start for each in found) == kept
    assert all(words == "kept: pod team/train uses it, though no allocation names it" for words in found.values())
    assert server.asked == ["spec.nodeName=node"]


async def test_a_slice_that_the_kubelet_knows_a_holder_of_is_in_use_though_its_pod_is_gone():
    found = await in_use(
        Pods(), Kubelet({orphan(0): "container main of pod team/train"}), "node", [orphan(0), orphan(1)]
    )
    assert found == {orphan(0): "kept: container main of pod team/train uses it, though no allocation names it"}


@pytest.mark.parametrize(
    "server, devices, says",
    [
        pytest.param(Pods(), Kubelet(None), "no kubelet answers", id="the kubelet"),
        pytest.param(Pods(error=Unreachable("away")), Kubelet({}), "away", id="the API server"),
        pytest.param(Pods(error=Unreachable("away")), None, "away", id="the API server, which is all there is"),
    ],
)
async def test_where_one_of_them_does_not_answer_everything_stays(server, devices, says):
    found = await in_use(server, devices, "node", [orphan(0), orphan(1)])
    assert found == dict.fromkeys([orphan(0), orphan(1)], f"kept: it is unknown whether a pod uses it ({says})")


BOUND = {DeviceId("1g.5gb-0"): PodSlice("uid", "GPU-0", "1g.5gb", 3)}
HELD = [DeviceHolder("main", namespace="team", pod="train")]


@pytest.mark.parametrize(
    "book, held, kept",
    [
        pytest.param(BOUND, {"1g.5gb-0": HELD}, [orphan(3)], id="the device id that it is behind is held"),
        pytest.param(BOUND, {}, [], id="nobody holds that device id"),
        pytest.param({}, {"1g.5gb-6": HELD}, [orphan(0), orphan(3)], id="the book is lost: any of that profile"),
        pytest.param({DeviceId("1g.5gb-0"): None}, {"1g.5gb-0": HELD}, [orphan(0), orphan(3)], id="open: any as well"),
        pytest.param({}, {"2g.10gb-0": HELD}, [orphan(2, "2g.10gb")], id="a device id of another profile"),
        pytest.param(
            {DeviceId("1g.5gb-0"): PodSlice("uid", "GPU-1", "1g.5gb", 3)},
            {"1g.5gb-0": HELD},
            [],
            id="a slice of another GPU",
        ),
    ],
)
def test_what_is_behind_the_device_ids_that_the_kubelet_says_are_held(book, held, kept):
    found = DeviceAssignments(book).in_use([orphan(0), orphan(3), orphan(2, "2g.10gb")], held)
    assert list(found) == kept
    assert set(found.values()) <= {"container main of pod team/train"}
