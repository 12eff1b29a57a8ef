"""What a Recorder writes, and when: an event that the server did not take later, but not for ever."""

import asyncio

import pytest

from instaslice.kube import events
from instaslice.kube.core import PODS, ObjectReference, Pod
from instaslice.kube.errors import Forbidden, Invalid, NotFound, Unreachable
from instaslice.kube.events import MAX_TRIES, REPEAT_SECONDS, EventKey, Recorder, reference
from instaslice.kube.meta import ObjectMeta

SAID = EventKey(
    ObjectReference(kind="Pod", namespace="team", name="train", uid="1"), False, "Waiting", "Place", "no room"
)


class Server:
    """Answers with these errors first."""

    def __init__(self, clock, *errors):
        self._clock = clock
        self._errors = list(errors)
        self._began = clock.monotonic()
        self.asked = []
        """When."""
        self.taken = []
        self.counts = []
        """Of what was said again."""
        self.observed = []
        """When it was said last, as it is written."""

    async def create(self, _, event):
        self._answer()
        self.taken.append(event)

    async def merge(self, _, key, body):
        self._answer()
        self.counts.append((key.name, body["series"]["count"]))
        self.observed.append(body["series"]["lastObservedTime"])

    def _answer(self):
        self.asked.append(round(self._clock.monotonic() - self._began))
        if self._errors:
            raise self._errors.pop(0)


@pytest.fixture
async def recording(clock):
    """A server with these errors, and who writes to it."""
    tasks = []

    def begin(*errors):
        server = Server(clock, *errors)
        recorder = Recorder(server, controller="gpu.das.com/test", instance="test", clock=clock)
        tasks.append(asyncio.create_task(recorder.run()))
        return server, recorder

    yield begin
    for task in tasks:
        task.cancel()


async def passing(clock, seconds):
    for step in [0, *[1] * seconds]:
        clock.advance(step)
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "errors, taken, lost",
    [
        pytest.param([Unreachable("away")], 1, 0, id="it was away"),
        pytest.param([Unreachable("away"), Forbidden("starting")], 1, 0, id="it was started and knew no roles yet"),
        pytest.param([Forbidden("never")] * MAX_TRIES, 0, 1, id="it never lets us"),
        pytest.param([Invalid("no event")], 0, 1, id="it cannot be taken"),
    ],
)
async def test_an_event_is_written_once_the_server_takes_it(clock, recording, errors, taken, lost):
    server, recorder = recording(*errors)
    recorder.record(SAID)
    await passing(clock, 60)
    assert (len(server.taken), recorder.lost) == (taken, lost)


async def test_each_wait_before_it_is_tried_again_is_longer_than_the_last(clock, recording):
    server, recorder = recording(*[Unreachable("away")] * MAX_TRIES)
    recorder.record(SAID)
    await passing(clock, 60)
    assert server.asked == [0, 2, 6, 12, 20, 30]


@pytest.mark.parametrize("length", [1024, 1025, 30_000])
async def test_more_than_an_event_may_hold_is_cut(clock, recording, length):
    """The server refuses a note of more than 1,024 characters."""
    server, recorder = recording()
    note = "n" * 1023 + "x" * (length - 1023)
    recorder.record(SAID._replace(note=note))
    await passing(clock, 0)
    assert [event.note for event in server.taken] == [note[:1024]]


async def test_the_name_of_an_event_fits_however_long_that_of_its_object_is(clock, recording):
    server, recorder = recording()
    regarding = ObjectReference(kind="Pod", namespace="team", name="p" * 253, uid="1")
    recorder.record(SAID._replace(regarding=regarding))
    recorder.record(SAID._replace(regarding=regarding, note="another"))
    await passing(clock, 0)
    first, second = (event.metadata.name for event in server.taken)
    assert max(len(first), len(second)) <= 253
    assert first != second


async def test_what_is_said_again_is_counted_and_written_once_a_minute(clock, recording):
    server, recorder = recording()
    for _ in range(180):
        recorder.record(SAID)
        await passing(clock, 1)
    [event] = server.taken
    assert server.counts == [(event.metadata.name, count) for count in (60, 120, 180)]
    assert server.asked == [0, *(n * REPEAT_SECONDS for n in (1, 2, 3))]
    assert server.observed == [f"2026-11-16T00:{minute}:40.000000Z" for minute in (17, 18, 19)]


async def test_an_event_that_expired_is_made_again_with_its_count(clock, recording):
    server, recorder = recording()
    recorder.record(SAID)
    await passing(clock, 1)
    recorder.record(SAID)
    server._errors = [NotFound("expired")]
    await passing(clock, 70)
    assert [event.series and event.series.count for event in server.taken] == [None, 2]
    assert recorder.lost == 0


