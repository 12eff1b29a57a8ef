"""What a Reflector asks for next, and what its store holds then, whatever the server says."""

import asyncio
import random

import pytest
from fake_clock import JumpingClock
from scripted import Scripted, added, bookmark, complete, deleted, error, line, modified, pod

from instaslice.kube.cache import Cache
from instaslice.kube.client import Selector
from instaslice.kube.core import PODS
from instaslice.kube.errors import BadRequest, Gone, Invalid, Quiet, Unreachable
from instaslice.kube.watch import END_REASONS, SILENT_AFTER, Reflector

BEGUN = [added("a", "3"), complete("5")]
"""A watch-list of one pod."""
AWAY = Unreachable("away")


@pytest.fixture
def clock():
    return JumpingClock()


class Story:
    def __init__(self, clock, *script, **options):
        self.server = Scripted(*script)
        self.cache = Cache()
        self.heard = []
        self.cache.on_change(lambda old, new: self.heard.append(tuple(map(_version, (old, new)))))
        self.reflector = Reflector(self.server, PODS, self.cache, clock=clock, rng=random.Random(1), **options)

    async def told(self):
        """All that the script tells."""
        running = asyncio.create_task(self.reflector.run())
        async with asyncio.timeout(30):
            telling = asyncio.create_task(self.server.told.wait())
            await asyncio.wait([running, telling], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        running.cancel()
        return self

    @property
    def asked(self):
        return self.server.asked

    @property
    def held(self):
        return {each.metadata.name: each.metadata.resource_version for each in self.cache}


def _version(thing):
    return thing and thing.metadata.resource_version


@pytest.mark.parametrize(
    "lines, resumed, held",
    [
        pytest.param([], "5", {"a": "3"}, id="where the list was complete"),
        pytest.param([bookmark("9")], "9", {"a": "3"}, id="at the last bookmark"),
        pytest.param([bookmark("9"), bookmark("12")], "12", {"a": "3"}, id="at the last of several"),
        pytest.param([added("b", "7")], "7", {"a": "3", "b": "7"}, id="after what came"),
        pytest.param([modified("a", "8")], "8", {"a": "8"}, id="after what changed"),
        pytest.param([deleted("a", "9")], "9", {}, id="after what went"),
        pytest.param([line("MODIFIED", {**pod("a", "8"), "spec": 7})], "8", {"a": "3"}, id="after what is unreadable"),
        pytest.param([bookmark("9"), modified("a", "11")], "11", {"a": "11"}, id="after what came behind a bookmark"),
        pytest.param([line("ADDED", pod("b", "7"))[:20], line("ADDED", pod("b", "7"))[20:]], "7", {"a": "3", "b": "7"},
                     id="after what came in two pieces"),
        pytest.param([b'{"object":{"metadata":{"name":"b","resourceVersion":"7"}},"type":"ADDED"}\n'], "7",
                     {"a": "3", "b": "7"}, id="after what is written another way"),
    ],
)  # fmt: skip
async def test_where_a_watch_that_ended_is_resumed(clock, lines, resumed, held):
    clock_goes_on = [lambda: clock.advance(60) or bookmark("5")]
    story = await Story(clock, BEGUN, [*clock_goes_on, *lines]).told()
    assert story.asked == ["watch-list", "watch from 5", f"watch from {resumed}"]
    assert story.held == held
    assert clock.slept == []


async def test_a_watch_list_is_believed_when_it_is_complete_and_not_before(clock):
    story = await Story(
        clock, BEGUN, [error(410)], [added("b", "9"), bookmark("10"), AWAY], [added("c", "11"), complete("12")]
    ).told()
    assert story.asked == ["watch-list", "watch from 5", "watch-list", "watch-list", "watch from 12"]
    assert story.heard == [(None, "3"), ("3", None), (None, "11")]


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(Gone("too old"), id="as the answer"),
        pytest.param([error(410, "Expired")], id="inside the watch"),
        pytest.param([modified("a", "6"), error(410, "Expired")], id="after a change"),
    ],
)
async def test_a_server_that_forgot_where_we_were_is_listed_at_once(clock, gone):
    story = await Story(clock, BEGUN, gone, [added("a", "7"), complete("20")]).told()
    assert story.asked == ["watch-list", "watch from 5", "watch-list", "watch from 20"]
    assert story.held == {"a": "7"}
    assert clock.slept == []


async def test_a_list_that_is_gone_before_it_is_read_is_not_begun_again_at_once(clock):
    story = await Story(clock, *[Gone("slow")] * 3, BEGUN).told()
    assert story.asked == ["watch-list"] * 4 + ["watch from 5"]
    assert_growing(clock.slept, 3)


def assert_growing(waits, count):
    """Each twice the last, give or take the jitter."""
    assert len(waits) == count
    for n, wait in enumerate(waits):
        assert 0.8 * 2**n <= wait <= 1.6 * 2**n, waits


async def test_a_server_that_has_no_watch_lists_is_listed_in_pages_from_then_on(clock):
    listed = ("9", pod("a", "3"), pod("b", "4"))
    story = await Story(clock, Invalid("no"), listed, [error(410)], ("15", pod("b", "12"))).told()
    assert story.asked == ["watch-list", "list", "watch from 9", "list", "watch from 15"]
    assert story.heard == [(None, "3"), (None, "4"), ("3", None), ("4", "12")]


async def test_an_empty_list_is_a_list(clock):
    story = await Story(clock, ("9",), watch_list=False).told()
    assert story.asked == ["list", "watch from 9"]
    assert story.cache._synced.is_set()


