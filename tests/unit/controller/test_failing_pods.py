"""A pod that will never run is ended, though the API server may be away when its turn comes."""

import random

import pytest

from instaslice.controller.controller import Controller, Settings
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import Pod
from instaslice.kube.errors import Conflict, Forbidden, NotFound, Unreachable
from instaslice.kube.meta import ObjectMeta
from instaslice.placement import policies


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


def _controller(server):
    made = Controller(
        server, policies.named("adaptive"), clock=SystemClock(), rng=random.Random(0), settings=Settings()
    )
    made.dispatcher.pods["1"] = Pod(metadata=ObjectMeta(namespace="team", name="train", uid="1"))
    return made