async def test_events_of_a_namespace_that_is_gone_are_lost_at_once(clock, recording):
    server, recorder = recording(NotFound("no namespace"))
    recorder.record(SAID)
    await passing(clock, 70)
    assert (server.asked, recorder.lost) == ([0], 1)


@pytest.fixture
def recorder_of(clock):
    """Who would write to a server, but has not begun to."""

    def made(server):
        return Recorder(server, controller="gpu.das.com/test", instance="test", clock=clock)

    return made


@pytest.mark.parametrize("warning, kind", [(False, "Normal"), (True, "Warning")])
async def test_an_event_as_it_is_written(clock, recording, warning, kind):
    server, recorder = recording()
    recorder.record(SAID._replace(warning=warning))
    await passing(clock, 0)
    (event,) = server.taken
    assert (event.regarding, event.type, event.reason, event.action) == (SAID.regarding, kind, "Waiting", "Place")
    assert (event.reporting_controller, event.reporting_instance) == ("gpu.das.com/test", "test")
    assert event.event_time == "2026-11-16T00:16:40.000000Z"
    assert event.metadata.namespace == "team"
    assert event.metadata.name.startswith("train.")
    assert event.series is None


async def test_what_was_said_twice_before_it_is_written_is_one_event_that_says_so(clock, recording):
    server, recorder = recording()
    recorder.record(SAID)
    recorder.record(SAID)
    await passing(clock, 120)
    (event,) = server.taken
    assert (event.series.count, event.series.last_observed_time) == (2, event.event_time)
    assert server.asked == [0]


async def test_an_event_of_what_is_in_no_namespace_goes_to_the_default_one(clock, recording):
    server, recorder = recording()
    recorder.record(SAID._replace(regarding=ObjectReference(kind="Node", name="n1", uid="1")))
    await passing(clock, 0)
    assert [event.metadata.namespace for event in server.taken] == ["default"]


async def test_recorders_that_begin_at_different_times_do_not_hit_upon_each_others_names(clock, recording):
    names = []
    for _ in range(2):
        server, recorder = recording()
        recorder.record(SAID)
        await passing(clock, 1)
        names += [event.metadata.name for event in server.taken]
    assert len(names) == len(set(names)) == 2


async def test_of_too_many_events_the_one_that_was_not_said_for_longest_is_forgotten(clock, recorder_of, monkeypatch):
    monkeypatch.setattr(events, "MAX_RECORDS", 3)
    server = Server(clock)
    recorder = recorder_of(server)
    for note in ["a", "b", "c", "a", "d"]:
        recorder.record(SAID._replace(note=note))
    assert recorder.lost == 1
    recorder.close()
    await recorder.run()
    assert sorted(event.note for event in server.taken) == ["a", "c", "d"]


async def test_an_event_that_is_written_and_forgotten_is_not_lost(clock, recording, monkeypatch):
    monkeypatch.setattr(events, "MAX_RECORDS", 1)
    server, recorder = recording()
    for note in ["a", "b", "a"]:
        recorder.record(SAID._replace(note=note))
        await passing(clock, 0)
    assert [event.note for event in server.taken] == ["a", "b", "a"]
    assert recorder.lost == 0


async def test_who_is_closed_writes_what_was_said_before_and_ends(clock, recorder_of):
    server = Server(clock)
    recorder = recorder_of(server)
    recorder.record(SAID)
    recorder.close()
    recorder.record(SAID._replace(note="too late"))
    await recorder.run()
    assert [event.note for event in server.taken] == [SAID.note]


async def test_an_event_that_was_lost_may_be_said_anew(clock, recording):
    server, recorder = recording(*[Forbidden("not yet")] * MAX_TRIES, Forbidden("nor now"))
    recorder.record(SAID)
    await passing(clock, 60)
    assert recorder.lost == 1
    recorder.record(SAID)
    await passing(clock, 2)
    (event,) = server.taken
    assert event.series is None


async def test_each_repetition_is_tried_as_often_as_the_first(clock, recording):
    server, recorder = recording(*[Unreachable("away")] * (MAX_TRIES - 1))
    recorder.record(SAID)
    await passing(clock, 60)
    server._errors = [Unreachable("away again")] * (MAX_TRIES - 1)
    recorder.record(SAID)
    await passing(clock, 120)
    assert [count for _, count in server.counts] == [2]
    assert recorder.lost == 0


def test_what_an_event_regards():
    meta = ObjectMeta(namespace="team", name="train", uid="1", resource_version="7")
    assert reference(PODS, Pod(metadata=meta)) == ObjectReference(
        api_version="v1", kind="Pod", namespace="team", name="train", uid="1"
    )
