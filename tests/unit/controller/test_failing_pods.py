"""A pod that will never run is ended, though the API server may be away when its turn comes."""

import random

import pytest

from instaslice.api import names
from instaslice.api.instaslice import Allocation, AllocationState, PodRef, PreparedSlice, SliceState
from instaslice.controller.controller import Controller, Settings
from instaslice.controller.node_record import NodeRecord
from instaslice.controller.pod_condition import condition_of
from instaslice.controller.reservations import Reservation, TrackedAllocation
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import Pod, PodSpec
from instaslice.kube.core import SchedulingGate as Gate
from instaslice.kube.errors import Conflict, Forbidden, NotFound, Unreachable, from_answer
from instaslice.kube.meta import ObjectMeta
from instaslice.placement import NodeName, policies


class Server:
    """Answers the first write of a status with this error."""

    def __init__(self, error):
        self._errors = [error]
        self.written = []

    async def merge(self, _, key, body, **options):
        if self._errors:
            raise self._errors.pop()
        self.written.append(body["status"]["phase"])


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("away"), id="no answer"),
        pytest.param(Forbidden("starting"), id="it has not read its roles yet"),
        pytest.param(Conflict("changed"), id="the pod was changed meanwhile"),
    ],
)
async def test_it_is_tried_again(error):
    server = Server(error)
    controller = _controller(server)
    controller.orders.fail("1", "nobody binds it")
    with pytest.raises(type(error)):
        await controller._fail("1")
    await controller._fail("1")
    await controller._fail("1")
    assert server.written == ["Failed"]


async def test_a_pod_that_is_gone_is_left_alone():
    server = Server(NotFound("gone"))
    controller = _controller(server)
    controller.orders.fail("1", "nobody binds it")
    await controller._fail("1")
    await controller._fail("1")
    assert server.written == []


class Refusing(Server):
    """Lets no gate go: somebody's policy is against it."""

    def __init__(self, error, pod):
        super().__init__(error)
        self._errors, self._refusal, self._pod = [], error, pod

    async def patch(self, *_, **__):
        raise self._refusal

    async def get(self, *_):
        return self._pod


REFUSALS = [
    pytest.param(from_answer("patch pods team/train", code, b"not on Fridays"), id=str(code))
    for code in (400, 401, 403, 404, 413, 418, 422)
]


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_pod_whose_gate_the_server_keeps_ends_in_time_and_says_why(error):
    pod = Pod(ObjectMeta(namespace="team", name="train", uid="1"), PodSpec(scheduling_gates=[Gate(name=names.GATE)]))
    server = Refusing(error, pod)
    controller = _controller(server)
    reservation = _promised(controller, pod)
    with pytest.raises(type(error)):
        await controller._ungate("1")
    said = condition_of(controller.state, controller.dispatcher.placer, "1")
    assert (said.reason, said.warning) == ("UngateRefused", True)
    assert "not on Fridays" in said.message
    await controller._fail("1")
    assert server.written == []
    reservation.since -= 301
    await controller._ungate("1")
    assert error.message in controller.orders.why_failed["1"]
    await controller._fail("1")
    assert server.written == ["Failed"]


@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_a_server_that_is_busy_or_in_trouble_is_no_reason_to_fail_a_pod(code):
    error = from_answer("patch pods team/train", code, b"later")
    pod = Pod(ObjectMeta(namespace="team", name="train", uid="1"), PodSpec(scheduling_gates=[Gate(name=names.GATE)]))
    controller = _controller(Refusing(error, pod))
    _promised(controller, pod).since -= 301
    with pytest.raises(type(error)):
        await controller._ungate("1")
    assert not controller.orders.why_failed


def _promised(controller, pod):
    """Its slice is there."""
    node = NodeName("a")
    controller.dispatcher.state.pods["1"] = pod
    controller.dispatcher.state.ledger.nodes[node] = NodeRecord(node)
    reference = PodRef(namespace="team", name="train", uid="1")
    allocation = Allocation("1-0-0", reference, "c", "1g.5gb", "GPU-0", 0, 1, AllocationState.CREATING)
    prepared = PreparedSlice("1-0-0", "GPU-0", "1g.5gb", 0, 1, SliceState.CREATED, mig_uuid="MIG-1")
    reservation = Reservation("1", node, SystemClock().monotonic(), [TrackedAllocation(node, allocation, prepared)])
    controller.dispatcher.state.ledger.reservations["1"] = reservation
    return reservation


def _controller(server):
    made = Controller(
        server, policies.named("adaptive"), clock=SystemClock(), rng=random.Random(0), settings=Settings()
    )
    made.dispatcher.state.pods["1"] = Pod(metadata=ObjectMeta(namespace="team", name="train", uid="1"))
    return made
