"""A pod that will never run is ended, though the API server may be away when its turn comes."""

import random

import pytest

from instaslice.api import names
from instaslice.controller.controller import Controller, Settings
from instaslice.controller.promises import Promise
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import Pod, PodSpec
from instaslice.kube.core import SchedulingGate as Gate
from instaslice.kube.errors import Conflict, Forbidden, Invalid, NotFound, Unreachable
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
    controller.fail("1", "nobody binds it")
    with pytest.raises(type(error)):
        await controller._fail("1")
    await controller._fail("1")
    await controller._fail("1")
    assert server.written == ["Failed"]


async def test_a_pod_that_is_gone_is_left_alone():
    server = Server(NotFound("gone"))
    controller = _controller(server)
    controller.fail("1", "nobody binds it")
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


@pytest.mark.parametrize("error", [Invalid("422: only additions"), Forbidden("403: not on Fridays")])
async def test_a_pod_whose_gate_the_server_keeps_ends_in_time_and_says_why(error):
    pod = Pod(ObjectMeta(namespace="team", name="train", uid="1"), PodSpec(scheduling_gates=[Gate(name=names.GATE)]))
    server = Refusing(error, pod)
    controller = _controller(server)
    controller.dispatcher.pods["1"] = pod
    promise = controller.dispatcher.ledger.promises["1"] = Promise("1", NodeName("a"), SystemClock().monotonic())
    with pytest.raises(type(error)):
        await controller._ungate("1")
    await controller._fail("1")
    assert server.written == []
    promise.since -= 301
    await controller._ungate("1")
    assert error.message in controller._why_failed["1"]
    await controller._fail("1")
    assert server.written == ["Failed"]


def _controller(server):
    made = Controller(
        server, policies.named("adaptive"), clock=SystemClock(), rng=random.Random(0), settings=Settings()
    )
    made.dispatcher.pods["1"] = Pod(metadata=ObjectMeta(namespace="team", name="train", uid="1"))
    return made
