"""An event that the server did not take is written later, but not for ever."""

import asyncio

import pytest

from instaslice.kube.core import ObjectReference
from instaslice.kube.errors import Forbidden, Invalid, Unreachable
from instaslice.kube.events import MOST_TRIES, Recorder, Said

SAID = Said(ObjectReference(kind="Pod", namespace="team", name="train", uid="1"), False, "Waiting", "Place", "no room")


class Server:
    """Answers creates with these errors first."""

    def __init__(self, *errors):
        self._errors = list(errors)
        self.taken = []

    async def create(self, _, event):
        if self._errors:
            raise self._errors.pop(0)
        self.taken.append(event.note)


@pytest.mark.parametrize(
    "errors, taken, lost",
    [
        pytest.param([Unreachable("away")], 1, 0, id="it was away"),
        pytest.param([Unreachable("away"), Forbidden("starting")], 1, 0, id="it was started and knew no roles yet"),
        pytest.param([Forbidden("never")] * MOST_TRIES, 0, 1, id="it never lets us"),
        pytest.param([Invalid("no event")], 0, 1, id="it cannot be taken"),
    ],
)
async def test_an_event_is_written_once_the_server_takes_it(clock, errors, taken, lost):
    server = Server(*errors)
    recorder = Recorder(server, controller="gpu.das.com/test", instance="test", clock=clock)
    recorder.record(SAID)
    running = asyncio.create_task(recorder.run())
    for _ in range(60):
        await asyncio.sleep(0)
        clock.advance(1)
    running.cancel()
    assert (len(server.taken), recorder.lost) == (taken, lost)