async def test_waits_grow_while_the_server_is_away_and_what_was_heard_is_kept(clock):
    story = await Story(clock, BEGUN, *[AWAY] * 4, "5").told()
    assert story.asked == ["watch-list", "watch from 5", *["version"] * 4, "watch from 5"]
    assert story.held == {"a": "3"}
    assert_growing(clock.slept, 4)
    assert story.reflector.failure is AWAY


QUIET = Quiet("nothing came")


async def test_a_watch_without_news_is_opened_again_and_nothing_is_said(clock, caplog):
    story = await Story(clock, BEGUN, [bookmark("6"), QUIET], "6", [QUIET], "9", [modified("a", "8")]).told()
    asked = ["watch from 5", "version", "watch from 6", "version", "watch from 6", "watch from 8"]
    assert story.asked == ["watch-list", *asked]
    assert story.held == {"a": "8"}
    assert (clock.slept, caplog.messages) == ([], [])


async def test_a_watch_without_news_of_a_server_that_is_away_is_a_failure(clock, caplog):
    story = await Story(clock, BEGUN, [QUIET], AWAY, "5").told()
    assert story.asked == ["watch-list", "watch from 5", "version", "version", "watch from 5"]
    assert caplog.messages == ["away"]


async def test_a_list_that_stalls_is_a_failure(clock, caplog):
    story = await Story(clock, [added("a", "3"), QUIET], BEGUN).told()
    assert story.asked == ["watch-list", "watch-list", "watch from 5"]
    assert caplog.messages == ["nothing came"]
    assert_growing(clock.slept, 1)


async def test_a_selector_that_the_server_cannot_read_ends_it(clock):
    no = BadRequest("unable to parse requirement")
    with pytest.raises(BadRequest, match="unable to parse"):
        await Story(clock, no, no, selector=Selector(labels="!!")).told()


async def test_what_is_refused_without_a_selector_is_asked_for_again(clock):
    """By a proxy in between, for one."""
    story = await Story(clock, BadRequest("no"), BadRequest("no"), ("9",)).told()
    assert story.asked == ["watch-list", "list", "list", "watch from 9"]


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_again_at_once(clock):
    story = await Story(clock, BEGUN, [], [], []).told()
    assert story.asked == ["watch-list", *["watch from 5"] * 4]
    assert_growing(clock.slept, 3)


async def test_a_watch_that_speaks_again_is_well_again(clock):
    story = Story(clock, BEGUN, AWAY, "5", [bookmark("6"), lambda: seen.append(story.reflector.failure) or b""])
    seen = []
    await story.told()
    assert seen == [None]


@pytest.mark.parametrize(
    "script, asked",
    [
        pytest.param([AWAY, "4"], ["watch from 5", "version"], id="told when we ask after an outage"),
        pytest.param([[bookmark("4")]], ["watch from 5"], id="told by a bookmark"),
        pytest.param([[modified("a", "4")]], ["watch from 5"], id="told by a change"),
        pytest.param([[deleted("a", "4")]], ["watch from 5"], id="told by a removal"),
    ],
)
async def test_a_server_that_went_back_is_listed_again_and_believed(clock, script, asked):
    """etcd was restored from a backup in which the pod had another version, and another pod was not there yet."""
    begun = [added("a", "3"), added("b", "4"), complete("5")]
    story = await Story(clock, begun, *script, [added("a", "1"), complete("2")]).told()
    assert story.asked == ["watch-list", *asked, "watch-list", "watch from 2"]
    assert story.heard == [(None, "3"), (None, "4"), ("4", None), ("3", "1")]


async def test_a_server_that_was_away_and_did_not_go_back_is_not_listed_again(clock):
    story = await Story(clock, BEGUN, AWAY, "7", [modified("a", "6")]).told()
    assert story.asked == ["watch-list", "watch from 5", "version", "watch from 5", "watch from 6"]
    assert story.held == {"a": "6"}


async def test_what_a_watch_asks_for(clock):
    story = await Story(clock, BEGUN, [bookmark("6")] * 3).told()
    first, second, _ = story.server.params
    assert (first["sendInitialEvents"], first["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert "resourceVersion" not in first, "without one the list is no older than the request"
    assert "sendInitialEvents" not in second
    for each in story.server.params:
        assert each["allowWatchBookmarks"] == "true"
        assert each["silent_after"] == SILENT_AFTER
        assert 300 <= int(each["timeoutSeconds"]) <= 600
    assert len({each["timeoutSeconds"] for each in story.server.params}) > 1, "watchers do not come back together"


class Counted:
    def __init__(self):
        self.ended = []

    def watch_ended(self, resource, reason):
        assert resource == "pods"
        self.ended.append(reason)


@pytest.mark.parametrize(
    "end, reason",
    [
        pytest.param([bookmark("9")], "ended", id="the server ended it"),
        pytest.param([bookmark("9"), Gone("x")], "gone", id="its version is gone"),
        pytest.param([bookmark("9"), Quiet("x")], "quiet", id="it was silent"),
        pytest.param([bookmark("9"), Unreachable("x")], "failed", id="it broke"),
    ],
)
async def test_why_a_watch_is_opened_again_is_counted(clock, end, reason):
    story = Story(clock, ("5", pod("a", "3")), end, watch_list=False)
    story.server.observer = Counted()
    await story.told()
    assert story.server.observer.ended == [reason]
    assert reason in END_REASONS
